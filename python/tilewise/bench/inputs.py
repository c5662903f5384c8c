"""Random tensors of a case, in the layout that most of the field shares: (batch, seqlen, heads, head_dim), ragged
(tokens, heads, head_dim).

Normal numbers from a fixed seed; zeros and constants are faster on most hardware. A decode gets several sets of keys
and values that are used in turn, so that none of it is left in the L2 cache from the call before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from .cases import Case

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
ROTATED_BYTES = 256 * 2**20
L2_FACTOR = 4
MOST_BYTES = 2**32  # of all sets together: with a window a call reads little of its cache


@dataclass
class Inputs:
    """`sets`: the (q, k, v) that calls use in turn; `starts` and `cache_seqlens` are int32, of ragged batches and
    decodes."""

    sets: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]
    grad_o: torch.Tensor | None
    starts: torch.Tensor | None
    cache_seqlens: torch.Tensor | None


def rotated_bytes(device: str) -> int:
    """How many bytes of keys and values a decode rotates through: at least 256 MiB and four times the L2 cache; on
    the CPU one set."""
    if device != "cuda":
        return 0
    cache = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "L2_cache_size", 0)
    return max(ROTATED_BYTES, L2_FACTOR * cache)


def make_inputs(case: Case, device: str) -> Inputs:
    generator = torch.Generator(device).manual_seed(1)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, device=device).to(DTYPES[case.dtype])

    ragged = case.lengths is not None
    rows = (sum(case.lengths),) if ragged else (case.batch, case.seqlen)
    queries = (case.batch, 1) if case.op == "decode" else rows
    count = 1
    if case.op == "decode":
        count = min(math.ceil(rotated_bytes(device) / case.kv_bytes), MOST_BYTES // case.cache_bytes)
    q = normal(*queries, case.heads, case.head_dim)
    sets = [(q, *(normal(*rows, case.heads_kv, case.head_dim) for _ in range(2))) for _ in range(max(1, count))]
    grad_o = starts = cache_seqlens = None
    if case.op == "backward":
        grad_o = normal(*rows, case.heads, case.head_dim)
        sets = [tuple(x.requires_grad_() for x in sets[0])]
    if ragged:
        sums = torch.tensor([0, *case.lengths]).cumsum(0)
        starts = sums.to(device=device, dtype=torch.int32)
    if case.op == "decode":
        cache_seqlens = torch.full((case.batch,), case.seqlen, device=device, dtype=torch.int32)
    return Inputs(sets, grad_o, starts, cache_seqlens)
