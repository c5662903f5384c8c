"""Public reports (docs/user-reports.md) of strides, views and alignment, through Python."""

import compat_formula as formula
import pytest
import tilewise
import tilewise.compat  # noqa: F401  (makes the modules importable)
import torch
from report_inputs import DEVICE, agree, as_formula, lengths, randn, seeded  # noqa: F401

from flash_attn import flash_attn_func, flash_attn_qkvpacked_func, flash_attn_varlen_func

pytestmark = pytest.mark.usefixtures("seeded")


def test_R091_a_gradient_of_o_that_is_a_permuted_view():
    q, k, v = (randn(2, 32, heads, 128, dtype=torch.float16) for heads in (4, 1, 1))
    for order in ((0, 2, 1, 3), (3, 0, 1, 2), (1, 3, 2, 0)):
        shape = [q.shape[axis] for axis in order]
        back = [order.index(axis) for axis in range(4)]
        grad_o = randn(*shape, dtype=torch.float16).permute(back)
        assert not grad_o.is_contiguous()
        as_formula(flash_attn_func, (q, k, v), grad_o=grad_o)


def test_R092_a_gradient_of_o_that_is_one_expanded_number():
    inputs = [randn(1, 5, 2, 8, dtype=torch.bfloat16) for _ in range(3)]
    ones = torch.ones((), dtype=torch.bfloat16).expand(1, 5, 2, 8)
    as_formula(lambda *x: flash_attn_func(*x, causal=True), inputs, grad_o=ones, causal=True)
    flash_attn_func(*(x.requires_grad_() for x in inputs), causal=True).sum().backward()


def test_R094_slices_of_a_fused_projection():
    """(sequence, batch, heads of q, k and v, head_dim), as one linear layer gives it."""
    qkv = randn(2048, 1, 18, 64, dtype=torch.float16)
    q, k, v = (x.transpose(0, 1) for x in qkv.split([16, 1, 1], 2))
    o = flash_attn_func(q, k, v, window_size=(-1, 0))
    assert torch.equal(o, flash_attn_func(q.contiguous(), k.contiguous(), v.contiguous(), window_size=(-1, 0)))
    agree(o[:, -9:, :2], formula.attention(q[:, -9:, :2], k, v, causal=True)[0])


@pytest.mark.parametrize("keys", [33, 65, 129, 257])
def test_R095_expanded_keys_and_values_behind_a_mask(keys):
    q = randn(2, 20, 4, 64, dtype=torch.bfloat16)
    k, v = (randn(1, keys, 1, 64, dtype=torch.bfloat16).expand(2, keys, 4, 64) for _ in range(2))
    bias = torch.where(randn(1, 1, 20, keys) > 0, 0.0, float("-inf")).to(torch.bfloat16)
    o = tilewise.attention(q, k, v, bias=bias)
    s = torch.einsum("bihd,bjhd->bhij", q.double(), k.double()) / 8 + bias.double()
    agree(o, torch.einsum("bhij,bjhd->bihd", s.softmax(-1), v.double()))
    assert torch.equal(o, tilewise.attention(q, k, v, mask=bias == 0))


def test_R096_permuted_inputs_with_an_expanded_mask():
    q, k, v = (randn(2, 4, 24, 32).transpose(1, 2) for _ in range(3))
    mask = (torch.rand(2, 1, 24, 24) > 0.4).expand(2, 4, 24, 24)
    inputs = [x.detach().requires_grad_() for x in (q, k, v)]
    wide = [x.detach().double().requires_grad_() for x in inputs]
    o = tilewise.attention(*inputs, mask=mask)
    p = torch.einsum("bihd,bjhd->bhij", *wide[:2]).div(32**0.5).masked_fill(~mask, float("-inf")).softmax(-1)
    expected = torch.einsum("bhij,bjhd->bihd", p, wide[2])
    agree(o, expected)
    grad_o = randn(2, 4, 24, 32).transpose(1, 2)
    for found, wanted in zip(torch.autograd.grad(o, inputs, grad_o), torch.autograd.grad(expected, wide, grad_o.double())):
        agree(found, wanted, 1e-4)


def test_R098_bias_strides_of_any_number():
    q, k, v = (randn(1, 43, 16, 24) for _ in range(3))
    bias = randn(16 * 43 + 43 * 43).as_strided((1, 16, 43, 43), (688, 43, 43, 1))
    s = torch.einsum("bihd,bjhd->bhij", q.double(), k.double()) / 24**0.5 + bias.double()
    expected = torch.einsum("bhij,bjhd->bihd", s.softmax(-1), v.double())
    agree(tilewise.attention(q, k, v, bias=bias), expected)
    grown = torch.cat((bias.new_zeros(1), bias.contiguous().flatten()))[1:].view(bias.shape)
    agree(tilewise.attention(q, k, v, bias=grown), expected)


@pytest.mark.parametrize("which", ["q", "k", "v"])
def test_R099_a_last_axis_that_is_not_contiguous(which):
    inputs = {name: randn(2, 37, 2, 24) for name in "qkv"}
    inputs[which] = randn(2, 37, 24, 2).transpose(2, 3)
    assert inputs[which].stride(-1) != 1
    as_formula(lambda *x: flash_attn_func(*x, causal=True), inputs.values(), causal=True)


def test_R101_strides_of_axes_of_size_one():
    q = torch.tensor([[[[1.0, 2.0]]]]).transpose(-1, -2)
    k, v = randn(1, 1, 1, 1), randn(1, 1, 1, 1)
    o = tilewise.attention(q.transpose(1, 2), k, v)
    agree(o.flatten(), v.expand(1, 1, 2, 1).flatten())
    odd = randn(1, 6, 1, 8).as_strided((1, 6, 1, 8), (12345, 8, 3, 1))
    agree(flash_attn_func(odd, odd, odd), formula.attention(odd, odd, odd)[0])


def test_R102_the_output_has_the_layout_of_q():
    """So that the transposed view of the next layer needs no copy."""
    for q in (randn(2, 4, 20, 32).transpose(1, 2), randn(2, 20, 4, 32), randn(20, 2, 4, 32).transpose(0, 1)):
        k, v = (randn(2, 30, 4, 32) for _ in range(2))
        o = tilewise.attention(q, k, v)
        assert o.stride() == q.stride()
        agree(o, formula.attention(q, k, v)[0])


def test_R103_backward_of_packed_heads_of_160_and_192():
    for head_dim in (160, 192):
        for dtype in (torch.float16, torch.bfloat16):
            for causal in (False, True):
                qkv = randn(2, 97, 3, 3, head_dim, dtype=dtype, grad=True)
                wide = qkv.detach().double().requires_grad_()
                o, expected = flash_attn_qkvpacked_func(qkv, causal=causal), formula.attention(*wide.unbind(2), causal=causal)[0]
                agree(o, expected)
                grad_o = randn(*o.shape, dtype=dtype)
                found, wanted = torch.autograd.grad(o, qkv, grad_o)[0], torch.autograd.grad(expected, wide, grad_o.double())[0]
                agree(found, wanted, 0.02 if dtype == torch.float16 else 0.1)


def test_R105_a_head_dim_of_256():
    as_formula(lambda *x: flash_attn_func(*x, causal=True), [randn(1, 256, 2, 256, dtype=torch.bfloat16) for _ in range(3)], causal=True)


@pytest.mark.parametrize("head_dim", [8, 24, 40, 59, 72, 104, 111, 200, 248])
def test_R107_head_dims_that_are_no_multiple_of_32(head_dim):
    as_formula(flash_attn_func, [randn(1, 70, 2, head_dim, dtype=torch.float16) for _ in range(3)])


@pytest.mark.parametrize("dims", [(192, 128), (64, 256), (128, 192)], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_R108_values_narrower_and_wider_than_keys(dims, causal):
    rows = 1024 if DEVICE != "cpu" else 90
    inputs = [randn(1, rows, 2, dim, dtype=torch.bfloat16) for dim in (dims[0], *dims)]
    as_formula(lambda *x: flash_attn_func(*x, causal=causal), inputs, causal=causal)


def test_R148_lse_of_many_short_sequences_and_a_long_one_has_one_number_a_token():
    sizes = [3] * 500 + [900]
    total = sum(sizes)
    cu = torch.tensor([0, *sizes]).cumsum(0).int()
    q, k, v = (randn(total, 2, 32) for _ in range(3))
    _, lse, _ = flash_attn_varlen_func(q, k, v, cu, cu, 900, 900, causal=True, return_attn_probs=True)
    assert lse.shape == (2, total) and lse.dtype == torch.float32
