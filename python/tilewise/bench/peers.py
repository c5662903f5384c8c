"""Who takes part: this package, the back ends of torch's scaled_dot_product_attention, and what else can be imported.

A peer's `bind(case, inputs)` returns its attention as a function (q, k, v) -> o of tensors as `inputs` lays them out;
what it has to prepare once (masks, plans) is done there and not timed. Gradients are torch's business. A peer that
cannot serve a case raises `Refused` or any other error, which becomes a line of the report.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

import tilewise

from .cases import Case
from .errors import Refused
from .inputs import Inputs
from .peer_names import OURS, PEER_NAMES

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Peer:
    """`label` is for charts."""

    name: str
    label: str
    version: str
    bind: Callable[[Case, Inputs], Attend]


def ours(device: str) -> Peer:
    # A peer of torch has so many threads; a fair race is between equal numbers.
    threads = {} if device == "cuda" else {"num_threads": torch.get_num_threads()}

    def bind(case, inputs):
        options = {"causal": case.causal, "window": case.window, **threads}
        if case.op == "decode":
            options |= {"causal": False, "cache_seqlens": inputs.cache_seqlens}
            return lambda q, k, v: tilewise.decode(q, k, v, **options)
        if case.lengths is None:
            return lambda q, k, v: tilewise.attention(q, k, v, **options)
        options |= {"max_seqlen_q": case.seqlen, "max_seqlen_k": case.seqlen}
        return lambda q, k, v: tilewise.attention_varlen(q, k, v, inputs.starts, inputs.starts, **options)

    return Peer(OURS, "Tilewise", tilewise.__version__, bind)


def kernel_of(case: Case, inputs: Inputs, device: str) -> str:
    """Name of the kernel that our plan takes for the operation itself."""
    options = {"causal": case.causal, "window": case.window}
    if case.op == "decode":
        options = {"window": case.window, "cache_seqlens": inputs.cache_seqlens}
    elif case.lengths is not None:
        options |= {
            "cu_seqlens_q": inputs.starts,
            "cu_seqlens_k": inputs.starts,
            "max_seqlen_q": case.seqlen,
            "max_seqlen_k": case.seqlen,
        }
    operation = "forward" if case.op == "ragged" else case.op
    q, k, v = (x.detach() for x in inputs.sets[0])
    return tilewise.explain(
        q, k, v, operation=operation, device="cuda" if device == "cuda" else "cpu", **options
    ).kernel


def find_peers(names: list[str] | None, device: str) -> tuple[list[Peer], dict[str, str]]:
    """Those of `names` (None: all) that can be used here, this package first, and for each of the others why not."""
    from . import peers_flash, peers_flashinfer, peers_sdpa

    found, absent = [ours(device)], {}
    loaders = peers_sdpa.LOADERS | peers_flash.LOADERS | peers_flashinfer.LOADERS
    for name in (name for name in PEER_NAMES if names is None or name in names):
        try:
            found.append(loaders[name](device))
        except Refused as reason:
            absent[name] = str(reason)
    return found, absent
