"""Public reports (docs/user-reports.md) of masks, windows and ALiBi, through Python."""

import compat_formula as formula
import pytest
import tilewise
import tilewise.compat  # noqa: F401  (makes the modules importable)
import torch
from report_inputs import agree, as_formula, full, lengths, on_cpu, on_gpu, parts, ragged_formula, randn, seeded  # noqa: F401

import flash_attn_interface
from flash_attn import bert_padding, flash_attn_func, flash_attn_varlen_func, flash_attn_varlen_kvpacked_func, flash_attn_with_kvcache

pytestmark = pytest.mark.usefixtures("seeded")
INF = float("inf")


def unpad(x, mask):
    """x without padding, where its rows were, cu_seqlens, and the longest."""
    return bert_padding.unpad_input(x, mask)[:4]


def test_R046_causal_rows_before_the_first_key():
    q, k, v = (randn(1, n, 2, 64) for n in full((2048, 1024, 1024), (256, 128, 128)))
    half = q.shape[1] // 2
    o, lse, _ = flash_attn_func(q, k, v, causal=True, return_attn_probs=True)
    assert not o[:, :half].any() and bool((lse[:, :, :half] == -INF).all()) and bool(o[:, half:].any(-1).all())
    o = tilewise.attention(q, k, v, causal=True, diagonal="top_left")
    agree(o[:, :half], formula.attention(q[:, :half], k, v, causal=True)[0])
    agree(o[:, half:], formula.attention(q[:, half:], k, v)[0])


@pytest.mark.parametrize(
    "rows, keys, top_left, bottom_right",
    [(2, 5, "10000 11000", "11110 11111"), (5, 2, "10 11 11 11 11", "00 00 00 10 11")],
)
def test_R048_both_alignments_of_the_causal_diagonal(rows, keys, top_left, bottom_right):
    q, k, v = torch.zeros(1, rows, 1, keys), torch.zeros(1, keys, 1, keys), torch.eye(keys)[None, :, None]
    for diagonal, picture in (("top_left", top_left), ("bottom_right", bottom_right)):
        seen = tilewise.attention(q, k, v, causal=True, diagonal=diagonal)[0, :, 0] > 0
        assert " ".join("".join(str(int(x)) for x in row) for row in seen) == picture
    assert torch.equal(flash_attn_func(q, k, v, causal=True)[0, :, 0] > 0, seen)


def test_R049_packed_causal_equals_an_explicit_causal_and_padding_mask():
    q, k, v = (randn(2, n, 4, 32) for n in (12, 20, 20))
    mask = torch.arange(20) < torch.tensor([20, 13])[:, None]
    (k_flat, _, cu_k, longest), (v_flat, *_) = unpad(k, mask), unpad(v, mask)
    cu_q = lengths(0, 12, 24)
    kv = torch.stack((k_flat, v_flat), 1)
    o = flash_attn_varlen_kvpacked_func(q.flatten(0, 1), kv, cu_q, cu_k, 12, longest, causal=True).view(2, 12, 4, 32)
    for n, length in enumerate((20, 13)):
        agree(o[n : n + 1], formula.attention(q[n : n + 1], k[n : n + 1, :length], v[n : n + 1, :length], causal=True)[0])


def test_R050_a_causal_window_of_w_keys():
    q, v = torch.zeros(1, 9, 1, 9), torch.eye(9)[None, :, None]
    for size in (1, 4):
        seen = flash_attn_func(q, q, v, causal=True, window_size=(size - 1, 0))[0, :, 0] > 0
        assert seen.sum(-1).tolist() == [min(i + 1, size) for i in range(9)]


def test_R052_a_window_side_below_minus_one():
    """A negative side is unlimited for flash_attn, and programs rely on it; our own functions refuse it."""
    q, k, v = (randn(1, 40, 2, 16) for _ in range(3))
    assert torch.equal(flash_attn_func(q, k, v, causal=True, window_size=(-1, -3)), flash_attn_func(q, k, v, causal=True))
    with pytest.raises(ValueError, match="window.*-3"):
        tilewise.attention(q, k, v, window=(-1, -3))


@pytest.mark.parametrize("head_dim", [64, 128])
def test_R054_sliding_windows(head_dim):
    inputs = [randn(1, 200, 2, head_dim) for _ in range(3)]
    for window in ((64, 0), (0, 64), (63, 65), (127, 127)):
        as_formula(lambda *x: flash_attn_interface.flash_attn_func(*x, window_size=window), inputs, window=window)


def test_R055_alibi_packed_and_in_a_decode():
    slopes = 2.0 ** -torch.arange(1, 5).float()
    q, k, v = randn(2, 3, 4, 32), randn(2, 11, 4, 32), randn(2, 11, 4, 32)
    packed = flash_attn_varlen_kvpacked_func(
        q.flatten(0, 1), torch.stack((k, v), 2).flatten(0, 1), lengths(0, 3, 6), lengths(0, 11, 22), 3, 11, alibi_slopes=slopes
    )
    caches = [torch.nn.functional.pad(x, (0, 0, 0, 0, 0, 9)) for x in (k, v)]
    decoded = flash_attn_with_kvcache(q, *caches, cache_seqlens=lengths(11, 11), alibi_slopes=slopes)
    expected = formula.attention(q, k, v, slopes=slopes)[0]
    agree(packed.view(2, 3, 4, 32), expected)
    agree(decoded, expected)


@on_cpu
@pytest.mark.parametrize("keys", [1, 2, 10, 17])
def test_R057_lengths_that_reach_past_the_keys(keys):
    q, k, v = randn(10, 4, 8), randn(keys, 4, 8), randn(keys, 4, 8)
    with pytest.raises(ValueError, match=f"cu_seqlens_k.*20.*{keys} rows"):
        flash_attn_varlen_func(q, k, v, lengths(0, 10), lengths(0, 20), 10, 20)


@pytest.mark.parametrize("batch", [1, 3])
def test_R058_a_key_padding_mask_in_cross_attention_drops_only_keys(batch):
    q, k, v = randn(batch, 17, 2, 32), randn(batch, 9, 2, 32), randn(batch, 9, 2, 32)
    valid = torch.tensor([9, 4, 1])[:batch]
    mask = torch.arange(9) < valid[:, None]
    dense = tilewise.attention(q, k, v, mask=mask[:, None, None])
    (k_flat, _, cu_k, longest), (v_flat, *_) = unpad(k, mask), unpad(v, mask)
    cu_q = torch.arange(batch + 1, dtype=torch.int32) * 17
    flat = flash_attn_varlen_func(q.flatten(0, 1), k_flat, v_flat, cu_q, cu_k, 17, longest).view(q.shape)
    for n, count in enumerate(valid.tolist()):
        expected = formula.attention(q[n : n + 1], k[n : n + 1, :count], v[n : n + 1, :count])[0]
        agree(dense[n : n + 1], expected)
        agree(flat[n : n + 1], expected)


def test_R059_causal_stays_on_beside_left_padding():
    q, k, v = (randn(2, 12, 4, 16) for _ in range(3))
    mask = torch.arange(12) >= torch.tensor([0, 5])[:, None]
    flat = [unpad(x, mask) for x in (q, k, v)]
    _, rows, cu, longest = flat[0]
    o = bert_padding.pad_input(
        flash_attn_varlen_func(*(x[0] for x in flat), cu, cu, longest, longest, causal=True), rows, 2, 12
    )
    agree(o[:1], formula.attention(q[:1], k[:1], v[:1], causal=True)[0])
    agree(o[1:, 5:], formula.attention(q[1:, 5:], k[1:, 5:], v[1:, 5:], causal=True)[0])
    assert not o[1, :5].any()
    padded = tilewise.attention(q, k, v, causal=True, mask=mask[:, None, None])
    agree(padded[1:, 5:], o[1:, 5:])


def test_R061_rows_past_the_last_sequence():
    q, k, v = randn(10, 2, 16), randn(10, 2, 16), randn(10, 2, 16)
    cu = lengths(0, 3, 7)
    out = torch.full_like(q, 5.0)
    o = tilewise.attention_varlen(q, k, v, cu, cu, out=out)
    assert o is out and bool((out[7:] == 5.0).all())
    agree(o[:7], ragged_formula(q, k, v, cu, cu))
    with_gradients = [x.clone().requires_grad_() for x in (q, k, v)]
    flash_attn_varlen_func(*with_gradients, cu, cu, 4, 4)[:7].sum().backward()
    assert not any(x.grad[7:].any() for x in with_gradients[1:])


@on_cpu
def test_R062_cu_seqlens_of_three_times_the_tokens():
    q, k, v = (randn(256, 16, 256, dtype=torch.bfloat16) for _ in range(3))
    cu = lengths(0, 256, 512, 768)
    with pytest.raises(ValueError, match="cu_seqlens_q.*768"):
        flash_attn_varlen_func(q, k, v, cu, cu, 256, 256)


def test_R063_packing_in_a_batch_of_several_rows():
    """Documents end where positions start anew, in each row of the batch elsewhere."""
    positions = torch.tensor([[0, 1, 2, 0, 1, 0, 1, 2], [0, 1, 2, 3, 4, 5, 0, 1]])
    inputs = [randn(2, 8, 2, 16) for _ in range(3)]
    starts = torch.nonzero(positions.flatten() == 0)[:, 0]
    cu = torch.cat((starts, torch.tensor([16]))).int()
    o = flash_attn_varlen_func(*(x.flatten(0, 1) for x in inputs), cu, cu, 6, 6, causal=True).view(2, 8, 2, 16)
    first = torch.arange(8) - positions
    same = first[:, :, None] == first[:, None]
    masked = tilewise.attention(*inputs, causal=True, mask=same[:, None])
    intervals = tilewise.attention(*inputs, causal=True, key_begin=first.int(), key_end=torch.full((2, 8), 8, dtype=torch.int32))
    for n in range(2):
        for piece in parts(torch.arange(8), [torch.tensor([0, 3, 5, 8]), torch.tensor([0, 6, 8])][n]):
            expected = formula.attention(*(x[n : n + 1, piece] for x in inputs), causal=True)[0]
            for found in (o, masked, intervals):
                agree(found[n : n + 1, piece], expected)


def test_R065_two_ranks_with_an_odd_number_of_tokens():
    """Keys of two ranks, four and three of seven, merged: the last one counts."""
    q, k, v = (randn(1, 7, 1, 8, dtype=torch.float16) for _ in range(3))
    halves = [tilewise.attention(q, k[:, a:b], v[:, a:b], return_lse=True) for a, b in ((0, 4), (4, 7))]
    agree(tilewise.merge(*zip(*halves))[0], formula.attention(q, k, v)[0])


def test_R067_nothing_is_read_past_the_last_length():
    """Lengths that lie in a longer tensor of nonsense, for many uneven sequences."""
    sizes = torch.randint(0, 90, (37,))
    cu = torch.full((64,), 2**30, dtype=torch.int32)
    cu[:38] = torch.nn.functional.pad(sizes.cumsum(0), (1, 0))
    total = int(sizes.sum())
    q, k, v = (randn(total, 2, 32) for _ in range(3))
    o = flash_attn_varlen_func(q, k, v, cu[:38], cu[:38], 90, 90, causal=True)
    agree(o, ragged_formula(q, k, v, cu[:38], cu[:38], causal=True))


def test_R068_backward_with_used_lengths():
    cu, used = lengths(0, 6, 14), lengths(4, 5)
    inputs = [randn(14, 2, 32, grad=True) for _ in range(3)]
    o = flash_attn_interface.flash_attn_varlen_func(*inputs, cu, cu, 8, 8, used, used, causal=True)
    o.sin().sum().backward()
    wide = [x.detach().double().requires_grad_() for x in inputs]
    rows = torch.cat([torch.arange(a, a + n) for a, n in ((0, 4), (6, 5))])
    expected = ragged_formula(*(x[rows] for x in wide), lengths(0, 4, 9), lengths(0, 4, 9), causal=True)
    expected.sin().sum().backward()
    agree(o[rows], expected)
    for x, y in zip(inputs, wide):
        agree(x.grad, y.grad)


def test_R070_max_seqlen_may_be_a_tensor_without_axes():
    q, k, v = (randn(9, 2, 16) for _ in range(3))
    cu = lengths(0, 4, 9)

    def call(longest):
        return flash_attn_varlen_func(q, k, v, cu, cu, longest, longest, causal=True)

    expected = ragged_formula(q, k, v, cu, cu, causal=True)
    for longest in (5, 9, torch.tensor(5), torch.tensor(9, dtype=torch.int32)):
        agree(call(longest), expected)
    agree(torch.compile(call, fullgraph=True, backend="aot_eager")(5), expected)


@on_gpu
def test_R071_lengths_on_the_wrong_device():
    q = randn(9, 2, 16)
    with pytest.raises(ValueError, match="cu_seqlens_q"):
        flash_attn_varlen_func(q, q, q, *(torch.tensor([0, 4, 9], dtype=torch.int32, device="cpu"),) * 2, 5, 5)
