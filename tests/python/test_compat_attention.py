"""The dense and ragged functions of the drop-ins against the formula in float64, with gradients."""

import compat_formula as formula
import pytest
import tilewise.compat  # noqa: F401  (makes the modules importable)
import torch
from compat_formula import close

import flash_attn
import flash_attn_interface

MASKS = {
    "none": {},
    "causal": {"causal": True},
    "window": {"window_size": (5, 3)},
    "left": {"window_size": (4, -1)},
    "right": {"window_size": (-1, 4)},
    "causal window": {"causal": True, "window_size": (6, 6)},
    "tensor window": {"window_size": torch.tensor([5, 3])},
    "list window": {"window_size": [-3, 3]},
}
SHAPES = {"mha": (6, 6), "gqa": (6, 2), "mqa": (6, 1)}


@pytest.fixture(autouse=True)
def seeded():
    with formula.start(3):
        yield


def expected_mask(mask):
    given = {name: value for name, value in mask.items() if name == "causal"}
    if "window_size" in mask:
        given["window"] = tuple(int(x) for x in mask["window_size"])
    return given


def gradients(o, grad_o, inputs):
    return torch.autograd.grad(o, inputs, grad_o.to(o.dtype), retain_graph=True)


def compare(results, expected, inputs, tolerance=2e-5):
    """o, lse and the gradients through o."""
    o, lse = results[:2]
    close(o, expected[0], tolerance)
    close(lse, expected[1], tolerance)
    grad_o = torch.randn(o.shape)
    for actual, wanted in zip(gradients(o, grad_o, inputs), gradients(expected[0], grad_o, inputs)):
        close(actual, wanted, tolerance)


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("heads", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("seqlens", [(13, 29), (29, 13), (1, 17)], ids=str)
def test_flash_attn_func(heads, mask, seqlens):
    inputs = formula.tensors(seqlen_q=seqlens[0], seqlen_k=seqlens[1], heads=heads[0], heads_kv=heads[1])
    expected = formula.attention(*inputs, **expected_mask(mask))
    results = flash_attn.flash_attn_func(*inputs, return_attn_probs=True, **mask)
    assert len(results) == 3 and results[1].dtype == torch.float32 and results[2].shape == (0,)
    compare(results, expected, inputs)
    compare(flash_attn_interface.flash_attn_func(*inputs, return_attn_probs=True, **mask), expected, inputs)
    for module in (flash_attn, flash_attn_interface):
        o = module.flash_attn_func(*inputs, **mask)
        assert torch.is_tensor(o) and torch.equal(o, results[0])


@pytest.mark.parametrize("softcap, scale", [(3.0, None), (0.0, 0.3), (2.0, 0.5), (-1.0, None)])
def test_scores(softcap, scale):
    inputs = formula.tensors()
    expected = formula.attention(*inputs, softcap=softcap, scale=scale, causal=True)
    compare(flash_attn.flash_attn_func(*inputs, 0.0, scale, True, (-1, -1), softcap, None, False, True), expected, inputs)
    three = flash_attn_interface.flash_attn_func(*inputs, scale, True, softcap=softcap, return_attn_probs=True)
    compare(three, expected, inputs)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(6,), (2, 6)])
def test_alibi(causal, shape):
    inputs, slopes = formula.tensors(), torch.rand(shape)
    results = flash_attn.flash_attn_func(*inputs, causal=causal, alibi_slopes=slopes, return_attn_probs=True)
    compare(results, formula.attention(*inputs, slopes=slopes, causal=causal), inputs)


def test_chunks():
    inputs = formula.tensors()
    results = flash_attn_interface.flash_attn_func(*inputs, attention_chunk=8, causal=True, return_attn_probs=True)
    compare(results, formula.attention(*inputs, chunk=8, causal=True), inputs)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float16, 4e-3), (torch.bfloat16, 3e-2), (torch.float64, 1e-7)], ids=str)
@pytest.mark.parametrize("head_dim", [32, 59, 111, 256])
def test_types_and_head_dims(dtype, tolerance, head_dim):
    if dtype == torch.float64 and formula.DEVICE != "cpu":
        pytest.skip("float64 is for the CPU")
    inputs = formula.tensors(dtype=dtype, head_dim=head_dim)
    o, lse, _ = flash_attn.flash_attn_func(*inputs, causal=True, return_attn_probs=True)
    expected = formula.attention(*inputs, causal=True)
    assert o.dtype == dtype and o.shape == inputs[0].shape
    close(o, expected[0], tolerance)
    close(lse, expected[1], tolerance / 100 if dtype != torch.float64 else tolerance)


def test_packed():
    heads = 4
    qkv = torch.randn(2, 11, 3, heads, 16, requires_grad=True)
    expected = formula.attention(*qkv.unbind(2), causal=True)
    compare(flash_attn.flash_attn_qkvpacked_func(qkv, causal=True, return_attn_probs=True), expected, [qkv])
    compare(flash_attn_interface.flash_attn_qkvpacked_func(qkv, causal=True, return_attn_probs=True), expected, [qkv])
    q, kv = torch.randn(2, 7, heads, 16, requires_grad=True), torch.randn(2, 11, 2, 2, 16, requires_grad=True)
    results = flash_attn.flash_attn_kvpacked_func(q, kv, return_attn_probs=True)
    compare(results, formula.attention(q, *kv.unbind(2)), [q, kv])
    joined = torch.randn(2, 11, heads + 2 * 2, 16, requires_grad=True)
    parts = joined[:, :, :heads], joined[:, :, heads : heads + 2], joined[:, :, heads + 2 :]
    three = flash_attn_interface.flash_attn_qkvpacked_func(joined, num_heads_q=heads, return_attn_probs=True)
    compare(three, formula.attention(*parts), [joined])


def ragged_inputs(lengths_q=(5, 0, 9, 1), lengths_k=(7, 4, 3, 0), heads_kv=2):
    q, cu_q = formula.pack([torch.randn(n, 4, 16) for n in lengths_q])
    k, cu_k = formula.pack([torch.randn(n, heads_kv, 16) for n in lengths_k])
    return [x.requires_grad_() for x in (q, k, torch.randn_like(k))], cu_q, cu_k


def ragged_formula(inputs, cu_q, cu_k, **mask):
    q, k, v = inputs
    parts = []
    for n in range(len(cu_q) - 1):
        rows, keys = slice(cu_q[n], cu_q[n + 1]), slice(cu_k[n], cu_k[n + 1])
        parts.append(formula.attention(q[rows][None], k[keys][None], v[keys][None], **mask))
    return torch.cat([o[0] for o, _, _ in parts]), torch.cat([lse[0] for _, lse, _ in parts], -1)


@pytest.mark.parametrize("longest", [9, torch.tensor(9), torch.tensor(9, dtype=torch.int32)], ids=["int", "int64", "int32"])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_ragged(mask, longest):
    inputs, cu_q, cu_k = ragged_inputs()
    expected = ragged_formula(inputs, cu_q, cu_k, **expected_mask(mask))
    lengths = (cu_q, cu_k, longest, longest)
    results = flash_attn.flash_attn_varlen_func(*inputs, *lengths, return_attn_probs=True, **mask)
    assert len(results) == 3 and results[1].shape == (4, 15)
    compare(results, expected, inputs)
    compare(flash_attn_interface.flash_attn_varlen_func(*inputs, *lengths, return_attn_probs=True, **mask), expected, inputs)


def test_ragged_packed():
    qkv, cu = formula.pack([torch.randn(n, 3, 2, 16) for n in (4, 0, 6)])
    qkv.requires_grad_()
    expected = ragged_formula(qkv.unbind(1), cu, cu, causal=True)
    compare(flash_attn.flash_attn_varlen_qkvpacked_func(qkv, cu, 6, causal=True, return_attn_probs=True), expected, [qkv])
    (q, k, v), cu_q, cu_k = ragged_inputs()
    kv = torch.stack((k, v), 1).detach().requires_grad_()
    expected = ragged_formula((q, *kv.unbind(1)), cu_q, cu_k)
    compare(flash_attn.flash_attn_varlen_kvpacked_func(q, kv, cu_q, cu_k, 9, 7, return_attn_probs=True), expected, [q, kv])


def test_ragged_used_lengths():
    inputs, cu_q, cu_k = ragged_inputs((5, 8), (7, 6))
    used_q, used_k = torch.tensor([3, 8], dtype=torch.int32), torch.tensor([7, 2], dtype=torch.int32)
    o = flash_attn_interface.flash_attn_varlen_func(*inputs, cu_q, cu_k, 8, 7, used_q, used_k, None, True)
    q, k, v = inputs
    close(o[:3], formula.attention(q[None, :3], k[None, :7], v[None, :7], causal=True)[0][0])
    close(o[5:], formula.attention(q[None, 5:], k[None, 7:9], v[None, 7:9], causal=True)[0][0])
    assert torch.equal(o[3:5], torch.zeros(2, 4, 16))


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_ragged_pages(page_size):
    lengths = torch.tensor([13, 16, 0])
    k, v = torch.randn(3, 16, 2, 16), torch.randn(3, 16, 2, 16)
    q, cu_q = formula.pack([torch.randn(n, 4, 16) for n in (4, 2, 3)])
    cu_k = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
    torch.manual_seed(5)
    k_pages, table = formula.paged(k, page_size)
    torch.manual_seed(5)
    v_pages, _ = formula.paged(v, page_size)
    o, lse, _ = flash_attn.flash_attn_varlen_func(
        q, k_pages, v_pages, cu_q, cu_k, 4, 16, causal=True, block_table=table, return_attn_probs=True
    )
    for n in range(3):
        rows = slice(cu_q[n], cu_q[n + 1])
        expected = formula.attention(q[rows][None], k[n : n + 1, : lengths[n]], v[n : n + 1, : lengths[n]], causal=True)
        close(o[rows], expected[0][0])
        close(lse[:, rows], expected[1][0])


def test_views_and_gradients_of_any_layout():
    """What transformers gives: k and v as views of a transposed cache; and a gradient that is one number, expanded."""
    q, k, v = formula.tensors()
    cache = [x.detach().transpose(1, 2).contiguous().requires_grad_() for x in (k, v)]
    o = flash_attn.flash_attn_func(q, *(x.transpose(1, 2) for x in cache), causal=True)
    expected = formula.attention(q, *(x.transpose(1, 2) for x in cache), causal=True)[0]
    close(o, expected)
    for actual, wanted in zip(torch.autograd.grad(o.sum(), [q, *cache]), torch.autograd.grad(expected.sum(), [q, *cache])):
        close(actual, wanted)


def test_gradient_through_lse():
    inputs = formula.tensors()
    _, lse, _ = flash_attn.flash_attn_func(*inputs, causal=True, return_attn_probs=True)
    expected = formula.attention(*inputs, causal=True)[1]
    for actual, wanted in zip(torch.autograd.grad(lse.sum(), inputs[:2]), torch.autograd.grad(expected.sum(), inputs[:2])):
        close(actual, wanted)


def test_classes_and_compile():
    from flash_attn.flash_attn_interface import FlashAttnFunc

    inputs = formula.tensors()
    expected = flash_attn.flash_attn_func(*inputs, causal=True)
    o = FlashAttnFunc.apply(*inputs, 0.0, None, True, (-1, -1), 0.0, None, False, False, True)
    assert torch.equal(o, expected) and o.requires_grad
    assert not FlashAttnFunc.apply(*inputs, 0.0, None, True, (-1, -1), 0.0, None, False, False, False).requires_grad
    compiled = torch.compile(lambda *x: flash_attn.flash_attn_func(*x, causal=True), fullgraph=True, backend="aot_eager")
    close(compiled(*inputs), expected, 1e-6)
