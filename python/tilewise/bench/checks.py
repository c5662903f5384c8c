"""Is a result right: by a float64 reference of some heads, by the other peers everywhere, and by the reference where
these disagree.

The rule is in tolerances.py. Where two peers differ, the reference of that sequence and key head decides.

The reference computes all of one (sequence, key head): every row of a backward, up to 1024 evenly spread rows of the
others.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .cases import Case
from .inputs import Inputs
from .tolerances import PEER_FACTOR, allowed

FORWARD_ROWS = 1024
CHUNK_BYTES = 2**28

Outputs = dict[str, torch.Tensor]


@dataclass
class Place:
    """A key head of a sequence: where its rows lie in tensors of queries and of keys. `rows` are the queries that are
    compared."""

    sequence: int
    head_kv: int
    queries: tuple
    keys: tuple
    rows: torch.Tensor


def place_of(case: Case, sequence: int, head_kv: int, device) -> Place:
    heads = slice(head_kv * case.group, (head_kv + 1) * case.group)
    if case.lengths is None:
        where = (sequence,)
    else:
        begin = sum(case.lengths[:sequence])
        where = (slice(begin, begin + case.lengths[sequence]),)
    dense = (slice(None),) if case.lengths is None else ()
    seqlen_q = case.sequences[sequence][0]
    count = seqlen_q if case.op == "backward" else min(seqlen_q, FORWARD_ROWS)
    rows = torch.linspace(0, seqlen_q - 1, count, device=device).round().long()
    return Place(sequence, head_kv, (*where, *dense, heads), (*where, *dense, head_kv), rows)


def sampled_places(case: Case, device) -> list[Place]:
    """The first head of the first sequence and the last head of the last one."""
    ends = dict.fromkeys([(0, 0), (case.batch - 1, case.heads_kv - 1)])
    return [place_of(case, sequence, head, device) for sequence, head in ends]


def _hidden(case, rows, offset, seqlen_k):
    left, right = (-1, 0) if case.causal and case.window is None else case.window or (-1, -1)
    i, j = (rows + offset)[:, None], torch.arange(seqlen_k, device=rows.device)[None, :]
    hidden = torch.zeros(len(rows), seqlen_k, dtype=torch.bool, device=rows.device)
    if left >= 0:
        hidden |= j < i - left
    if right >= 0:
        hidden |= j > i + right
    return hidden


def exact(case: Case, inputs: Inputs, place: Place) -> Outputs:
    """o (rows, group, head_dim) and, of a backward, the gradients, all float64."""
    q, k, v = (x.detach() for x in inputs.sets[0])
    q = q[place.queries].double().transpose(0, 1)
    k, v = k[place.keys].double(), v[place.keys].double()
    seqlen_q, seqlen_k, scale = q.shape[1], len(k), q.shape[-1] ** -0.5
    grad_o = None if inputs.grad_o is None else inputs.grad_o[place.queries].double().transpose(0, 1)
    o, grad_q, grad_k, grad_v = [], [], torch.zeros_like(k), torch.zeros_like(v)
    for rows in place.rows.split(max(1, CHUNK_BYTES // (8 * len(q) * seqlen_k))):
        s = (
            (q[:, rows] @ k.T)
            .mul_(scale)
            .masked_fill_(_hidden(case, rows, seqlen_k - seqlen_q, seqlen_k), float("-inf"))
        )
        p = s.softmax(-1)
        o.append(p @ v)
        if grad_o is not None:
            grad = grad_o[:, rows]
            ds = (grad @ v.T).sub_((grad * o[-1]).sum(-1, keepdim=True)).mul_(p).mul_(scale)
            grad_q.append(ds @ k)
            grad_k += torch.einsum("hij,hid->jd", ds, q[:, rows])
            grad_v += torch.einsum("hij,hid->jd", p, grad)
    found = {"o": torch.cat(o, 1).transpose(0, 1)}
    if grad_o is not None:
        found |= {"grad_q": torch.cat(grad_q, 1).transpose(0, 1), "grad_k": grad_k, "grad_v": grad_v}
    return found


def row_errors(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """The error of each row; infinite where a number is not finite."""
    norms = wanted.norm(dim=-1)
    errors = (found - wanted).norm(dim=-1) / torch.maximum(norms, norms.square().mean().sqrt())
    return torch.where(found.isfinite().all(-1), errors, torch.inf)


def fault_of(case: Case, outputs: Outputs, wanted: Outputs, place: Place) -> tuple[float, str | None]:
    """(worst error of o, a sentence about what is wrong) at one place."""
    worst, fault = 0.0, None
    for name, reference in wanted.items():
        if name in ("o", "grad_q"):
            found = outputs[name][place.queries][place.rows]
        else:
            found = outputs[name][place.keys]
        error = row_errors(found.double(), reference).max().item()
        worst = error if name == "o" else worst
        if not error <= allowed(case.dtype, name) and fault is None:
            where = f"sequence {place.sequence}, key head {place.head_kv}"
            fault = (
                f"{name} is off by {error:.1e} of a row's size in {where}; {allowed(case.dtype, name):.1e} is allowed"
            )
    return worst, fault


def disagreement(case: Case, outputs: Outputs, others: Outputs) -> tuple[int, int] | None:
    """(sequence, key head) of the worst row in which two peers differ by more than both may be off, or None."""
    worst, where = 1.0, None
    for name, found in outputs.items():
        errors = row_errors(found.float(), others[name].float()) / (PEER_FACTOR * allowed(case.dtype, name))
        if not errors.max().item() <= worst:
            worst = errors.max().item()
            *row, head = torch.unravel_index(errors.argmax(), errors.shape)
            head = head.item() // (case.group if name in ("o", "grad_q") else 1)
            where = (row[0].item() if case.lengths is None else _sequence_of(case, row[0].item()), head)
    return where


def _sequence_of(case, row):
    for sequence, length in enumerate(case.lengths):
        if row < length:
            return sequence
        row -= length
    raise ValueError(f"row {row} is past the last sequence")
