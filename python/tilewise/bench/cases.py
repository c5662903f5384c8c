"""What is timed: one case is one call with its sizes, and how much it computes and reads; `cases_of` makes the grid
of a run.

The grid is the field's: batch * seqlen = tokens (16k) and heads * head_dim = hidden (2048). So are the FLOPs, those
of the benchmark in FlashAttention's repository (benchmarks/benchmark_flash_attention.py) and of the tables in its
papers:

    forward    4 * seqlen_q * seqlen_k * head_dim * heads * batch, half of it if causal
    backward   2.5 times that: five products for the two of the forward

With a window the visible pairs of query and key are counted one by one; a ragged batch is the sum over its sequences.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace

OPERATIONS = ("forward", "backward", "decode", "ragged")
DTYPE_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
MAX_HEAD_DIM = 256  # of the library
BACKWARD_FACTOR = 2.5
MOST_CACHED_ROWS = 2**20  # of a decode in the grid that nobody asked for: 4 GB with 8 key heads of 128 in 16 bits


@dataclass(frozen=True)
class Case:
    """One call. `seqlen` is the number of keys of each sequence, the longest one of a ragged batch; a decode has one
    query a sequence."""

    op: str
    dtype: str
    head_dim: int
    heads: int
    heads_kv: int
    batch: int
    seqlen: int
    causal: bool = False
    window: tuple[int, int] | None = None  # keys before and after a query's own; -1 is unlimited
    lengths: tuple[int, ...] | None = None  # of a ragged batch

    @property
    def name(self) -> str:
        """What `--only` looks at."""
        mask = "causal" if self.causal else "full"
        heads = f"h{self.heads}" if self.heads == self.heads_kv else f"h{self.heads}/{self.heads_kv}"
        window = "" if self.window is None else f" w{self.window[0]},{self.window[1]}"
        kind = f"kv{self.seqlen}" if self.op == "decode" else f"{mask} s{self.seqlen}"
        return f"{self.op} {self.dtype} d{self.head_dim} {kind} b{self.batch} {heads}{window}"

    @property
    def group(self) -> int:
        """Query heads of one key head."""
        return self.heads // self.heads_kv

    @property
    def sequences(self) -> tuple[tuple[int, int], ...]:
        """(queries, keys) of each sequence."""
        if self.lengths is not None:
            return tuple((n, n) for n in self.lengths)
        return ((1 if self.op == "decode" else self.seqlen, self.seqlen),) * self.batch

    @property
    def flops(self) -> float:
        pairs = sum(
            count * visible_pairs(*lengths, self.causal, self.window)
            for lengths, count in Counter(self.sequences).items()
        )
        return 4 * pairs * self.head_dim * self.heads * (BACKWARD_FACTOR if self.op == "backward" else 1)

    @property
    def cache_bytes(self) -> int:
        """All keys and values of a decode."""
        return 2 * self.batch * self.seqlen * self.heads_kv * self.head_dim * DTYPE_BYTES[self.dtype]

    @property
    def kv_bytes(self) -> int:
        """What a decode has to read: every key and value that is visible, once."""
        seen = self.seqlen if self.window is None or self.window[0] < 0 else min(self.seqlen, self.window[0] + 1)
        return self.cache_bytes // self.seqlen * seen


def visible_pairs(seqlen_q: int, seqlen_k: int, causal: bool, window: tuple[int, int] | None) -> float:
    """Pairs of a query and a key that count as work; the field's half if causal without a window."""
    if window is None:
        return seqlen_q * seqlen_k / (2 if causal else 1)
    left, right = window
    last = seqlen_k - 1
    offset = seqlen_k - seqlen_q
    pairs = 0
    for i in range(offset, seqlen_k):
        begin = 0 if left < 0 else max(0, i - left)
        end = last if right < 0 else min(last, i + right)
        pairs += max(0, end - begin + 1)
    return pairs


@dataclass(frozen=True)
class Grid:
    """The sizes of one operation's cases."""

    head_dims: tuple[int, ...]
    seqlens: tuple[int, ...]
    hidden: int
    gqa: int
    tokens: int = 0
    batches: tuple[int, ...] = ()  # of decode
    causal: tuple[bool, ...] = (False, True)


def default_grid(op: str, device: str, quick: bool) -> Grid:
    """The sizes that nobody has to ask for; the CPU's are small."""
    cuda = device == "cuda"
    if op == "decode":
        lengths = (1024, 4096, 16384, 65536, 131072) if cuda else (1024, 4096)
        grid = Grid(
            (128,) if cuda else (64,), lengths, 4096 if cuda else 512, 4, batches=(1, 16, 64) if cuda else (1, 4)
        )
        return replace(grid, seqlens=lengths[::2], batches=grid.batches[:2]) if quick else grid
    lengths = (512, 1024, 2048, 4096, 8192, 16384) if cuda else (256, 512, 1024, 2048)
    grid = Grid((64, 128, 256) if cuda else (64, 128), lengths, 2048 if cuda else 512, 1, 16384 if cuda else 2048)
    if op == "ragged":
        grid = replace(grid, head_dims=grid.head_dims[:2], seqlens=lengths[:-1])
    return replace(grid, head_dims=(128,) if cuda else (64,), seqlens=lengths[1::2]) if quick else grid


def cases_of(op: str, grid: Grid, dtype: str, window: tuple[int, int] | None, whole: bool = True) -> list[Case]:
    """The cases of one operation. Unless `whole`, a decode whose cache has more than MOST_CACHED_ROWS rows is left out.

    Raises ValueError if `hidden` is too small for one group of heads.
    """
    cases = []
    for head_dim in grid.head_dims:
        heads_kv = grid.hidden // (head_dim * grid.gqa)
        if heads_kv < 1:
            raise ValueError(
                f"--hidden: {grid.hidden} has no room for {grid.gqa} heads of {head_dim}; "
                f"at least {head_dim * grid.gqa} is needed"
            )
        shape = {"dtype": dtype, "head_dim": head_dim, "heads": heads_kv * grid.gqa, "heads_kv": heads_kv}
        if op == "decode":
            sizes = [(b, n) for b in grid.batches for n in grid.seqlens if whole or b * n <= MOST_CACHED_ROWS]
            cases += [Case(op, batch=b, seqlen=n, window=window and (window[0], 0), **shape) for b, n in sizes]
            continue
        for causal in grid.causal:
            seen = window and (window[0], 0 if causal else window[1])
            for seqlen in grid.seqlens:
                lengths = ragged_lengths(seqlen, grid.tokens) if op == "ragged" else None
                batch = len(lengths) if lengths else max(1, grid.tokens // seqlen)
                cases.append(Case(op, batch=batch, seqlen=seqlen, causal=causal, window=seen, lengths=lengths, **shape))
    return cases


def ragged_lengths(longest: int, tokens: int) -> tuple[int, ...]:
    """Lengths of a ragged batch, the first of them `longest`, the others from 1 to `longest`, all as likely; `tokens`
    in all."""
    draw, lengths = random.Random(longest), [min(longest, tokens)]
    while (left := tokens - sum(lengths)) > 0:
        lengths.append(min(left, draw.randint(1, longest)))
    return tuple(lengths)
