"""Attention by its formula, in NumPy float64, one sequence at a time: what the package's results are compared with."""

import numpy as np


def visible(seqlen_q, seqlen_k, *, causal=False, window=None, diagonal="bottom_right", chunk=0, prefix=0, block=0):
    """bool (seqlen_q, seqlen_k): the positional masks, row by row and key by key."""
    i = np.arange(seqlen_q)[:, None] + (0 if diagonal == "top_left" else seqlen_k - seqlen_q)
    j = np.arange(seqlen_k)[None, :]
    seen = np.ones((seqlen_q, seqlen_k), bool)
    if causal:
        seen &= j <= i
    if window is not None:
        left, right = window
        seen &= (left < 0) | (j >= i - left)
        seen &= (right < 0) | (j <= i + right)
    if chunk:
        seen &= j // chunk == i // chunk
    if block:
        seen &= j < (i // block + 1) * block
    return seen | (j < prefix)


def attention(q, k, v, *, scale=None, softcap=0.0, alibi_slopes=None, bias=None, mask=None, sink=None, **positional):
    """q (b, sq, h, d), k (b, sk, hk, d), v (b, sk, hk, dv) -> o (b, sq, h, dv), lse (b, h, sq), both float64."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    seqlen_q, heads, head_dim = q.shape[1:]
    seqlen_k, groups = k.shape[1], heads // k.shape[2]
    k, v = np.repeat(k, groups, 2), np.repeat(v, groups, 2)
    s = np.einsum("bihd,bjhd->bhij", q, k) * (head_dim**-0.5 if scale is None else scale)
    if softcap:
        s = softcap * np.tanh(s / softcap)
    if alibi_slopes is not None:
        slopes = np.asarray(alibi_slopes, np.float64).reshape(-1, heads, 1, 1)
        s = s - slopes * np.abs(np.arange(seqlen_q)[:, None] + seqlen_k - seqlen_q - np.arange(seqlen_k))
    if bias is not None:
        s = s + np.asarray(bias, np.float64)
    seen = visible(seqlen_q, seqlen_k, **positional)
    s = np.where(seen if mask is None else seen & mask, s, -np.inf)
    extra = np.full((1, heads, 1), -np.inf) if sink is None else np.asarray(sink, np.float64).reshape(1, heads, 1)
    with np.errstate(divide="ignore"):
        top = np.maximum(s.max(-1, initial=-np.inf), extra)
        top = np.where(np.isfinite(top), top, 0.0)
        lse = np.log(np.exp(s - top[..., None]).sum(-1) + np.exp(extra - top)) + top
    p = np.exp(s - np.where(np.isfinite(lse), lse, 0.0)[..., None])
    return np.einsum("bhij,bjhd->bihd", p, v), lse


def tensors(rng, *, batch=2, seqlen_q=33, seqlen_k=65, heads=4, heads_kv=2, head_dim=24, head_dim_v=40, dtype=np.float32):
    """Random q, k, v."""
    shapes = ((batch, seqlen_q, heads, head_dim), (batch, seqlen_k, heads_kv, head_dim), (batch, seqlen_k, heads_kv, head_dim_v))
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]
