"""Who is measured. A peer is a function of (q, k, v, case, cu_seqlens) -> o; what it refuses, it raises."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.metadata
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import tilewise
from tilewise.compat import _is_ours

OURS = "tilewise"
SDPA = {
    "sdpa-flash": SDPBackend.FLASH_ATTENTION,
    "sdpa-cudnn": SDPBackend.CUDNN_ATTENTION,
    "sdpa-efficient": SDPBackend.EFFICIENT_ATTENTION,
    "sdpa-math": SDPBackend.MATH,
}


@dataclasses.dataclass
class Peer:
    name: str
    attend: Callable
    version: str = ""


class Absent(Exception):
    """A peer that is not there; says why."""


def _ours(q, k, v, case, cu_seqlens):
    window = None if case.window is None else (case.window, 0 if case.causal else case.window)
    options = {"causal": case.causal, "window": window}
    if cu_seqlens is None:
        return tilewise.attention(q, k, v, **options)
    lengths = {"max_seqlen_q": case.seqlen, "max_seqlen_k": case.seqlen}
    return tilewise.attention_varlen(q, k, v, cu_seqlens_q=cu_seqlens, cu_seqlens_k=cu_seqlens, **lengths, **options)


def _sdpa(backend, q, k, v, case, cu_seqlens):
    if case.window is not None:
        raise NotImplementedError("scaled_dot_product_attention takes a window only as a mask of seqlen x seqlen")
    if cu_seqlens is not None:
        shortest = min(case.lengths)
        jagged = functools.partial(torch.nested.nested_tensor_from_jagged, min_seqlen=shortest, max_seqlen=case.seqlen)
        q, k, v = (jagged(x, cu_seqlens.long()) for x in (q, k, v))
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    with sdpa_kernel(backend):
        o = F.scaled_dot_product_attention(q, k, v, is_causal=case.causal, enable_gqa=case.heads != case.heads_kv)
    o = o.transpose(1, 2)
    return o if cu_seqlens is None else o.values()


def foreign(name):
    """The module, if it is not Tilewise's drop-in; raises Absent otherwise."""
    try:
        module = importlib.import_module(name)
    except Exception as error:  # a broken wheel raises anything
        raise Absent(f"{name} cannot be imported: {first_line(error)}") from None
    file = getattr(module, "__file__", None)
    own = Path(tilewise.__file__).resolve().parent
    if file and (own in Path(file).resolve().parents or b"Tilewise" in Path(file).read_bytes()):
        raise Absent(f"{name} is Tilewise's own drop-in")
    return module


def first_line(error):
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _flash(module, no_window):
    def attend(q, k, v, case, cu_seqlens):
        window = no_window if case.window is None else (case.window, 0 if case.causal else case.window)
        options = {"causal": case.causal, "window_size": window}
        if cu_seqlens is None:
            o = module.flash_attn_func(q, k, v, **options)
        else:
            options |= {"cu_seqlens_q": cu_seqlens, "cu_seqlens_k": cu_seqlens}
            o = module.flash_attn_varlen_func(q, k, v, max_seqlen_q=case.seqlen, max_seqlen_k=case.seqlen, **options)
        return o[0] if isinstance(o, tuple) else o

    return attend


def _first_of(names):
    reasons = []
    for name in names:
        try:
            return foreign(name)
        except Absent as absent:
            reasons.append(str(absent))
    raise Absent("; ".join(reasons))


class _FlashInfer:
    """Its batched prefill over ragged rows serves every operation but the backward. The plan is made once a case."""

    def __init__(self, module):
        self._module, self._key, self._planned = module, None, None

    def _plan(self, q, case):
        workspace = torch.empty(256 * 2**20, dtype=torch.uint8, device=q.device)
        planned = self._module.BatchPrefillWithRaggedKVCacheWrapper(workspace, "NHD")
        rows = [1 if case.op == "decode" else n for n in case.lengths]
        starts = [torch.tensor([0, *n]).cumsum(0).to(q.device, torch.int32) for n in (rows, case.lengths)]
        left = -1 if case.window is None else case.window
        options = {"causal": case.causal, "window_left": left, "q_data_type": q.dtype}
        planned.plan(*starts, case.heads, case.heads_kv, case.head_dim, **options)
        self._key, self._planned = case, planned

    def __call__(self, q, k, v, case, cu_seqlens):
        if case.op == "backward":
            raise NotImplementedError("FlashInfer has no backward")
        if case.window is not None and not case.causal and case.op != "decode":
            raise NotImplementedError("FlashInfer's window has no right side")
        if self._key != case:
            self._plan(q, case)
        return self._planned.run(*(x.flatten(0, -3) for x in (q, k, v))).view(q.shape)


def _version(*distributions):
    for name in distributions:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "unknown"


def _optional():
    """(name, maker) of the peers that may be absent."""

    def fa(names, distributions, no_window=(-1, -1)):
        return lambda: (_flash(_first_of(names), no_window), _version(*distributions))

    yield "fa2", fa(["flash_attn"], ["flash-attn"])
    yield "fa3", fa(["flash_attn_interface", "fa3_fwd_interface"], ["flash-attn-3", "fa3-fwd"])
    yield "fa4", fa(["flash_attn.cute"], ["flash-attn-4", "flash-attn-cute"], (None, None))
    yield "flashinfer", lambda: (_FlashInfer(foreign("flashinfer")), _version("flashinfer-python"))


def available():
    """(peers, {name: why it is absent}); ours is the first."""
    peers = [Peer(OURS, _ours, tilewise.__version__)]
    peers += [Peer(name, functools.partial(_sdpa, backend), torch.__version__) for name, backend in SDPA.items()]
    absent = {}
    for name, make in _optional():
        try:
            peers.append(Peer(name, *make()))
        except Absent as reason:
            absent[name] = str(reason)
    return peers, absent
