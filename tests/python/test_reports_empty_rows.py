"""Public reports (docs/user-reports.md) of rows without keys, of NaN and of extreme scores, through Python."""

import compat_formula as formula
import pytest
import tilewise
import tilewise.compat  # noqa: F401  (makes the modules importable)
import torch
from report_inputs import agree, as_formula, is_finite, lengths, ragged_formula, randn, seeded  # noqa: F401

import flash_attn_interface
from flash_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache

pytestmark = pytest.mark.usefixtures("seeded")
NAN, INF = float("nan"), float("inf")


def test_R021_gradients_of_causal_sequences_with_more_queries_than_keys():
    cu_q, cu_k = lengths(0, 76, 110, 256), lengths(0, 1, 2, 3)
    q, k, v = (randn(n, 1, 32, dtype=torch.float16).mul_(3).requires_grad_() for n in (256, 3, 3))
    o = flash_attn_varlen_func(q, k, v, cu_q, cu_k, 256, 3, causal=True)
    o.backward(torch.ones_like(o))
    assert is_finite([o, q.grad, k.grad, v.grad])
    without_keys = torch.ones(256, dtype=torch.bool)
    without_keys[[75, 109, 255]] = False
    assert not o[without_keys].any() and not q.grad.any()


def test_R022_one_query_and_one_key():
    torch.manual_seed(352)
    q, k, v = (randn(1, 1, 1, 16, dtype=torch.float16).mul_(3).requires_grad_() for _ in range(3))
    o = flash_attn_func(q, k, v)
    o.backward(torch.ones_like(o))
    assert not q.grad.any() and not k.grad.any() and bool((v.grad == 1).all())


def test_R024_one_row_sequences_with_an_empty_one_among_them():
    cu_q, cu_k = lengths(0, 1, 1, 2), lengths(0, 3, 3, 8)
    q, k, v = (randn(n, heads, 64, dtype=torch.bfloat16) for n, heads in ((2, 9), (8, 3), (8, 3)))
    o = flash_attn_varlen_func(q, k, v, cu_q, cu_k, 1, 5, softmax_scale=1.0, causal=True)
    agree(o, ragged_formula(q, k, v, cu_q, cu_k, scale=1.0, causal=True))


def test_R025_a_sequence_without_keys():
    cu_q, cu_k = lengths(0, 5, 8, 10), lengths(0, 4, 4, 11)
    q, k, v = (randn(n, 2, 64, dtype=torch.bfloat16) for n in (10, 11, 11))
    o, lse = flash_attn_interface.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 5, 7, return_attn_probs=True)
    agree(o, ragged_formula(q, k, v, cu_q, cu_k))
    assert not o[5:8].any() and bool((lse[:, 5:8] == -INF).all())


def test_R027_decode_of_an_empty_paged_cache():
    q = randn(16, 1, 16, 256, dtype=torch.bfloat16)
    pages = torch.empty(0, 64, 1, 256, dtype=torch.bfloat16)
    table, none = torch.empty(16, 0, dtype=torch.int32), torch.zeros(16, dtype=torch.int32)
    o, lse = flash_attn_with_kvcache(q, pages, pages, cache_seqlens=none, block_table=table, causal=True, return_softmax_lse=True)
    assert not o.any() and bool((lse == -INF).all())


def test_R028_lse_without_keys_merges_as_nothing():
    q, k, v = randn(1, 3, 2, 16), randn(1, 5, 2, 16), randn(1, 5, 2, 16)
    some = flash_attn_func(q, k, v, return_attn_probs=True)[:2]
    none = flash_attn_func(q, k[:, :0], v[:, :0], return_attn_probs=True)[:2]
    assert bool((none[1] == -INF).all())
    o, lse = tilewise.merge(*zip(some, none))
    agree(o, some[0], 1e-6)
    agree(lse, some[1], 1e-6)


@pytest.mark.parametrize("scores", [-5e4, -3e5])
def test_R030_rows_whose_scores_are_all_far_below_zero(scores):
    q, k, v = randn(1, 4, 2, 16), randn(1, 70, 2, 16), randn(1, 70, 2, 16)
    q[..., 0], k[..., 0] = 1.0, scores
    o, lse = tilewise.attention(q, k, v, scale=1.0, return_lse=True)
    expected = formula.attention(q, k, v, scale=1.0)
    # A score of -3e5 has a step of 1/32 in float32, and one step moves a probability by that share.
    agree(o, expected[0], 5e-2)
    assert (lse - expected[1]).abs().max() < 0.1


def test_R032_every_way_to_see_no_key_gives_one_answer():
    q, k, v = randn(2, 3, 2, 16), randn(2, 5, 2, 16), randn(2, 5, 2, 16)
    none = torch.zeros(2, dtype=torch.int32)
    ways = [
        tilewise.attention(q, k[:, :0], v[:, :0], return_lse=True),
        tilewise.attention(q, k, v, mask=torch.zeros(1, 1, 3, 5, dtype=torch.bool), return_lse=True),
        tilewise.attention(q, k, v, bias=torch.full((1, 1, 1, 5), -INF), return_lse=True),
        tilewise.attention(q, k, v, key_begin=torch.zeros(2, 3, dtype=torch.int32), key_end=torch.zeros(2, 3, dtype=torch.int32),
                           return_lse=True),
        tilewise.decode(q, k, v, cache_seqlens=none, return_lse=True),
    ]  # fmt: skip
    for o, lse in ways:
        assert not o.any() and bool((lse == -INF).all())


def test_R033_strongly_negative_scores_behind_a_causal_mask():
    q, k, v = (randn(1, n, heads, 64, dtype=torch.bfloat16) for n, heads in ((88, 14), (448, 2), (448, 2)))
    q[..., 0], k[..., 0] = 1.0, -120.0 * 8
    o = flash_attn_interface.flash_attn_func(q, k, v, causal=True)
    agree(o, formula.attention(q, k, v, causal=True)[0])
    assert bool(o.any(1).any(-1).all())


def test_R034_nan_past_the_used_keys():
    used = lengths(32, 64, 96, 48)
    q, k, v = randn(4, 8, 64, dtype=torch.bfloat16), *(randn(4 * 128, 8, 64, dtype=torch.bfloat16) for _ in range(2))
    for n, length in enumerate(used.tolist()):
        k[n * 128 + length : (n + 1) * 128] = NAN
        v[n * 128 + length : (n + 1) * 128] = NAN
    cu_q, cu_k = torch.arange(5, dtype=torch.int32), torch.arange(5, dtype=torch.int32) * 128
    o = flash_attn_interface.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 1, 128, seqused_k=used)
    for n, length in enumerate(used.tolist()):
        own = slice(n * 128, n * 128 + length)
        agree(o[n], formula.attention(q[None, n : n + 1], k[None, own], v[None, own])[0][0, 0])


def test_R036_rows_that_a_boolean_mask_hides():
    q, k, v = (randn(1, 8, 1, 8) for _ in range(3))
    mask = torch.zeros(1, 1, 8, 8, dtype=torch.bool)
    mask[:, :, :4, :4] = True
    o, lse = tilewise.attention(q, k, v, mask=mask, return_lse=True)
    assert not o[:, 4:].any() and bool((lse[:, :, 4:] == -INF).all())
    agree(o[:, :4], formula.attention(q[:, :4], k[:, :4], v[:, :4])[0])


def test_R038_nan_in_a_key_that_the_mask_hides():
    q, k, v = (randn(1, 2, 1, 4) for _ in range(3))
    mask = torch.tensor([[True, False], [True, False]])[None, None]
    k[0, 1, 0, 0] = NAN
    agree(tilewise.attention(q, k, v, mask=mask), v[:, :1].expand(1, 2, 1, 4), 1e-6)


def test_R039_rows_whose_first_blocks_of_keys_are_hidden():
    q, k, v = (randn(1, 600, 1, 2) for _ in range(3))
    i, j = torch.arange(600)[:, None], torch.arange(600)[None]
    mask = (j <= i) & (j > i - 10)
    o = tilewise.attention(q, k, v, mask=mask[None, None])
    agree(o, formula.attention(q, k, v, causal=True, window=(9, 0))[0])


def test_R041_nan_in_a_visible_input():
    q, k, v = (randn(2, 16, 4, 8) for _ in range(3))
    assert bool(tilewise.attention(q + NAN, k, v).isnan().all())
    q[0, 3] = NAN
    o, lse = tilewise.attention(q, k, v, return_lse=True)
    seen = torch.zeros(2, 16, 4, dtype=torch.bool)
    seen[0, 3] = True
    assert torch.equal(o.isnan().all(-1), seen) and torch.equal(lse.isnan(), seen.transpose(1, 2))


def test_R042_one_key_with_huge_elements():
    x = torch.full((1, 1, 1, 64), 133120.0, dtype=torch.bfloat16)
    assert torch.equal(flash_attn_func(x, x, x), x)


@pytest.mark.parametrize("seqlen", [640, 704, 768, 64])
def test_R043_backward_with_a_very_negative_lse(seqlen):
    q, k, v = (randn(1, seqlen, 1, 64, dtype=torch.bfloat16) for _ in range(3))
    for x in (q, k):
        x.mul_(0.1)
    q[..., 0], k[..., 0] = 1.0, -120.0 * 8
    mask = torch.ones(seqlen, seqlen, dtype=torch.bool).tril()[None, None]
    inputs = [x.detach().requires_grad_() for x in (q, k, v)]
    wide = [x.detach().double().requires_grad_() for x in inputs]
    o, expected = tilewise.attention(*inputs, mask=mask), formula.attention(*wide, causal=True)[0]
    agree(o, expected)
    grad_o = torch.randn(o.shape).to(o.dtype)
    found, wanted = torch.autograd.grad(o, inputs, grad_o), torch.autograd.grad(expected, wide, grad_o.double())
    # The first column of grad_q is 0: what is left there is the rounding of products with 120.
    assert found[0][..., 0].abs().max() < 120 * 0.03
    agree(found[0][..., 1:], wanted[0][..., 1:])
    agree(found[1], wanted[1])
    agree(found[2], wanted[2])


def test_R045_backward_of_two_rows_without_a_padding_mask():
    as_formula(flash_attn_func, [randn(1, 2, 4, 64, dtype=torch.bfloat16) for _ in range(3)])
