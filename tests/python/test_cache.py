"""`decode` and `append` against attention over what the cache should hold."""

import numpy as np
import pytest
import reference
import tilewise
import torch


def cache(rng, rows=3, seqlen=32, heads=2, dim=16):
    return [np.full((rows, seqlen, heads, dim), np.nan, np.float32) for _ in range(2)]


def fill(rng, arrays, lengths):
    for array in arrays:
        for row, length in enumerate(lengths):
            array[row, :length] = rng.standard_normal(array[row, :length].shape)


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_decode(rng, kind):
    lengths = np.array([5, 0, 28], np.int32)
    arrays = cache(rng)
    fill(rng, arrays, lengths)
    q = rng.standard_normal((3, 4, 4, 16)).astype(np.float32)
    new = [rng.standard_normal((3, 4, 2, 16)).astype(np.float32) for _ in range(2)]
    expected = [a.copy() for a in arrays]
    for row, length in enumerate(lengths):
        for array, rows in zip(expected, new):
            array[row, length : length + 4] = rows[row]
    before = lengths.copy()
    o, lse = tilewise.decode(
        kind(q), *(kind(a) for a in arrays), *(kind(n) for n in new), cache_seqlens=kind(lengths), causal=True, return_lse=True
    )
    assert np.array_equal(lengths, before)
    assert all(np.array_equal(a, e, equal_nan=True) for a, e in zip(arrays, expected))
    for row, length in enumerate(lengths):
        keys = [a[row : row + 1, : length + 4] for a in expected]
        o_row, lse_row = reference.attention(q[row : row + 1], *keys, causal=True)
        np.testing.assert_allclose(np.asarray(o)[row], o_row[0], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(np.asarray(lse)[row], lse_row[0], rtol=1e-5, atol=1e-5)


def test_cache_rows_and_splits(rng):
    arrays = cache(rng)
    fill(rng, arrays, [32, 32, 32])
    q = rng.standard_normal((2, 1, 4, 16)).astype(np.float32)
    lengths, rows = np.array([20, 7], np.int32), np.array([2, 0], np.int32)
    o = tilewise.decode(q, *arrays, cache_seqlens=lengths, cache_batch_idx=rows, num_splits=3)
    for n in range(2):
        keys = [a[rows[n] : rows[n] + 1, : lengths[n]] for a in arrays]
        np.testing.assert_allclose(o[n], reference.attention(q[n : n + 1], *keys)[0][0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary(rng, interleaved):
    angles = rng.random((40, 8))
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    k, v = cache(rng, rows=1)
    new = rng.standard_normal((1, 3, 2, 16)).astype(np.float32)
    lengths = np.array([4], np.int32)
    tilewise.append(k, v, new, new, cache_seqlens=lengths, rotary_cos=cos, rotary_sin=sin, rotary_interleaved=interleaved)
    first, second = (new[..., 0::2], new[..., 1::2]) if interleaved else (new[..., :8], new[..., 8:])
    c, s = cos[4:7, None], sin[4:7, None]
    rotated = [first * c - second * s, first * s + second * c]
    expected = np.stack(rotated, -1).reshape(new.shape) if interleaved else np.concatenate(rotated, -1)
    np.testing.assert_allclose(k[:, 4:7], expected, rtol=1e-6, atol=1e-6)
    assert np.array_equal(v[:, 4:7], new) and np.isnan(k[:, :4]).all() and np.isnan(k[:, 7:]).all()


def test_refusals_leave_the_cache(rng):
    k, v = cache(rng)
    new = np.ones((3, 4, 2, 16), np.float32)
    with pytest.raises(ValueError, match="cache_seqlens"):
        tilewise.append(k, v, new, new, cache_seqlens=np.array([0, 30, 0], np.int32))
    assert np.isnan(k).all() and np.isnan(v).all()
