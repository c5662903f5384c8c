"""Attention by its formula in differentiable float64 torch, as flash_attn lays out its tensors: what the drop-ins are compared with.

TILEWISE_TEST_DEVICE=cuda runs the tests that use it on a GPU.
"""

import contextlib
import os

import torch

DEVICE = os.environ.get("TILEWISE_TEST_DEVICE", "cpu")


@contextlib.contextmanager
def start(seed):
    """Makes the tensors of a test on the device, always the same."""
    torch.manual_seed(seed)
    with torch.device(DEVICE) if DEVICE != "cpu" else contextlib.nullcontext():
        yield


def visible(seqlen_q, seqlen_k, causal=False, window=(-1, -1), chunk=0):
    """bool (seqlen_q, seqlen_k), aligned to the bottom right."""
    i = torch.arange(seqlen_q)[:, None] + seqlen_k - seqlen_q
    j = torch.arange(seqlen_k)[None]
    left, right = window[0], 0 if causal else window[1]
    seen = torch.ones(seqlen_q, seqlen_k, dtype=torch.bool)
    if left >= 0:
        seen &= j >= i - left
    if right >= 0:
        seen &= j <= i + right
    if chunk:
        seen &= j // chunk == i // chunk
    return seen


def attention(q, k, v, *, scale=None, softcap=0.0, slopes=None, keep=None, **mask):
    """(b, sq, h, d), (b, sk, hk, d), (b, sk, hk, dv) -> o, lse (b, h, sq), probabilities (b, h, sq, sk); `keep` is what dropout
    multiplies them with."""
    q, k, v = (x.double() for x in (q, k, v))
    groups = q.shape[2] // k.shape[2]
    k, v = (x.repeat_interleave(groups, 2) for x in (k, v))
    s = torch.einsum("bihd,bjhd->bhij", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap > 0:
        s = softcap * torch.tanh(s / softcap)
    if slopes is not None:
        distance = (torch.arange(q.shape[1])[:, None] + k.shape[1] - q.shape[1] - torch.arange(k.shape[1])).abs()
        s = s - slopes.double().reshape(-1, q.shape[2], 1, 1) * distance
    s = s.masked_fill(~visible(q.shape[1], k.shape[1], **mask), float("-inf"))
    lse = s.logsumexp(-1)
    p = torch.exp(s - lse.masked_fill(lse == float("-inf"), 0.0)[..., None])
    o = torch.einsum("bhij,bjhd->bihd", p if keep is None else p * keep, v)
    return o, lse, p


def rotate(x, cos, sin, positions, interleaved):
    """x (s, h, d) rotated by the angles of `positions`, pair by pair."""
    out = x.double().clone()
    half = cos.shape[1]
    for t in range(half):
        a, b = (2 * t, 2 * t + 1) if interleaved else (t, t + half)
        c, s = (table[positions, t].double()[:, None] for table in (cos, sin))
        first, second = x[..., a].double(), x[..., b].double()
        out[..., a], out[..., b] = first * c - second * s, first * s + second * c
    return out


def tensors(*, batch=2, seqlen_q=13, seqlen_k=29, heads=6, heads_kv=2, head_dim=20, dtype=torch.float32):
    """Random q, k, v that want gradients."""
    shapes = ((batch, seqlen_q, heads, head_dim), *[(batch, seqlen_k, heads_kv, head_dim)] * 2)
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def close(actual, expected, tolerance=2e-5):
    torch.testing.assert_close(actual.double(), expected.double(), rtol=tolerance, atol=tolerance)


def pack(sequences):
    """Sequences (s, ...) -> one behind the other, and cu_seqlens."""
    lengths = torch.tensor([0] + [len(x) for x in sequences], dtype=torch.int32)
    return torch.cat(sequences), lengths.cumsum(0, dtype=torch.int32)


def paged(cache, page_size, spare=2):
    """A cache (b, s, h, d) as shuffled pages and their table; spare pages hold NaN."""
    batch, seqlen = cache.shape[:2]
    pages = seqlen // page_size
    order = torch.randperm(batch * pages + spare)[: batch * pages]
    store = torch.full((batch * pages + spare, page_size, *cache.shape[2:]), float("nan"), dtype=cache.dtype)
    store[order] = cache[:, : pages * page_size].reshape(batch * pages, page_size, *cache.shape[2:])
    return store, order.reshape(batch, pages).int()


def unpaged(store, table):
    """The cache that pages hold."""
    return store[table.long()].flatten(1, 2)
