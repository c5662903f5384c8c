"""The private operators and the extension: without autograd, by position, into given tensors; o and lse may come from elsewhere."""

import compat_formula as formula
import pytest
import tilewise.compat  # noqa: F401  (makes the modules importable)
import torch
from compat_formula import close

import flash_attn_2_cuda
import flash_attn_interface
from flash_attn import flash_attn_interface as private

NO_DROPOUT = (0.0, 0.25)


@pytest.fixture(autouse=True)
def seeded():
    with formula.start(17):
        yield


def case(**shape):
    """Inputs, a gradient of o, and what the formula makes of both, causal."""
    leaves = formula.tensors(**shape)
    o, lse, _ = formula.attention(*leaves, causal=True, scale=0.25)
    grad_o = torch.randn(o.shape)
    gradients = torch.autograd.grad(o, leaves, grad_o.double())
    return [x.detach() for x in leaves], grad_o, (o.detach(), lse.detach()), gradients


def close_all(actual, expected):
    for one, other in zip(actual, expected, strict=True):
        close(one, other)


@pytest.mark.parametrize("layout", ["contiguous", "packed"])
def test_dense(layout):
    inputs, grad_o, expected, gradients = case(heads=4, heads_kv=4, seqlen_q=13, seqlen_k=13)
    o, lse, s_dmask, _ = private._flash_attn_forward(*inputs, *NO_DROPOUT, True, -1, -1, 0.0, None, False)
    close_all((o, lse), expected)
    packed = torch.empty(2, 13, 3, 4, 20)
    written = packed.unbind(2) if layout == "packed" else [torch.empty_like(x) for x in inputs]
    sums = private._flash_attn_backward(grad_o, *inputs, o, lse, *written, *NO_DROPOUT, True, -1, -1, 0.0, None, True)
    close_all(written, gradients)
    assert sums.shape == (2, 4, 128) and sums.dtype == torch.float32


def test_ring():
    """Two halves of the keys, merged by lse as ring attention does, and each half's backward with the merged o and lse."""
    inputs, _, _, _ = case()
    q, k, v = inputs
    leaves = [x.clone().requires_grad_() for x in inputs]
    whole, whole_lse, _ = formula.attention(*leaves, scale=0.25)
    grad_o = torch.randn_like(q)
    expected = torch.autograd.grad(whole, leaves, grad_o.double())
    halves = [(k[:, :11], v[:, :11]), (k[:, 11:], v[:, 11:])]
    parts = [private._flash_attn_forward(q, *half, *NO_DROPOUT, False, -1, -1, 0.0, None, False)[:2] for half in halves]
    lse = torch.logaddexp(parts[0][1], parts[1][1])
    o = sum(part * (part_lse - lse).exp().transpose(1, 2)[..., None] for part, part_lse in parts)
    close_all((o, lse), (whole, whole_lse))
    dq, dk, dv = torch.zeros_like(q), [], []
    for half in halves:
        part = [torch.empty_like(x) for x in (q, *half)]
        private._flash_attn_backward(grad_o, q, *half, o, lse, *part, *NO_DROPOUT, False, -1, -1, 0.0, None, False)
        dq += part[0]
        dk.append(part[1])
        dv.append(part[2])
    close_all((dq, torch.cat(dk, 1), torch.cat(dv, 1)), expected)


def ragged_case():
    inputs, grad_o, expected, gradients = case(batch=1)
    lengths = torch.tensor([0, 13], dtype=torch.int32), torch.tensor([0, 29], dtype=torch.int32), 13, 29
    flat = [x[0] for x in inputs], grad_o[0], [x[0] for x in expected], [x[0] for x in gradients]
    return *flat, lengths


def test_ragged():
    inputs, grad_o, expected, gradients, lengths = ragged_case()
    o, lse, _, _ = private._flash_attn_varlen_forward(*inputs, *lengths, *NO_DROPOUT, True)
    close_all((o, lse), expected)
    written = [torch.empty_like(x) for x in inputs]
    sums = private._flash_attn_varlen_backward(
        grad_o, *inputs, o, lse, *written, *lengths, *NO_DROPOUT, True, -1, -1, 0.0, None, False, None, True
    )
    close_all(written, gradients)
    assert sums.shape == (6, 13 + 128)


def test_zero_tensors():
    (q, k, v), _, expected, _, lengths = ragged_case()
    longer = torch.cat((q, torch.full((3, *q.shape[1:]), float("nan"))))
    o, lse, _, _ = private._flash_attn_varlen_forward(longer, k, v, *lengths, *NO_DROPOUT, True, zero_tensors=True)
    close_all((o[:13], lse[:, :13]), expected)
    assert o[13:].count_nonzero() == 0 and (lse[:, 13:] == float("-inf")).all()


def test_used_keys():
    (q, k, v), _, _, _, lengths = ragged_case()
    used = torch.tensor([21], dtype=torch.int32)
    o, _, _, _ = private._flash_attn_varlen_forward(q, k, v, *lengths, *NO_DROPOUT, True, seqused_k=used)
    close(o, formula.attention(q[None], k[None, :21], v[None, :21], causal=True, scale=0.25)[0][0])


def test_extension_dense():
    inputs, grad_o, expected, gradients = case()
    out = torch.empty_like(inputs[0])
    o, lse, _, state = flash_attn_2_cuda.fwd(*inputs, out, None, *NO_DROPOUT, True, -1, 0, 0.0, False, None)
    assert o is out
    close_all((o, lse), expected)
    mask = (True, -1, 0, 0.0, False, None, state)
    written = [torch.empty_like(x) for x in inputs]
    for given in (written, [None] * 3):
        results = flash_attn_2_cuda.bwd(grad_o, *inputs, o, lse, *given, None, *NO_DROPOUT, *mask)
        assert isinstance(results, list) and len(results) == 4
        close_all(results[:3], gradients)
    close_all(written, gradients)


def test_extension_ragged():
    inputs, grad_o, expected, gradients, (cu_q, cu_k, *longest) = ragged_case()
    tail = (True, -1, 0, 0.0, False, None)
    optional = (None, None, None, None)
    o, lse, _, state = flash_attn_2_cuda.varlen_fwd(*inputs, None, cu_q, cu_k, *optional, *longest, *NO_DROPOUT, False, *tail)
    close_all((o, lse), expected)
    results = flash_attn_2_cuda.varlen_bwd(
        grad_o, *inputs, o, lse, None, None, None, cu_q, cu_k, None, *longest, *NO_DROPOUT, False, *tail, state
    )
    close_all(results[:3], gradients)
    assert results[3].shape == (6, 13 + 128)


def test_compile():
    inputs, grad_o, expected, gradients = case()

    def both(q, k, v, grad_o):
        options = (*NO_DROPOUT, True, -1, -1, 0.0, None, False)
        o, lse, _, _ = private._flash_attn_forward(q, k, v, *options)
        written = [torch.empty_like(x) for x in (q, k, v)]
        private._flash_attn_backward(grad_o, q, k, v, o, lse, *written, *options)
        return o, written

    o, written = torch.compile(both, fullgraph=True, backend="aot_eager")(*inputs, grad_o)
    close_all((o, *written), (expected[0], *gradients))


def test_third_generation():
    inputs, grad_o, expected, gradients = case()
    o, lse, *parts = flash_attn_interface._flash_attn_forward(*inputs, softmax_scale=0.25, causal=True)
    close_all((o, lse), expected)
    assert [x.numel() for x in parts] == [0, 0]
    written = [torch.empty_like(x) for x in inputs]
    options = {"softmax_scale": 0.25, "is_causal": True, "dq": written[0], "dk": written[1], "dv": written[2]}
    sums = flash_attn_interface._flash_attn_backward(grad_o, *inputs, o, lse, **options)
    close_all(written, gradients)
    assert sums.shape == (2, 6, 128)
    leaves = [x.requires_grad_() for x in inputs]
    o, _, *_ = flash_attn_interface._flash_attn_forward(*leaves, softmax_scale=0.25, causal=True)
    close_all(torch.autograd.grad(o, leaves, grad_o), gradients)


@pytest.mark.parametrize("dtype, out_dtype", [(torch.float32, None), (torch.float32, torch.bfloat16), (torch.bfloat16, None)])
def test_combine(dtype, out_dtype):
    inputs, _, _, _ = case()
    q, k, v = inputs
    whole, whole_lse, _ = formula.attention(*inputs)
    parts = [formula.attention(q, k[:, a:b], v[:, a:b])[:2] for a, b in ((0, 9), (9, 10), (10, 29))]
    empty = torch.full_like(parts[0][0], float("nan")), torch.full_like(parts[0][1], float("-inf"))
    outs, lses = zip(*parts, empty)
    lse_partial = torch.stack(lses).float().transpose(-1, -2)
    o, lse = flash_attn_interface.flash_attn_combine(torch.stack(outs).to(dtype), lse_partial, None, out_dtype)
    assert o.dtype == (out_dtype or torch.float32) and lse.shape == (2, 13, 6)
    close(lse, whole_lse.transpose(1, 2))
    close(o, whole, 2e-5 if dtype == out_dtype or out_dtype is None and dtype == torch.float32 else 2e-2)
    out = torch.empty_like(o)
    assert flash_attn_interface.flash_attn_combine(torch.stack(outs).to(dtype), lse_partial, out, out_dtype)[0] is out
    with pytest.raises(ValueError, match="out"):
        flash_attn_interface.flash_attn_combine(torch.stack(outs).to(dtype), lse_partial, out.double(), out_dtype)
