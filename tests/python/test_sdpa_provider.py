"""Tilewise as torch's flash attention. The kernels are registered for the CPU too here, where torch has none of its own,
so that its operators, with their gradient formulas, run on it; scaled_dot_product_attention itself needs a GPU
(TILEWISE_TEST_DEVICE=cuda)."""

import compat_formula
import pytest
import tilewise
import tilewise.integrations.sdpa as provider
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

DEVICE = compat_formula.DEVICE
DTYPE, ERROR = (torch.float32, 2e-5) if DEVICE == "cpu" else (torch.bfloat16, 2e-2)
aten = torch.ops.aten

pytestmark = pytest.mark.skipif(
    not hasattr(torch.nn.attention, "restore_flash_attention_impl"),
    reason=f"torch {torch.__version__} cannot exchange its flash attention",
)
needs_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU: set TILEWISE_TEST_DEVICE=cuda")


@pytest.fixture
def kernels():
    """The operators are Tilewise's on the device of the tests."""
    handle = provider.activate(DEVICE.upper())
    yield
    handle.remove()


@pytest.fixture
def active(monkeypatch):
    """As users turn it on and off; yields the names of the operators that Tilewise was called for."""
    called = []

    def counting(operator, kernel):
        return lambda given: (called.append(operator), kernel(given))[1]

    for operator, kernel in provider.KERNELS.items():
        monkeypatch.setitem(provider.KERNELS, operator, counting(operator, kernel))
    provider.register()
    torch.nn.attention.activate_flash_attention_impl("tilewise")
    yield called
    torch.nn.attention.restore_flash_attention_impl()


def leaves(**shape):
    with compat_formula.start(5):
        return [x.detach().to(DTYPE).requires_grad_() for x in compat_formula.tensors(**{"head_dim": 32, **shape})]


def by_heads(*tensors):
    return [x.transpose(1, 2) for x in tensors]


def same(actual, expected, error=ERROR):
    for x, y in zip(actual, expected, strict=True):
        assert x.shape == y.shape
        assert (x.double() - y.double()).abs().max() <= error * max(1.0, y.abs().max().item())


def gradients(o, inputs):
    weight = torch.linspace(-1, 1, o.numel(), device=o.device).reshape(o.shape)
    return torch.autograd.grad((o.float() * weight).sum(), inputs)


def ragged(**shape):
    """Three sequences of 5, 0 and 8 queries, and of 9, 3 and 8 keys, one behind the other."""
    q, k, v = (x.detach()[0].requires_grad_() for x in leaves(batch=1, seqlen_q=13, seqlen_k=20, **shape))
    ends = [torch.tensor(x, dtype=torch.int32, device=DEVICE) for x in ([0, 5, 5, 13], [0, 9, 12, 20])]
    return q, k, v, *ends


def table(operator):
    """Who answers for an operator, by dispatch key."""
    return torch._C._dispatch_dump(f"aten::{operator}")


def test_registers_and_activates_when_asked():
    before = {operator: table(operator) for operator in provider.KERNELS if hasattr(aten, operator)}
    provider.register()
    assert "tilewise" in torch.nn.attention.list_flash_attention_impls()
    assert torch.nn.attention.current_flash_attention_impl() is None
    assert all(table(operator) == shown for operator, shown in before.items())
    torch.nn.attention.activate_flash_attention_impl("tilewise")
    assert torch.nn.attention.current_flash_attention_impl() == "tilewise"
    assert all(table(operator) != shown for operator, shown in before.items())
    torch.nn.attention.restore_flash_attention_impl()
    assert torch.nn.attention.current_flash_attention_impl() is None
    assert all(table(operator) == shown for operator, shown in before.items())


def test_another_name():
    provider.register("tilewise_again")
    assert "tilewise_again" in torch.nn.attention.list_flash_attention_impls()


@pytest.mark.parametrize("missing", ["register_flash_attention_impl", "restore_flash_attention_impl"])
def test_older_torch_is_refused(monkeypatch, missing):
    monkeypatch.delattr(torch.nn.attention, missing)
    with pytest.raises(NotImplementedError, match=r"torch: .* cannot exchange its flash attention; 2\.11 and newer can"):
        provider.register()


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}], ids=lambda x: "_".join(x) or "plain")
def test_sdpa_operator(kernels, options):
    inputs = leaves()
    o, lse, *others = aten._scaled_dot_product_flash_attention(*by_heads(*inputs), **options)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    with compat_formula.start(0):
        expected, expected_lse, _ = compat_formula.attention(
            *wide, causal=options.get("is_causal", False), scale=options.get("scale")
        )
    same([o, lse], [expected.transpose(1, 2), expected_lse])
    assert lse.dtype == torch.float32
    assert others[:4] == [None, None, 13, 29]
    assert (others[4].shape, others[5].shape, others[6].numel()) == ((2,), (), 0)
    same(gradients(o, inputs), gradients(expected.transpose(1, 2), wide))


def test_layout_is_that_of_the_query(kernels):
    """Which is what torch's own kernel and its shape function for traced programs say."""
    for q in (torch.zeros(2, 4, 8, 32), torch.zeros(2, 8, 4, 32).transpose(1, 2)):
        x = q.to(DEVICE, DTYPE)
        o = aten._scaled_dot_product_flash_attention(x, x, x)[0]
        assert o.stride() == q.stride()
        traced = aten._scaled_dot_product_flash_attention(*[x.to("meta")] * 3)[0]
        assert traced.stride() == o.stride()


@pytest.mark.parametrize("window", [(None, None), (4, 0), (-1, 3), (2, -1)], ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
def test_dense_operator(kernels, window, is_causal):
    inputs = leaves()
    window = dict(zip(("window_size_left", "window_size_right"), window))
    o, lse, *_ = aten._flash_attention_forward(*inputs, None, None, 13, 29, 0.0, is_causal, False, **window)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    sides = tuple(-1 if x is None else x for x in window.values())
    with compat_formula.start(0):
        expected, expected_lse, _ = compat_formula.attention(*wide, causal=is_causal, window=sides)
    same([o, lse], [expected, expected_lse])
    same(gradients(o, inputs), gradients(expected, wide))


@pytest.mark.parametrize("is_causal", [False, True])
def test_ragged_operator(kernels, is_causal):
    q, k, v, ends_q, ends_k = ragged()
    o, lse, *_ = aten._flash_attention_forward(q, k, v, ends_q, ends_k, 8, 9, 0.0, is_causal, False, scale=0.2)
    expected, expected_lse = tilewise.attention_varlen(
        q, k, v, ends_q, ends_k, causal=is_causal, scale=0.2, return_lse=True
    )
    same([o, lse], [expected, expected_lse])
    same(gradients(o, (q, k, v)), gradients(expected, (q, k, v)))


@torch.no_grad()
def test_operator_for_inference(kernels):
    """A paged cache, used lengths, slopes, splits, and a given tensor for the result."""
    q, _, _, ends_q, _ = ragged()
    pages, table = compat_formula.paged(torch.randn(3, 16, 2, 32), 8)
    pages, table = pages.to(DEVICE, DTYPE), table.to(DEVICE)
    used = torch.tensor([9, 3, 16], dtype=torch.int32, device=DEVICE)
    given = {"seqused_k": used, "alibi_slopes": torch.linspace(0.1, 0.6, 6, device=DEVICE)}
    schema = aten._flash_attention_forward.default._schema
    if not any(x.name == "block_table" for x in schema.arguments):
        pytest.skip(f"torch {torch.__version__} has no block_table")
    call = (q, pages, pages, ends_q, None, 8, 16, 0.0, True, False)
    o, lse, *_ = aten._flash_attention_forward(*call, block_table=table, num_splits=1, **given)
    expected = tilewise.attention(
        q, pages, pages, cu_seqlens_q=ends_q, max_seqlen_q=8, page_table=table, causal=True, return_lse=True, **given
    )
    same([o, lse], expected)
    if hasattr(aten, "_flash_attention_forward_no_dropout_inplace"):
        out = torch.empty_like(o)
        lse = aten._flash_attention_forward_no_dropout_inplace(out, *call, block_table=table, **given)
        same([out, lse], expected)


def test_refusals(kernels):
    inputs = leaves()
    heads = by_heads(*inputs)
    dense = (*inputs, None, None, 13, 29, 0.0, False, False)
    with pytest.raises(NotImplementedError, match=r"dropout_p: 0\.5 is not served .* tilewise\.attention"):
        aten._scaled_dot_product_flash_attention(*heads, 0.5)
    with pytest.raises(NotImplementedError, match="return_debug_mask: True is not served"):
        aten._scaled_dot_product_flash_attention(*heads, return_debug_mask=True)
    slopes = torch.ones(6, device=DEVICE)
    with pytest.raises(NotImplementedError, match="alibi_slopes: torch's operators have no gradient with it"):
        aten._flash_attention_forward(*dense, alibi_slopes=slopes)
    with torch.no_grad():
        aten._flash_attention_forward(*dense, alibi_slopes=slopes)
    with pytest.raises(ValueError, match="k: "):
        aten._scaled_dot_product_flash_attention(heads[0], heads[1][..., :16], heads[2])


def test_arguments_of_a_newer_torch(monkeypatch):
    """An argument that is not known is fine as long as it says nothing."""
    known = provider._KNOWN - {"scale"}
    monkeypatch.setattr(provider, "_KNOWN", known)
    call = provider._bound("_flash_attention_backward", sorted)
    assert "scale" not in call(*range(14))
    assert "scale" not in call(*range(14), scale=None)
    with pytest.raises(NotImplementedError, match=r"_flash_attention_backward: scale: 0\.5 is not served"):
        call(*range(14), scale=0.5)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiles(kernels, backend):
    inputs = leaves()

    def step(q, k, v):
        return aten._scaled_dot_product_flash_attention(*by_heads(q, k, v), is_causal=True)[0]

    compiled = torch.compile(step, backend=backend, fullgraph=True)
    same(gradients(compiled(*inputs), inputs), gradients(step(*inputs), inputs))


@needs_gpu
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("heads_kv", [6, 2])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("head_dim", [64, 100])
def test_scaled_dot_product_attention(active, is_causal, heads_kv, dtype, head_dim):
    """The same as the math back end, forward and backward; a head_dim that is no multiple of 8 arrives padded."""
    inputs = [x.detach().to(dtype) for x in leaves(seqlen_q=70, seqlen_k=70, heads_kv=heads_kv, head_dim=head_dim)]
    inputs = [x.requires_grad_() for x in inputs]
    options = {"is_causal": is_causal, "enable_gqa": heads_kv != 6}

    def results(backend, wide=False):
        x = [t.detach().float().requires_grad_() for t in inputs] if wide else inputs
        with sdpa_kernel(backend):
            o = F.scaled_dot_product_attention(*by_heads(*x), **options)
            return [o, *gradients(o, x)]

    own = results(SDPBackend.FLASH_ATTENTION)
    assert active == ["_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_backward"]
    same(own, results(SDPBackend.MATH, wide=True), error=2e-2 if dtype == torch.bfloat16 else 3e-3)


@needs_gpu
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_scaled_dot_product_attention(active, mode):
    inputs = leaves(seqlen_q=70, seqlen_k=70)

    def step(q, k, v):
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            o = F.scaled_dot_product_attention(*by_heads(q, k, v), is_causal=True, enable_gqa=True)
        return o * 1.0

    expected = [x.clone() for x in gradients(step(*inputs), inputs)]
    compiled = torch.compile(step, mode=mode)
    active.clear()
    for _ in range(3):
        found = [x.clone() for x in gradients(compiled(*inputs), inputs)]
    same(found, expected)
    assert "_scaled_dot_product_flash_attention_backward" in active


@needs_gpu
def test_restored(active):
    inputs = by_heads(*leaves(seqlen_q=70, seqlen_k=70, heads_kv=6))
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        F.scaled_dot_product_attention(*inputs)
        assert active == ["_scaled_dot_product_flash_attention"]
        torch.nn.attention.restore_flash_attention_impl()
        o = F.scaled_dot_product_attention(*inputs)
        assert active == ["_scaled_dot_product_flash_attention"]
        torch.nn.attention.activate_flash_attention_impl("tilewise")
        same([F.scaled_dot_product_attention(*inputs)], [o])
    assert len(active) == 2
