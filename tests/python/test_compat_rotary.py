"""flash_attn.layers.rotary against a rotation pair by pair in float64, with gradients."""

import compat_formula as formula
import pytest
import tilewise.compat  # noqa: F401  (makes the modules importable)
import torch
from compat_formula import close

from flash_attn.layers import rotary
from flash_attn.ops.triton.rotary import apply_rotary

BOTH = pytest.mark.parametrize("interleaved", [False, True])


@pytest.fixture(autouse=True)
def seeded():
    with formula.start(31):
        yield


def table(rows=40, width=8):
    angles = torch.rand(rows, width // 2) * 6
    return angles.cos(), angles.sin()


def expected(x, cos, sin, offsets, interleaved):
    rows = torch.arange(x.shape[1])
    return torch.stack([formula.rotate(x[n], cos, sin, rows + int(offsets[n]), interleaved) for n in range(len(x))])


@BOTH
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("offset", [0, 7, torch.tensor([3, 9])], ids=str)
@pytest.mark.parametrize("head_dim", [8, 12])
def test_dense(interleaved, inplace, offset, head_dim):
    cos, sin = table()
    x = torch.randn(2, 11, 3, head_dim, requires_grad=True)
    offset = offset.to(x.device) if torch.is_tensor(offset) else offset
    given = x.clone()
    out = rotary.apply_rotary_emb(given, cos, sin, interleaved, inplace, offset)
    assert (out.data_ptr() == given.data_ptr()) == inplace
    offsets = offset if torch.is_tensor(offset) else [offset, offset]
    close(out, expected(x.detach(), cos, sin, offsets, interleaved), 1e-6)
    assert torch.equal(out[..., 8:], x[..., 8:])
    weight = torch.randn_like(out)
    (gradient,) = torch.autograd.grad((out * weight).sum(), x)
    close(gradient, expected(weight, cos, -sin, offsets, interleaved), 1e-6)


@BOTH
@pytest.mark.parametrize("offset", [2, torch.tensor([3, 0, 9], dtype=torch.int32)], ids=str)
def test_ragged(interleaved, offset):
    cos, sin = table()
    x, cu = formula.pack([torch.randn(n, 3, 12) for n in (5, 0, 9)])
    offset = offset.to(x.device) if torch.is_tensor(offset) else offset
    out = rotary.apply_rotary_emb(x, cos, sin, interleaved, False, offset, cu, 9)
    for n in range(3):
        part = x[cu[n] : cu[n + 1]]
        first = offset[n] if torch.is_tensor(offset) else offset
        close(out[cu[n] : cu[n + 1]], formula.rotate(part, cos, sin, torch.arange(len(part)) + int(first), interleaved), 1e-6)


@BOTH
def test_plain_form_and_half(interleaved):
    cos, sin = table()
    x = torch.randn(2, 11, 3, 12, requires_grad=True)
    close(rotary.apply_rotary_emb_torch(x, cos[:11], sin[:11], interleaved), rotary.apply_rotary_emb(x, cos, sin, interleaved), 1e-6)
    by_row = cos[:11].expand(2, -1, -1), sin[:11].expand(2, -1, -1)
    close(rotary.apply_rotary_emb_torch(x, *by_row, interleaved), rotary.apply_rotary_emb(x, cos, sin, interleaved), 1e-6)
    quarter = torch.zeros(11, 6), torch.ones(11, 6)
    close(rotary.rotate_half(x, interleaved), rotary.apply_rotary_emb(x, *quarter, interleaved), 1e-6)


@BOTH
def test_packed_in_place(interleaved):
    cos, sin = table()
    start = torch.randn(2, 11, 3, 4, 12, requires_grad=True)
    qkv = start.clone()
    out = rotary.apply_rotary_emb_qkv_(qkv, cos, sin, interleaved=interleaved, seqlen_offsets=2)
    assert out.data_ptr() == qkv.data_ptr()
    q, k, v = start.unbind(2)
    parts = [rotary.apply_rotary_emb(x, cos, sin, interleaved, False, 2) for x in (q, k)]
    assert torch.equal(out, torch.stack((*parts, v), 2))
    weight = torch.randn_like(out)
    actual = torch.autograd.grad((out * weight).sum(), start)[0]
    assert torch.equal(actual, torch.autograd.grad((torch.stack((*parts, v), 2) * weight).sum(), start)[0])
    grouped = torch.randn(2, 11, 4 + 2 * 2, 12)
    out = rotary.apply_rotary_emb_qkv_(grouped.clone(), cos, sin, None, None, interleaved, 0, 4)
    assert torch.equal(out[:, :, :6], rotary.apply_rotary_emb(grouped[:, :, :6], cos, sin, interleaved))
    assert torch.equal(out[:, :, 6:], grouped[:, :, 6:])
    kv = start.detach()[:, :, 1:].clone().requires_grad_()
    out = rotary.apply_rotary_emb_kv_(kv.clone(), cos, sin, interleaved, 2)
    assert torch.equal(out[:, :, 0], parts[1]) and torch.equal(out[:, :, 1], v)
    (gradient,) = torch.autograd.grad((out * weight[:, :, 1:]).sum(), kv)
    assert torch.equal(gradient, actual[:, :, 1:])


@BOTH
def test_conjugate_undoes(interleaved):
    cos, sin = table()
    x = torch.randn(2, 11, 3, 12)
    there = apply_rotary(x, cos, sin, 4, interleaved=interleaved)
    close(apply_rotary(there, cos, sin, 4, interleaved=interleaved, conjugate=True), x, 1e-6)


def test_half_precision_is_rounded_once():
    cos, sin = table()
    x = torch.randn(2, 11, 3, 8).half()
    assert torch.equal(rotary.apply_rotary_emb(x, cos, sin), rotary.apply_rotary_emb(x.float(), cos, sin).half())


def test_past_the_table_nothing_turns():
    cos, sin = table(rows=6)
    x = torch.randn(2, 11, 3, 8)
    assert torch.equal(rotary.apply_rotary_emb(x, cos, sin)[:, 6:], x[:, 6:])


def test_refusals():
    cos, sin = table()
    for arguments, words in [
        ((torch.randn(3, 8), cos, sin), "x"),
        ((torch.randn(2, 3, 1, 6), cos, sin), "rotary_dim"),
        ((torch.randn(2, 3, 1, 8), cos, sin[:, :2]), "sin"),
        ((torch.randn(5, 1, 8), cos, sin, False, False, 0, torch.tensor([0, 5])), "max_seqlen"),
    ]:
        with pytest.raises(ValueError, match=words):
            rotary.apply_rotary_emb(*arguments)
    with pytest.raises(ValueError, match="num_heads_q"):
        rotary.apply_rotary_emb_qkv_(torch.randn(2, 3, 6, 8), cos, sin)


@BOTH
def test_module(interleaved):
    module = rotary.RotaryEmbedding(8, base=100.0, interleaved=interleaved)
    angles = torch.arange(20.0)[:, None] / 100.0 ** (torch.arange(0, 8, 2) / 8)
    cos, sin = angles.cos(), angles.sin()
    qkv = torch.randn(2, 11, 3, 4, 12)
    close(module(qkv.clone(), seqlen_offset=5), rotary.apply_rotary_emb_qkv_(qkv.clone(), cos, sin, None, None, interleaved, 5), 1e-6)
    q, kv = qkv[:, :, 0].clone(), qkv[:, :, 1:].clone()
    rotated, kept = module(q.clone(), kv.clone(), torch.tensor([0, 9]), max_seqlen=20)
    close(rotated, rotary.apply_rotary_emb(q, cos, sin, interleaved, False, torch.tensor([0, 9])), 1e-6)
    close(kept, rotary.apply_rotary_emb_kv_(kv.clone(), cos, sin, interleaved, torch.tensor([0, 9])), 1e-6)
    assert module(qkv.half()).dtype == torch.float16 and module._cos_cached.dtype == torch.float16
    assert not module.state_dict()
    with pytest.raises(ValueError, match="max_seqlen"):
        rotary.RotaryEmbedding(8)(q, kv, torch.tensor([0, 9]))


def test_scaled_module():
    """XPos: products of q at i and k at j depend on i - j alone, decayed by the distance."""
    module = rotary.RotaryEmbedding(8, scale_base=16)
    qkv = torch.ones(1, 30, 3, 1, 8)
    q, k, _ = module(qkv).double().unbind(2)
    s = torch.einsum("bihd,bjhd->bhij", q, k)[0, 0]
    for distance in (0, 5, 20):
        diagonal = s.diagonal(-distance)
        close(diagonal, diagonal[:1].expand_as(diagonal), 1e-4)
