"""Whether outputs are right: a float32 reference on a small case, and each peer against ours at full size."""

from __future__ import annotations

import dataclasses

import torch

# Largest relative error in the 2-norm. A gradient goes through more roundings: twice that.
TOLERANCE = {"fp32": 2e-5, "fp16": 3e-3, "bf16": 1.5e-2}


def tolerance_of(case):
    return TOLERANCE[case.dtype] * (2 if case.op == "backward" else 1)


def reference(q, k, v, case):
    """Attention of one sequence in float32, with every score kept: (batch, seqlen, heads, head_dim) -> the same shape as q."""
    q, k, v = (x.float() for x in (q, k, v))
    k, v = (x.repeat_interleave(case.heads // case.heads_kv, dim=2) for x in (k, v))
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    rows, keys = scores.shape[-2:]
    ahead = torch.arange(keys, device=q.device) - torch.arange(rows, device=q.device)[:, None] - (keys - rows)
    hidden = torch.zeros_like(ahead, dtype=torch.bool)
    if case.causal:
        hidden |= ahead > 0
    if case.window is not None:
        hidden |= ahead.abs() > case.window
    return torch.einsum("bhij,bjhd->bihd", scores.masked_fill(hidden, float("-inf")).softmax(-1), v)


def reference_results(case, inputs):
    """What `results_of` should give."""
    if case.op == "ragged":
        parts = zip(*(x.split(case.lengths) for x in (inputs.q, inputs.k, inputs.v)))
        return [torch.cat([reference(*(x[None] for x in part), case)[0] for part in parts])]
    leaves = [x.detach().float().requires_grad_(case.op == "backward") for x in (inputs.q, inputs.k, inputs.v)]
    o = reference(*leaves, case)
    if case.op != "backward":
        return [o]
    return [o.detach(), *torch.autograd.grad(o, leaves, inputs.grad_o.float())]


def results_of(peer, case, inputs):
    """[o], or for a backward [o, grad_q, grad_k, grad_v]."""
    o = peer.attend(inputs.q, inputs.k, inputs.v, case, inputs.cu_seqlens)
    if case.op != "backward":
        return [o]
    return [o.detach(), *torch.autograd.grad(o, (inputs.q, inputs.k, inputs.v), inputs.grad_o)]


def difference(found, wanted):
    """The largest relative difference (2-norm) of the pairs."""
    worst = 0.0
    for name, a, b in zip(("o", "grad_q", "grad_k", "grad_v"), found, wanted):
        if a.shape != b.shape:
            raise ValueError(f"{name} has the shape {tuple(a.shape)} instead of {tuple(b.shape)}")
        error = ((a.float() - b.float()).norm() / b.float().norm()).item()
        if not error <= worst:
            worst = error
    return worst


def small_of(case):
    """The same kernel's case, of a size that the reference can do."""
    heads = min(case.heads, 4 * max(1, case.heads // case.heads_kv))
    heads_kv = max(1, heads * case.heads_kv // case.heads)
    return dataclasses.replace(case, seqlen=min(case.seqlen, 160), batch=2, heads=heads, heads_kv=heads_kv)
