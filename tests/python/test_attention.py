"""`attention` and `attention_varlen` on NumPy arrays and torch tensors against the formula."""

import numpy as np
import pytest
import reference
import tilewise
import torch

OPTIONS = {
    "plain": {},
    "causal": {"causal": True},
    "top_left": {"causal": True, "diagonal": "top_left"},
    "window": {"window": (5, 3)},
    "left_window": {"window": (5, -1)},
    "causal_window": {"window": (7, 0), "causal": True},
    "chunk": {"chunk": 16},
    "block": {"block": 16},
    "prefix": {"causal": True, "prefix": 40},
    "softcap": {"softcap": 3.0},
    "scale": {"scale": 0.5},
    "no_scale": {"scale": 0.0},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("shape", [{}, {"seqlen_q": 65, "seqlen_k": 33}, {"seqlen_q": 1, "heads_kv": 4}], ids=str)
def test_formula(rng, options, shape):
    q, k, v = reference.tensors(rng, **shape)
    o, lse = tilewise.attention(q, k, v, return_lse=True, **options)
    expected_o, expected_lse = reference.attention(q, k, v, **options)
    assert o.dtype == np.float32 and lse.dtype == np.float32
    np.testing.assert_allclose(o, expected_o, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(lse, expected_lse, rtol=1e-5, atol=1e-5)


def test_scores(rng):
    q, k, v = reference.tensors(rng)
    options = {
        "alibi_slopes": rng.random(4).astype(np.float32),
        "bias": rng.standard_normal((1, 4, 33, 65)).astype(np.float32),
        "mask": rng.random((2, 1, 33, 65)) < 0.7,
        "sink": rng.standard_normal(4).astype(np.float32),
    }
    for names in (["alibi_slopes"], ["bias"], ["mask"], ["sink"], list(options)):
        chosen = {name: options[name] for name in names}
        o, lse = tilewise.attention(q, k, v, return_lse=True, **chosen)
        expected_o, expected_lse = reference.attention(q, k, v, **chosen)
        np.testing.assert_allclose(o, expected_o, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(lse, expected_lse, rtol=1e-5, atol=1e-5)


def test_bit_mask(rng):
    q, k, v = reference.tensors(rng)
    mask = rng.random((2, 4, 33, 65)) < 0.5
    bits = np.packbits(mask, axis=-1, bitorder="little")
    assert np.array_equal(tilewise.attention(q, k, v, mask=bits), tilewise.attention(q, k, v, mask=mask))


def test_document_mask(rng):
    q, k, v = reference.tensors(rng, batch=1, seqlen_q=65)
    begin = np.repeat(np.array([[0, 20, 50]], np.int32), [20, 30, 15], axis=1)
    end = np.repeat(np.array([[20, 50, 65]], np.int32), [20, 30, 15], axis=1)
    j = np.arange(65)
    mask = (j >= begin[..., None]) & (j < end[..., None])
    o = tilewise.attention(q, k, v, key_begin=begin, key_end=end, causal=True)
    np.testing.assert_allclose(o, reference.attention(q, k, v, mask=mask[:, None], causal=True)[0], rtol=1e-5, atol=1e-5)


def test_row_without_keys(rng):
    q, k, v = reference.tensors(rng, seqlen_q=65, seqlen_k=33)
    o, lse = tilewise.attention(q, k, v, causal=True, return_lse=True)
    assert not o[:, :32].any() and np.isneginf(lse[:, :, :32]).all()
    assert np.isfinite(lse[:, :, 32:]).all()


@pytest.mark.parametrize("empty", [{"batch": 0}, {"seqlen_q": 0}, {"seqlen_k": 0}], ids=str)
def test_empty(rng, empty):
    q, k, v = reference.tensors(rng, **empty)
    o, lse = tilewise.attention(q, k, v, return_lse=True)
    assert o.shape == (q.shape[0], q.shape[1], 4, 40) and not o.any()
    assert np.isneginf(lse).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_torch_types(rng, dtype):
    q, k, v = (torch.from_numpy(x).to(dtype) for x in reference.tensors(rng))
    o, lse = tilewise.attention(q, k, v, causal=True, scale=0.25, return_lse=True)
    assert o.dtype == dtype and o.shape == (2, 33, 4, 40)
    assert lse.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    expected, expected_lse = reference.attention(*(x.double().numpy() for x in (q, k, v)), causal=True, scale=0.25)
    error = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}[dtype]
    np.testing.assert_allclose(o.double().numpy(), expected, rtol=error, atol=error)
    np.testing.assert_allclose(lse.double().numpy(), expected_lse, rtol=max(error / 100, 1e-12), atol=max(error / 100, 1e-5))


def test_strides(rng):
    """Views of any strides, and the output in the order of q's axes."""
    q, k, v = (torch.from_numpy(x) for x in reference.tensors(rng, head_dim=40))
    expected = tilewise.attention(q, k, v)
    by_heads = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    o = tilewise.attention(*by_heads)
    assert torch.equal(o, expected) and o.transpose(1, 2).is_contiguous()
    narrow = tilewise.attention(by_heads[0], by_heads[1], by_heads[2][..., :24])
    assert torch.equal(narrow, expected[..., :24]) and narrow.transpose(1, 2).is_contiguous()
    one_head = [x[:, :, :1].expand(-1, -1, 2, -1) for x in (k, v)]
    assert torch.equal(tilewise.attention(q, *one_head), tilewise.attention(q, *(x.contiguous() for x in one_head)))
    inner = [x.transpose(-1, -2).contiguous().transpose(-1, -2) for x in (q, k, v)]
    torch.testing.assert_close(tilewise.attention(*inner), expected)


def test_out(rng):
    q, k, v = reference.tensors(rng)
    out = np.full((2, 33, 4, 40), np.nan, np.float32)
    assert tilewise.attention(q, k, v, out=out) is out
    assert np.array_equal(out, tilewise.attention(q, k, v))


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_ragged(rng, kind):
    lengths_q, lengths_k = [5, 0, 33, 1], [9, 4, 0, 65]
    q, k, v = reference.tensors(rng, batch=1, seqlen_q=sum(lengths_q), seqlen_k=sum(lengths_k))
    at_q, at_k = (np.concatenate([[0], np.cumsum(x)]).astype(np.int32) for x in (lengths_q, lengths_k))
    for bounds in ({}, {"max_seqlen_q": 33, "max_seqlen_k": 65}, {"max_seqlen_q": np.int64(40), "max_seqlen_k": torch.tensor(70)}):
        o, lse = tilewise.attention_varlen(
            *(kind(x[0]) for x in (q, k, v)), kind(at_q), kind(at_k), causal=True, return_lse=True, **bounds
        )
        assert tuple(o.shape) == (39, 4, 40) and tuple(lse.shape) == (4, 39)
        for n in range(4):
            rows, keys = slice(at_q[n], at_q[n + 1]), slice(at_k[n], at_k[n + 1])
            expected, expected_lse = reference.attention(q[:, rows], k[:, keys], v[:, keys], causal=True)
            np.testing.assert_allclose(np.asarray(o)[rows], expected[0], rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(np.asarray(lse)[:, rows], expected_lse[0], rtol=1e-5, atol=1e-5)


def test_seqused_and_pages(rng):
    """Rows past seqused_q are 0 in a new output; a paged cache is what its pages hold."""
    q, k, v = reference.tensors(rng, seqlen_q=8, seqlen_k=64)
    used_q, used_k = np.array([8, 3], np.int32), np.array([64, 17], np.int32)
    o = tilewise.attention(q, k, v, seqused_q=used_q, seqused_k=used_k)
    np.testing.assert_allclose(o[1:, :3], reference.attention(q[1:, :3], k[1:, :17], v[1:, :17])[0], rtol=1e-5, atol=1e-5)
    assert not o[1, 3:].any()
    pages = np.array([[3, 0, 7, 1], [2, 5, 4, 6]], np.int32)
    k_pages, v_pages = (np.full((8, 16, *x.shape[2:]), np.nan, np.float32) for x in (k, v))
    for n in range(2):
        k_pages[pages[n]], v_pages[pages[n]] = (x[n].reshape(4, 16, *x.shape[2:]) for x in (k, v))
    paged = tilewise.attention(q, k_pages, v_pages, page_table=pages, seqused_q=used_q, seqused_k=used_k)
    np.testing.assert_allclose(paged, o, rtol=1e-6, atol=1e-6)


def test_dropout(rng):
    q, k, v = (torch.from_numpy(x) for x in reference.tensors(rng, head_dim_v=8))
    repeat = [tilewise.attention(q, k, v, dropout_p=0.3, dropout_seed=5) for _ in range(2)]
    assert torch.equal(*repeat)
    assert np.array_equal(tilewise.attention(*(x.numpy() for x in (q, k, v)), dropout_p=0.3, dropout_seed=5), repeat[0])
    torch.manual_seed(1)
    drawn = [tilewise.attention(q, k, v, dropout_p=0.3) for _ in range(2)]
    torch.manual_seed(1)
    assert not torch.equal(*drawn) and torch.equal(drawn[0], tilewise.attention(q, k, v, dropout_p=0.3))
    kept = tilewise.attention(q[:1], k[:1], torch.ones_like(v[:1]), dropout_p=0.5, dropout_seed=9)
    assert abs(float(kept.mean()) - 1) < 0.1


def test_batch_invariant(rng):
    q, k, v = reference.tensors(rng, batch=3)
    o = tilewise.attention(q, k, v, batch_invariant=True)
    assert np.array_equal(o[1:2], tilewise.attention(q[1:2], k[1:2], v[1:2], batch_invariant=True))
