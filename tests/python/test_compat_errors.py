"""What the drop-ins refuse, and where they do not follow flash_attn into an error or a wrong result."""

import compat_formula as formula
import pytest
import tilewise.compat  # noqa: F401  (makes the modules importable)
import torch

import flash_attn
import flash_attn_interface

CU = torch.tensor([0, 5, 13], dtype=torch.int32)


def case(**options):
    return [x.detach() for x in formula.tensors(**options)]


@pytest.mark.parametrize(
    "options, error, words",
    [
        ({"dropout_p": 1.0}, ValueError, "dropout_p"),
        ({"dropout_p": -0.5}, ValueError, "dropout_p"),
        ({"alibi_slopes": torch.ones(5)}, ValueError, "alibi_slopes"),
        ({"window_size": (1,)}, IndexError, "index"),
    ],
    ids=str,
)
def test_second_generation(options, error, words):
    with pytest.raises(error, match=words):
        flash_attn.flash_attn_func(*case(), **options)


def test_shapes_and_types():
    q, k, v = case()
    with pytest.raises(ValueError, match="num_heads"):
        flash_attn.flash_attn_func(q[:, :, :5], k, v)
    with pytest.raises(ValueError, match="dtype"):
        flash_attn.flash_attn_func(q, k.half(), v)
    with pytest.raises(ValueError, match="cu_seqlens_q"):
        flash_attn.flash_attn_varlen_func(q[0], k[0], v[0], CU.long(), CU, 8, 8)
    with pytest.raises(TypeError, match="cu_seqlens"):
        flash_attn.flash_attn_varlen_func(q[0], k[0], v[0])
    with pytest.raises(TypeError, match="mask"):
        flash_attn.flash_attn_func(q, k, v, mask=None)


def test_cache():
    q, k, v = case()
    with pytest.raises(ValueError, match="cache_seqlens"):
        flash_attn.flash_attn_with_kvcache(q, k, v, q[:, :, :2], q[:, :, :2])
    with pytest.raises(ValueError, match="cache_seqlens"):
        flash_attn.flash_attn_with_kvcache(q, k.clone(), v.clone(), q[:, :, :2], q[:, :, :2], cache_seqlens=29)
    with pytest.raises(ValueError, match="rotary"):
        flash_attn.flash_attn_with_kvcache(q, k, v, rotary_cos=torch.ones(29, 8), rotary_sin=torch.ones(29, 8), cache_seqlens=3)
    with pytest.raises(ValueError, match="num_splits"):
        flash_attn.flash_attn_with_kvcache(q, k, v, num_splits=129)


def test_arguments_by_their_own_names():
    """Refusals of what lies below call arguments as the caller did."""
    q, k, v = case()
    pages = {"cache_seqlens": 3, "softmax_scale": 1.0}
    table = torch.zeros(2, 1)
    with pytest.raises(ValueError, match=r"^block_table: "):
        flash_attn.flash_attn_with_kvcache(q, k, v, block_table=table, **pages)
    with pytest.raises(ValueError, match=r"^page_table: "):
        flash_attn_interface.flash_attn_with_kvcache(q, k, v, page_table=table, **pages)
    for module in (flash_attn, flash_attn_interface):
        with pytest.raises(ValueError, match=r"^cache_leftpad: "):
            module.flash_attn_with_kvcache(q, k, v, cache_leftpad=torch.zeros(2), **pages)
        with pytest.raises(ValueError, match=r"^softmax_scale: "):
            module.flash_attn_func(q, k, v, softmax_scale=float("nan"))
    with pytest.raises(ValueError, match=r"^attention_chunk: "):
        flash_attn_interface.flash_attn_func(q, k, v, attention_chunk=-1)


def test_third_generation():
    q, k, v = case()
    with pytest.raises(NotImplementedError, match="qv"):
        flash_attn_interface.flash_attn_func(q, k, v, qv=v)
    with pytest.raises(TypeError, match="float8"):
        flash_attn_interface.flash_attn_func(*(x.to(torch.float8_e4m3fn) for x in (q, k, v)))
    with pytest.raises(TypeError, match="dropout_p"):
        flash_attn_interface.flash_attn_func(q, k, v, dropout_p=0.1)


def test_paged_keys_have_no_gradient():
    q, k, v = case()
    options = {"block_table": torch.zeros(1, 1, dtype=torch.int32)}
    with pytest.raises(NotImplementedError, match="block_table"):
        flash_attn.flash_attn_varlen_func(q[0].requires_grad_(), k, v, CU[[0, 2]], CU[[0, 2]], 13, 13, **options)
    with pytest.raises(NotImplementedError, match="return_attn_probs"):
        flash_attn.flash_attn_varlen_func(q[0].detach(), k, v, CU[[0, 2]], CU[[0, 2]], 13, 13, 0.5, return_attn_probs=True, **options)


def test_rows_without_keys():
    """lse is -inf in both generations, o and gradients are 0."""
    for module in (flash_attn, flash_attn_interface):
        inputs = formula.tensors(seqlen_q=9, seqlen_k=4)
        o, lse = module.flash_attn_func(*inputs, causal=True, return_attn_probs=True)[:2]
        assert (lse[:, :, :5] == float("-inf")).all() and o[:, :5].count_nonzero() == 0
        assert torch.isfinite(lse[:, :, 5:]).all()
        gradients = torch.autograd.grad(o.sum(), inputs)
        assert gradients[0][:, :5].count_nonzero() == 0 and all(x.isfinite().all() for x in gradients)


@pytest.mark.parametrize("batch, seqlen_q, seqlen_k", [(0, 3, 3), (2, 0, 3), (2, 3, 0)])
def test_empty(batch, seqlen_q, seqlen_k):
    inputs = formula.tensors(batch=batch, seqlen_q=seqlen_q, seqlen_k=seqlen_k)
    for module in (flash_attn, flash_attn_interface):
        o = module.flash_attn_func(*inputs, causal=True)
        assert o.shape == inputs[0].shape and o.count_nonzero() == 0
        assert all(x.count_nonzero() == 0 for x in torch.autograd.grad(o.sum(), inputs))


def test_other_head_dim_of_v_is_served():
    q, k, _ = case()
    v = torch.randn(2, 29, 2, 33)
    for module in (flash_attn, flash_attn_interface):
        formula.close(module.flash_attn_func(q, k, v), formula.attention(q, k, v)[0])
