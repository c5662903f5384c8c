"""Attention over disjoint sets of keys, merged: for context parallelism, shared prefixes and split caches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._arrays import library_of
from ._options import MERGE, fields_of, takes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Unpack

    from ._typing import A, MergeOptions


@takes(MERGE)
def merge(partial_o: A | Sequence[A], partial_lse: A | Sequence[A], **options: Unpack[MergeOptions]) -> tuple[A, A]:
    """Merges results of `attention(..., return_lse=True)` over disjoint sets of keys into that over their union.

        lse = log sum_n exp(partial_lse[n]);  o = sum_n exp(partial_lse[n] - lse) partial_o[n]

    Args:
        partial_o: (parts, batch, seqlen_q, num_heads_q, head_dim_v) or ragged (parts, total_q, num_heads_q, head_dim_v), float32, bfloat16
            or float16; or a sequence of the parts.
        partial_lse: float32 (parts, batch, num_heads_q, seqlen_q) or (parts, num_heads_q, total_q); or a sequence of the parts.

    Returns:
        (o, lse); of torch tensors with gradients of both arguments. A part whose lse is -inf counts nothing, whatever its o holds; where all are, o = 0 and lse = -inf.

    Raises:
        ValueError, TypeError, NotImplementedError: as `attention`.

    >>> import numpy as np, tilewise
    >>> o = np.stack([np.zeros((1, 1, 1, 2), np.float32), np.ones((1, 1, 1, 2), np.float32)])
    >>> merged, lse = tilewise.merge(o, np.log(np.array([1, 3], np.float32)).reshape(2, 1, 1, 1))
    >>> float(merged[0, 0, 0, 0]), round(float(np.exp(lse[0, 0, 0])), 5)
    (0.75, 4.0)
    """
    if isinstance(partial_o, (list, tuple)) and len(partial_o) > 0:
        partial_o = library_of(partial_o[0], "partial_o").stack(partial_o)
    library = library_of(partial_o, "partial_o")
    if isinstance(partial_lse, (list, tuple)) and len(partial_lse) > 0:
        partial_lse = library.stack(partial_lse)
    return library.merge(partial_o, partial_lse, fields_of(options, MERGE, "merge"))
