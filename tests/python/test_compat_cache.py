"""flash_attn_with_kvcache of both generations against the formula over what the cache should hold."""

import compat_formula as formula
import pytest
import tilewise.compat  # noqa: F401  (makes the modules importable)
import torch
from compat_formula import close

import flash_attn
import flash_attn_2_cuda
import flash_attn_interface

TWO, THREE = flash_attn.flash_attn_with_kvcache, flash_attn_interface.flash_attn_with_kvcache
BOTH = pytest.mark.parametrize("function", [TWO, THREE], ids=["2", "3"])
with torch.device(formula.DEVICE):
    LENGTHS = torch.tensor([20, 7], dtype=torch.int32)


@pytest.fixture(autouse=True)
def seeded():
    with formula.start(23):
        yield


def caches(rows=2, seqlen=32, heads_kv=2, lengths=None):
    """k and v; rows past the lengths hold NaN."""
    made = [torch.randn(rows, seqlen, heads_kv, 16) for _ in range(2)]
    for n, length in enumerate([] if lengths is None else lengths):
        for cache in made:
            cache[n, length:] = float("nan")
    return made


def new_rows(count=3, heads=4, heads_kv=2):
    return torch.randn(2, count, heads, 16), torch.randn(2, count, heads_kv, 16), torch.randn(2, count, heads_kv, 16)


def expected_row(q, k_cache, v_cache, n, keys, **options):
    """Sequence n's o and lse over the keys of a slice."""
    return [x[0] for x in formula.attention(q[n : n + 1], k_cache[None, keys], v_cache[None, keys], **options)[:2]]


@BOTH
@pytest.mark.parametrize("heads_kv", [4, 2, 1])
@pytest.mark.parametrize("mask", [{}, {"causal": True}, {"causal": True, "window_size": (6, -1)}, {"window_size": (9, 1)}], ids=str)
def test_append_and_attend(function, mask, heads_kv):
    k_cache, v_cache = caches(lengths=LENGTHS, heads_kv=heads_kv)
    q, k, v = new_rows(heads_kv=heads_kv)
    q.requires_grad_()  # is ignored, as flash_attn does
    wanted = k_cache.clone(), v_cache.clone()
    for n, length in enumerate(LENGTHS):
        wanted[0][n, length : length + 3], wanted[1][n, length : length + 3] = k[n], v[n]
    results = function(q, k_cache, v_cache, k, v, cache_seqlens=LENGTHS, return_softmax_lse=True, **mask)
    assert len(results) == (2 if function is TWO else 4) and not results[0].requires_grad
    assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip((k_cache, v_cache), wanted))
    given = {"causal": mask.get("causal", False), "window": mask.get("window_size", (-1, -1))}
    for n, length in enumerate(LENGTHS):
        o, lse = expected_row(q, wanted[0][n], wanted[1][n], n, slice(0, length + 3), **given)
        close(results[0][n], o)
        close(results[1][n], lse)
    again = function(q, k_cache, v_cache, cache_seqlens=LENGTHS + 3, **mask)
    close(again, results[0], 1e-6)


@BOTH
@pytest.mark.parametrize("cache_seqlens", [None, 32, 11, torch.tensor(11)], ids=str)
@pytest.mark.parametrize("num_splits", [0, 1, 3])
def test_lengths(function, cache_seqlens, num_splits):
    k_cache, v_cache = caches()
    q = torch.randn(2, 1, 4, 16)
    o = function(q, k_cache, v_cache, cache_seqlens=cache_seqlens, causal=True, num_splits=num_splits)
    keys = 32 if cache_seqlens is None else int(cache_seqlens)
    close(o, formula.attention(q, k_cache[:, :keys], v_cache[:, :keys])[0])


@BOTH
def test_scores(function):
    k_cache, v_cache = caches()
    q = torch.randn(2, 3, 4, 16)
    o = function(q, k_cache, v_cache, cache_seqlens=20, softmax_scale=0.4, causal=True, softcap=2.0)
    close(o, formula.attention(q, k_cache[:, :20], v_cache[:, :20], scale=0.4, causal=True, softcap=2.0)[0])
    if function is TWO:
        slopes = torch.rand(2, 4)
        o = function(q, k_cache, v_cache, cache_seqlens=20, causal=True, alibi_slopes=slopes)
        close(o, formula.attention(q, k_cache[:, :20], v_cache[:, :20], causal=True, slopes=slopes)[0])
    else:
        o = function(q, k_cache, v_cache, cache_seqlens=20, causal=True, attention_chunk=8)
        close(o, formula.attention(q, k_cache[:, :20], v_cache[:, :20], causal=True, chunk=8)[0])


@BOTH
@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("mask", [{}, {"causal": True}, {"window_size": (6, 6)}], ids=["none", "causal", "window"])
@pytest.mark.parametrize("rotary_dim", [16, 8])
def test_rotary(function, interleaved, mask, rotary_dim):
    k_cache, v_cache = caches(lengths=LENGTHS)
    q, k, v = new_rows()
    angles = torch.rand(32, rotary_dim // 2) * 6
    cos, sin = angles.cos(), angles.sin()
    extra = {} if interleaved else {"rotary_interleaved": False}
    o = function(q, k_cache, v_cache, k, v, rotary_cos=cos, rotary_sin=sin, cache_seqlens=LENGTHS, **mask, **extra)
    given = {"causal": mask.get("causal", False), "window": mask.get("window_size", (-1, -1))}
    for n, length in enumerate(LENGTHS):
        rows = torch.arange(3) + int(length)
        close(k_cache[n, length : length + 3], formula.rotate(k[n], cos, sin, rows, interleaved), 1e-6)
        assert torch.equal(v_cache[n, length : length + 3], v[n])
        rotated = formula.rotate(q[n], cos, sin, rows if mask else rows[:1].expand(3), interleaved)
        close(o[n], formula.attention(rotated[None], k_cache[n : n + 1, : length + 3], v_cache[n : n + 1, : length + 3], **given)[0][0])


@BOTH
@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_pages(function, page_size):
    k_cache, v_cache = caches()
    q, k, v = new_rows()
    torch.manual_seed(5)
    k_pages, table = formula.paged(k_cache, page_size)
    torch.manual_seed(5)
    v_pages, _ = formula.paged(v_cache, page_size)
    name = "block_table" if function is TWO else "page_table"
    o = function(q, k_pages, v_pages, k, v, cache_seqlens=LENGTHS, causal=True, **{name: table})
    held = formula.unpaged(k_pages, table), formula.unpaged(v_pages, table)
    for n, length in enumerate(LENGTHS):
        assert torch.equal(held[0][n, length : length + 3], k[n]) and torch.equal(held[1][n, length : length + 3], v[n])
        close(o[n], expected_row(q, held[0][n], held[1][n], n, slice(0, length + 3), causal=True)[0])


@BOTH
def test_left_padding_and_cache_rows(function):
    k_cache, v_cache = caches(rows=3)
    q, k, v = new_rows()
    rows, left = torch.tensor([2, 0], dtype=torch.int32), torch.tensor([4, 0], dtype=torch.int32)
    options = {"cache_seqlens": LENGTHS, "cache_batch_idx": rows, "cache_leftpad": left}
    o = function(q, k_cache, v_cache, k, v, causal=True, **options)
    for n, length in enumerate(LENGTHS):
        assert torch.equal(k_cache[rows[n], length : length + 3], k[n])
        keys = slice(left[n], length + 3)
        close(o[n], expected_row(q, k_cache[rows[n]], v_cache[rows[n]], n, keys, causal=True)[0])


def test_third_generation_ragged_queries_and_rows():
    k_cache, v_cache = caches(lengths=LENGTHS)
    q, cu_q = formula.pack([torch.randn(2, 4, 16), torch.randn(5, 4, 16)])
    k, cu_k = formula.pack([torch.randn(3, 2, 16), torch.randn(5, 2, 16)])
    options = {"cu_seqlens_q": cu_q, "cu_seqlens_k_new": cu_k, "max_seqlen_q": 5, "causal": True, "pack_gqa": True, "sm_margin": 2}
    o = THREE(q, k_cache, v_cache, k, -k, cache_seqlens=LENGTHS, **options)
    for n, length in enumerate(LENGTHS):
        end = length + cu_k[n + 1] - cu_k[n]
        part = q[cu_q[n] : cu_q[n + 1]][None]
        assert torch.equal(v_cache[n, length:end], -k[cu_k[n] : cu_k[n + 1]])
        close(o[cu_q[n] : cu_q[n + 1]], formula.attention(part, k_cache[n : n + 1, :end], v_cache[n : n + 1, :end], causal=True)[0][0])


def test_third_generation_rotary_positions():
    k_cache, v_cache = caches(lengths=LENGTHS)
    q, k, v = new_rows()
    angles = torch.rand(64, 8)
    cos, sin, starts = angles.cos(), angles.sin(), torch.tensor([40, 3], dtype=torch.int32)
    THREE(q, k_cache, v_cache, k, v, rotary_cos=cos, rotary_sin=sin, cache_seqlens=LENGTHS, rotary_seqlens=starts, causal=True)
    for n, length in enumerate(LENGTHS):
        rows = torch.arange(3) + int(starts[n])
        close(k_cache[n, length : length + 3], formula.rotate(k[n], cos, sin, rows, True), 1e-6)


def test_metadata():
    k_cache, v_cache = caches()
    q = torch.randn(2, 1, 4, 16)
    expected = THREE(q, k_cache, v_cache, cache_seqlens=LENGTHS)
    for options, size in (({}, 13), ({"causal": True}, 17), ({"window_size": (3, 3)}, 13)):
        metadata = flash_attn_interface.get_scheduler_metadata(2, 1, 32, 4, 2, 16, LENGTHS, **options)
        assert metadata.dtype == torch.int32 and metadata.shape == (size,)
    assert torch.equal(THREE(q, k_cache, v_cache, cache_seqlens=LENGTHS, scheduler_metadata=metadata), expected)
    with pytest.raises(ValueError, match="scheduler_metadata"):
        THREE(q, k_cache, v_cache, cache_seqlens=LENGTHS, scheduler_metadata=metadata.float())


def test_extension():
    k_cache, v_cache = caches(lengths=LENGTHS)
    q, k, v = new_rows()
    copies = k_cache.clone(), v_cache.clone()
    expected = TWO(q, *copies, k, v, cache_seqlens=LENGTHS, causal=True, softmax_scale=0.25, return_softmax_lse=True)
    tail = (None, 0.25, True, -1, 0, 0.0, True, 0)
    results = flash_attn_2_cuda.fwd_kvcache(q, k_cache, v_cache, k, v, LENGTHS, None, None, None, None, None, None, *tail)
    assert isinstance(results, list) and all(torch.equal(a, b) for a, b in zip(results, expected, strict=True))
