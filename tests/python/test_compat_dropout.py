"""Dropout through the drop-ins: S_dmask tells what was dropped, and forward, backward and the private operators agree with it."""

import compat_formula as formula
import pytest
import tilewise.compat  # noqa: F401  (makes the modules importable)
import torch
from compat_formula import close

import flash_attn
from flash_attn import flash_attn_interface as private

P = 0.3


@pytest.fixture(autouse=True)
def seeded():
    with formula.start(11):
        yield


def keep_of(s_dmask, seqlen_q, seqlen_k):
    return (~torch.signbit(s_dmask[:, :, :seqlen_q, :seqlen_k])).double() / (1 - P)


@pytest.mark.parametrize("mask", [{}, {"causal": True}, {"window_size": (9, 2)}], ids=["none", "causal", "window"])
@pytest.mark.parametrize("options", [{}, {"softcap": 2.0}, {"alibi_slopes": True}], ids=["", "softcap", "alibi"])
def test_dense(mask, options):
    inputs = formula.tensors(seqlen_q=40, seqlen_k=700)
    options = options if "alibi_slopes" not in options else {"alibi_slopes": torch.rand(6)}
    o, lse, s_dmask = flash_attn.flash_attn_func(*inputs, dropout_p=P, return_attn_probs=True, **mask, **options)
    assert s_dmask.shape == (2, 6, 128, 768) and s_dmask.dtype == torch.float32
    given = {"softcap": options.get("softcap", 0.0), "slopes": options.get("alibi_slopes")}
    given |= {"causal": mask.get("causal", False), "window": mask.get("window_size", (-1, -1))}
    expected = formula.attention(*inputs, keep=keep_of(s_dmask, 40, 700), **given)
    close(o, expected[0])
    close(lse, expected[1])
    close(s_dmask[:, :, :40, :700].abs(), expected[2])
    assert s_dmask[:, :, 40:].count_nonzero() == 0 and s_dmask[..., 700:].count_nonzero() == 0
    seen = s_dmask[:, :, :40, :700][expected[2] > 1e-30]
    assert abs((seen < 0).double().mean() - P) < 0.02
    grad_o = torch.randn_like(o)
    wanted = torch.autograd.grad(expected[0], inputs, grad_o.double())
    for actual, gradient in zip(torch.autograd.grad(o, inputs, grad_o), wanted):
        close(actual, gradient)


def test_half_precision():
    inputs = [x.detach().half() for x in formula.tensors(seqlen_q=70, seqlen_k=70)]
    o, _, s_dmask = flash_attn.flash_attn_func(*inputs, dropout_p=P, causal=True, return_attn_probs=True)
    expected = formula.attention(*inputs, keep=keep_of(s_dmask, 70, 70), causal=True)
    assert s_dmask.dtype == torch.float16
    close(o, expected[0], 5e-3)
    close(s_dmask[:, :, :70, :70].abs(), expected[2], 2e-3)


def test_ragged():
    lengths = (5, 0, 9)
    qkv, cu = formula.pack([torch.randn(n, 3, 4, 16) for n in lengths])
    o, _, s_dmask = flash_attn.flash_attn_varlen_qkvpacked_func(qkv, cu, 9, P, None, True, return_attn_probs=True)
    assert s_dmask.shape == (3, 4, 128, 128)
    for n, length in enumerate(lengths):
        rows = slice(cu[n], cu[n + 1])
        keep = keep_of(s_dmask[n : n + 1], length, length)
        expected = formula.attention(*qkv[rows][None].unbind(2), keep=keep, causal=True)
        close(o[rows], expected[0][0])
        close(s_dmask[n, :, :length, :length].abs(), expected[2][0])


def test_repeats_with_torch_seed():
    inputs = formula.tensors()
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(flash_attn.flash_attn_func(*inputs, dropout_p=P))
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])


def test_private_operators_share_the_state():
    inputs = [x.detach() for x in formula.tensors()]
    o, lse, s_dmask, state = private._flash_attn_forward(*inputs, P, 0.2, True, -1, -1, 0.0, None, True)
    assert state.shape == (2,) and state.dtype == torch.int64
    leaves = [x.clone().requires_grad_() for x in inputs]
    expected = formula.attention(*leaves, keep=keep_of(s_dmask, 13, 29), causal=True, scale=0.2)
    close(o, expected[0])
    grad_o, written = torch.randn_like(o), [torch.empty_like(x) for x in inputs]
    sums = private._flash_attn_backward(grad_o, *inputs, o, lse, *written, P, 0.2, True, -1, -1, 0.0, None, False, state)
    for actual, gradient in zip(written, torch.autograd.grad(expected[0], leaves, grad_o.double())):
        close(actual, gradient)
    assert sums.shape == (2, 6, 128)
    close(sums[..., :13], (1 - P) * (grad_o * o).sum(-1).transpose(1, 2))
    with pytest.raises(ValueError, match="rng_state"):
        private._flash_attn_backward(grad_o, *inputs, o, lse, *written, P, 0.2, True, -1, -1, 0.0, None, False)


def test_a_vanishing_probability_is_none():
    """How diffusers asks for lse."""
    inputs = [x.detach() for x in formula.tensors()]
    o, lse, s_dmask, _ = private._wrapped_flash_attn_forward(*inputs, 1e-30, None, False, -1, -1, 0.0, None, True)
    assert torch.equal(o, flash_attn.flash_attn_func(*inputs)) and s_dmask.shape == (0,)


def test_generator():
    import flash_attn_2_cuda

    inputs = [x.detach() for x in formula.tensors()]

    def run(seed):
        generator = torch.Generator().manual_seed(seed)
        return flash_attn_2_cuda.fwd(*inputs, None, None, P, 0.2, True, -1, -1, 0.0, False, generator)

    first, again, other = run(1), run(1), run(2)
    assert torch.equal(first[0], again[0]) and torch.equal(first[3], again[3]) and not torch.equal(first[0], other[0])
