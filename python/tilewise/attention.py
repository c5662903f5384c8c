"""Attention over given keys and values: `attention`, and `attention_varlen` for ragged batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from ._arrays import library_of
from ._options import ATTENTION, fields_of, takes

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._typing import A, Array, AttentionOptions, VarlenOptions


@overload
def attention(
    q: A, k: Array, v: Array, *, return_lse: Literal[False] = False, out: A | None = None, **options: Unpack[AttentionOptions]
) -> A: ...
@overload
def attention(
    q: A, k: Array, v: Array, *, return_lse: Literal[True], out: A | None = None, **options: Unpack[AttentionOptions]
) -> tuple[A, A]: ...
@overload
def attention(
    q: A, k: Array, v: Array, *, return_lse: bool, out: A | None = None, **options: Unpack[AttentionOptions]
) -> A | tuple[A, A]: ...
@takes(ATTENTION)
def attention(
    q: A, k: Array, v: Array, *, return_lse: bool = False, out: A | None = None, **options: Unpack[AttentionOptions]
) -> A | tuple[A, A]:
    """Exact attention.

        s[i, j] = scale * (q[i] . k[j]);  softcap;  + ALiBi + bias;  mask;  p = softmax(s);  dropout;  o[i] = sum_j p[i, j] v[j]

    with i a query, j a key, and `off = seqlen_k - seqlen_q` of each sequence (0 with `diagonal="top_left"`).

    Args:
        q: (batch, seqlen_q, num_heads_q, head_dim), or ragged (total_q, num_heads_q, head_dim) with `cu_seqlens_q`. Any strides. float32,
            bfloat16, float16, or float64 (CPU only).
        k: (batch, seqlen_k, num_heads_kv, head_dim), ragged (total_k, num_heads_kv, head_dim), or paged (num_pages, page_size,
            num_heads_kv, head_dim) with `page_table`. num_heads_q is a multiple of num_heads_kv; head_dim is 1 to 256.
        v: as k, with head_dim_v, 1 to 512, as its last axis.
        return_lse: also return the logarithm of the softmax's denominator.
        out: where o goes, instead of a new array.

    Masks. All that are given hold at once (`prefix` widens instead):
        causal: keys j <= i + off.
        window: (left, right), both inclusive: i + off - left <= j <= i + off + right. -1 or None is unlimited. With `causal` right is 0.
        diagonal: "bottom_right" (default) or "top_left".
        chunk: keys of the same chunk, of this many keys, as position i + off.
        block: keys up to the end of the block, of this many keys, that holds position i + off.
        prefix: the first keys are visible to every row: a number, or int32 (batch).
        mask: bool, True is visible; or uint8, eight keys a byte, the first in bit 0. (batch, num_heads_q, seqlen_q, seqlen_k), each axis
            its size or 1.
        key_begin, key_end: int32 (batch, seqlen_q) or (total_q): each row's own interval of keys, `end` exclusive (document masks).

    Scores:
        scale: default head_dim ** -0.5; at least 0.
        softcap: s = softcap * tanh(s / softcap), where it is above 0.
        alibi_slopes: float32 (num_heads_q) or (batch, num_heads_q): s -= slope * abs(i + off - j).
        bias: (batch, num_heads_q, seqlen_q, seqlen_k), each axis its size or 1; added after softcap. Of -inf it hides a key.
        sink: float32 (num_heads_q): exp(sink) enters the softmax's denominator.
        dropout_p: probability to drop a p. `dropout_seed` and `dropout_offset` (64-bit integers) decide which; without a seed one is
            drawn: from torch's CPU generator for torch tensors, from Python's `random` otherwise.

    Lengths, all int32:
        cu_seqlens_q, cu_seqlens_k: (batch + 1): sequence n of a ragged batch has rows cu_seqlens[n] .. cu_seqlens[n + 1] - 1.
        max_seqlen_q, max_seqlen_k: upper bounds of a ragged sequence, if known; a number on a GPU is not waited for.
        seqused_q, seqused_k: (batch): rows past it are not computed (0 in a new `out`), keys past it are not seen.
        leftpad_k: (batch): first valid key; positions count from it.
        page_table: (batch, max_pages): pages of k and v.

    Execution:
        deterministic: the gradient of q repeats bit for bit (everything else always does).
        batch_invariant: a row's bits do not depend on the batch, other rows, or the number of splits.
        num_splits, num_threads, kernel: instead of what the plan would choose; `explain` shows that.
        stream: a CUDA stream as an integer; default is the current stream of the array's library.

    Gradients (torch): of q, k, v, bias and sink, through o and through lse, first derivatives only. Under torch.autocast q, k and v take
    its type, float64 apart. torch.compile keeps the call as one op, torch.ops.tilewise.attention.

    Returns:
        o, of q's type: (batch, seqlen_q, num_heads_q, head_dim_v) or (total_q, num_heads_q, head_dim_v). With `return_lse` (o, lse), lse
        float32 (batch, num_heads_q, seqlen_q) or (num_heads_q, total_q), natural logarithm. A row that sees no key has o = 0 and
        lse = -inf.

    Raises:
        ValueError: an argument contradicts another or this contract; the message names it, its value and what is allowed.
        TypeError: no array, or no number, where one is needed; an unknown argument.
        NotImplementedError: no kernel serves the call on this device; the message has each one's reason.

    >>> import numpy as np, tilewise
    >>> q = np.ones((1, 3, 2, 8), np.float32)
    >>> v = np.arange(3, dtype=np.float32).reshape(1, 3, 1, 1)
    >>> tilewise.attention(q, q[:, :, :1], v, causal=True)[0, :, 0, 0]
    array([0. , 0.5, 1. ], dtype=float32)
    """
    library = library_of(q)
    if out is None and not return_lse:
        o = library.attend(q, k, v, options)
        if o is not None:
            return o
    fields = fields_of(options, ATTENTION, "attention")
    return library.attention((q, k, v), fields, return_lse, out)


@overload
def attention_varlen(
    q: A, k: Array, v: Array, cu_seqlens_q: Array, cu_seqlens_k: Array | None = None, *, return_lse: Literal[False] = False, out: A | None = None, **options: Unpack[VarlenOptions]
) -> A: ...
@overload
def attention_varlen(
    q: A, k: Array, v: Array, cu_seqlens_q: Array, cu_seqlens_k: Array | None = None, *, return_lse: Literal[True], out: A | None = None, **options: Unpack[VarlenOptions]
) -> tuple[A, A]: ...
@overload
def attention_varlen(
    q: A, k: Array, v: Array, cu_seqlens_q: Array, cu_seqlens_k: Array | None = None, *, return_lse: bool, out: A | None = None, **options: Unpack[VarlenOptions]
) -> A | tuple[A, A]: ...
@takes({name: target for name, target in ATTENTION.items() if not name.startswith("cu_seqlens")})
def attention_varlen(
    q: A,
    k: Array,
    v: Array,
    cu_seqlens_q: Array,
    cu_seqlens_k: Array | None = None,
    *,
    return_lse: bool = False,
    out: A | None = None,
    **options: Unpack[VarlenOptions],
) -> A | tuple[A, A]:
    """`attention` of a ragged batch: sequences of different lengths, one behind the other and without padding.

    Args:
        q: (total_q, num_heads_q, head_dim).
        k: (total_k, num_heads_kv, head_dim), or paged (num_pages, page_size, num_heads_kv, head_dim) with `page_table` and `seqused_k`.
        v: as k, with head_dim_v.
        cu_seqlens_q: int32 (batch + 1), from 0: sequence n has rows cu_seqlens_q[n] .. cu_seqlens_q[n + 1] - 1 of q.
        cu_seqlens_k: the same for k and v; not with `page_table`.

    Everything else, results and errors are those of `attention`. Rows of q past cu_seqlens_q[-1] are not written.

    >>> import numpy as np, tilewise
    >>> x = np.ones((5, 1, 4), np.float32)
    >>> v = np.arange(5, dtype=np.float32).reshape(5, 1, 1)
    >>> lengths = np.array([0, 2, 5], np.int32)
    >>> tilewise.attention_varlen(x, x, v, lengths, lengths)[:, 0, 0]
    array([0.5, 0.5, 3. , 3. , 3. ], dtype=float32)
    """
    return attention(
        q, k, v, return_lse=return_lse, out=out, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, **options
    )
