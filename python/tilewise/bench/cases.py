"""What is measured: cases, their FLOPs and bytes, and their inputs."""

from __future__ import annotations

import dataclasses
import random

import torch

OPS = ("forward", "backward", "decode", "ragged")
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
ROTATED_BYTES = 256 * 2**20
MAX_HEAD_DIM = 256


@dataclasses.dataclass(frozen=True)
class Case:
    op: str
    head_dim: int
    seqlen: int
    batch: int
    heads: int
    heads_kv: int
    causal: bool = False
    window: int | None = None
    dtype: str = "bf16"
    device: str = "cpu"

    @property
    def name(self):
        mask = ("causal" if self.causal else "full") + (f" w{self.window}" if self.window is not None else "")
        heads = f"h{self.heads}" + (f"/{self.heads_kv}" if self.heads_kv != self.heads else "")
        return f"{self.op} d{self.head_dim} {mask} s{self.seqlen} b{self.batch} {heads} {self.dtype}"

    @property
    def lengths(self):
        """Lengths of the sequences; ragged: between a quarter of seqlen and seqlen, the first of them seqlen."""
        if self.op != "ragged":
            return [self.seqlen] * self.batch
        draw = random.Random(self.seqlen)
        return [self.seqlen] + [draw.randint(max(1, self.seqlen // 4), self.seqlen) for _ in range(self.batch - 1)]


def visible_pairs(rows, keys, causal, window):
    """(query, key) pairs of one head; causal without a window is the field's round half. The diagonal ends at the last key."""
    if window is None:
        return rows * keys / 2 if causal else rows * keys
    shift = keys - rows
    last = (lambda i: i + shift) if causal else (lambda i: min(keys - 1, i + shift + window))
    return sum(max(0, last(i) - max(0, i + shift - window) + 1) for i in range(rows))


def flops_of(case):
    """4 * heads * pairs * head_dim for each sequence; 2.5 times that backward (five products for two)."""
    rows = [1 if case.op == "decode" else n for n in case.lengths]
    pairs = sum(visible_pairs(r, n, case.causal, case.window) for r, n in zip(rows, case.lengths))
    return 4 * case.heads * pairs * case.head_dim * (2.5 if case.op == "backward" else 1)


def bytes_of(case):
    """Bytes that one decode must read: the visible keys and values."""
    seen = case.seqlen if case.window is None else min(case.seqlen, case.window + 1)
    return 2 * case.batch * seen * case.heads_kv * case.head_dim * DTYPES[case.dtype].itemsize


def cases_of(options):
    """The grid of the options. The batch is tokens / seqlen, the heads are hidden / head_dim; a decode has no causal twin."""
    masks = {"both": (False, True), "yes": (True,), "no": (False,)}[options.causal]
    cases = []
    for op in options.ops:
        for d in options.head_dims:
            heads = max(1, options.hidden // d)
            fewer = options.heads_kv or (max(1, heads // 4) if op == "decode" and heads % 4 == 0 else heads)
            for causal in (False,) if op == "decode" else masks:
                for s in options.seqlens:
                    shape = (op, d, s, max(1, options.tokens // s), heads, fewer)
                    cases.append(Case(*shape, causal, options.window, options.dtype, options.device))
    return cases


@dataclasses.dataclass
class Inputs:
    """q, k and v as (batch, seqlen, heads, head_dim), ragged (total, heads, head_dim); caches: more (k, v) to rotate through."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    grad_o: torch.Tensor | None = None
    cu_seqlens: torch.Tensor | None = None
    caches: list = dataclasses.field(default_factory=list)


def inputs_of(case, rotate=False):
    """Normal random numbers of a fixed seed."""
    generator = torch.Generator(case.device).manual_seed(7)

    def normal(*shape):
        return torch.randn(*shape, device=case.device, generator=generator).to(DTYPES[case.dtype])

    rows = (sum(case.lengths),) if case.op == "ragged" else (case.batch, case.seqlen)
    keys = (*rows, case.heads_kv, case.head_dim)
    queries = (case.batch, 1) if case.op == "decode" else rows
    made = Inputs(normal(*queries, case.heads, case.head_dim), normal(*keys), normal(*keys))
    if case.op == "backward":
        made.grad_o = normal(*made.q.shape)
        for x in (made.q, made.k, made.v):
            x.requires_grad_()
    if case.op == "ragged":
        starts = torch.tensor([0, *case.lengths]).cumsum(0)
        made.cu_seqlens = starts.to(case.device, torch.int32)
    if case.op == "decode":
        sets = -(-ROTATED_BYTES // (2 * made.k.nbytes)) if rotate else 1
        made.caches = [(made.k, made.v)] + [(normal(*keys), normal(*keys)) for _ in range(sets - 1)]
    return made
