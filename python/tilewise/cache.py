"""Attention with a key-value cache: `decode` appends and attends, `append` only appends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from ._arrays import library_of
from ._options import APPEND, DECODE, fields_of, takes

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._typing import A, AppendOptions, Array, DecodeOptions


@overload
def decode(
    q: A, k_cache: Array, v_cache: Array, k_new: Array | None = None, v_new: Array | None = None, *, return_lse: Literal[False] = False, out: A | None = None, **options: Unpack[DecodeOptions]
) -> A: ...
@overload
def decode(
    q: A, k_cache: Array, v_cache: Array, k_new: Array | None = None, v_new: Array | None = None, *, return_lse: Literal[True], out: A | None = None, **options: Unpack[DecodeOptions]
) -> tuple[A, A]: ...
@overload
def decode(
    q: A, k_cache: Array, v_cache: Array, k_new: Array | None = None, v_new: Array | None = None, *, return_lse: bool, out: A | None = None, **options: Unpack[DecodeOptions]
) -> A | tuple[A, A]: ...
@takes(DECODE)
def decode(
    q: A,
    k_cache: Array,
    v_cache: Array,
    k_new: Array | None = None,
    v_new: Array | None = None,
    *,
    return_lse: bool = False,
    out: A | None = None,
    **options: Unpack[DecodeOptions],
) -> A | tuple[A, A]:
    """Appends new keys and values to a cache, if they are given, and attends to all of it.

    Row t of `k_new` goes to row cache_seqlens[n] + t of sequence n's cache, through the page table where there is one; rotary rotates it, and
    q, on the way. The caller's lengths are never changed: add the number of new rows yourself.

    Args:
        q: (batch, seqlen_q, num_heads_q, head_dim), or ragged with `cu_seqlens_q`.
        k_cache: (rows, max_seqlen, num_heads_kv, head_dim), or paged (num_pages, page_size, num_heads_kv, head_dim). Written in place.
        v_cache: as k_cache, with head_dim_v.
        k_new, v_new: (batch, n, num_heads_kv, head_dim or head_dim_v), or ragged with `cu_seqlens_k_new`. Both or none.
        cache_seqlens: int32 (batch): keys in the cache before appending; without it all of the cache is attended to, and nothing appended.
        cache_batch_idx: int32 (batch): the cache row of each sequence.
        page_table: int32 (batch, max_pages).
        leftpad_k: int32 (batch): first valid key.
        rotary_cos, rotary_sin: (positions, rotary_dim / 2), float32 or the type of q; `rotary_interleaved` pairs (2t, 2t + 1) instead of
            (t, t + rotary_dim / 2); `rotary_seqlens` int32 (batch) are positions to use instead of cache_seqlens. q is rotated row by row
            where a mask by position is on (causal, window, ...), else all of it at cache_seqlens.
        error_flag: int32 (1), for GPUs, where lengths cannot be checked beforehand: gets bits for what was wrong.

    A cache is written in place, so no gradients are recorded: torch tensors that want one are refused. Under torch.autocast q, k_new and
    v_new take the type of the cache.

    Masks, scores, execution, results and errors are those of `attention`; note that a decode with several rows wants `causal=True`.
    On a CPU a wrong length, page or row is a ValueError before anything is written.

    >>> import numpy as np, tilewise
    >>> cache = np.zeros((1, 8, 1, 4), np.float32)
    >>> new, lengths = np.ones((1, 1, 1, 4), np.float32), np.array([0], np.int32)
    >>> tilewise.decode(new, cache, cache.copy(), new, 2 * new, cache_seqlens=lengths)[0, 0, 0]
    array([2., 2., 2., 2.], dtype=float32)
    >>> cache[0, :2, 0, 0]
    array([1., 0.], dtype=float32)
    """
    library = library_of(q)
    fields = fields_of(options, DECODE, "decode")
    return library.decode((q, k_cache, v_cache, k_new, v_new), fields, return_lse, out)


@takes(APPEND)
def append(k_cache: Array, v_cache: Array, k_new: Array, v_new: Array, **options: Unpack[AppendOptions]) -> None:
    """Writes new keys (rotated, where rotary is given) and values into a cache. Arguments and errors are those of `decode`.

    >>> import numpy as np, tilewise
    >>> cache = np.zeros((1, 4, 1, 2), np.float32)
    >>> new = np.ones((1, 2, 1, 2), np.float32)
    >>> tilewise.append(cache, cache.copy(), new, new, cache_seqlens=np.array([1], np.int32))
    >>> cache[0, :, 0, 0]
    array([0., 1., 1., 0.], dtype=float32)
    """
    library = library_of(k_cache, "k_cache")
    library.append((k_cache, v_cache, k_new, v_new), fields_of(options, APPEND, "append"))
