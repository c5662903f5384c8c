"""torch.nn.functional.scaled_dot_product_attention, each of its back ends pinned.

It has no window: such a case gives it a bool mask of seqlen x seqlen, which FlashAttention's back end refuses. Ragged
batches are nested tensors of the jagged layout. torch tells the reasons of a refusal in warnings and in a log, from
where they are taken.
"""

from __future__ import annotations

import logging
import re
import warnings
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from .errors import Refused, first_line
from .peers import Peer

LABELS = {
    "flash": "FlashAttention-2 (torch SDPA)",
    "cudnn": "cuDNN (torch SDPA)",
    "efficient": "efficient (torch SDPA)",
    "math": "math (torch SDPA)",
}
_NESTED_LOG = "torch.nested._internal.sdpa"
_NOISE = re.compile(r"runtime disabled")
_HEADING = re.compile(r"(.*) kernel not used because:")


class _Collector(logging.Handler):
    def __init__(self, texts):
        super().__init__()
        self.texts = texts

    def emit(self, record):
        self.texts.append(record.getMessage())


def reasons_of(name: str, texts: list[str]) -> list[str]:
    """What torch has said about one back end: the lines below its heading, or all where there is no heading, apart from
    those about back ends that are switched off, as pinning does."""
    chosen, about = [], None
    for text in texts:
        heading = _HEADING.match(text)
        if heading:
            about = heading[1].lower()
        elif (about is None or name in about) and not _NOISE.search(text):
            chosen.append(re.sub(r"\s*\(Triggered internally.*", "", text, flags=re.DOTALL))
    return list(dict.fromkeys(chosen))


@contextmanager
def _reasons(name):
    """Turns a RuntimeError of torch into a Refused with what torch has said meanwhile."""
    logged, warned, log = [], [], logging.getLogger(_NESTED_LOG)
    handler, propagate = _Collector(logged), log.propagate
    log.addHandler(handler)
    log.propagate = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = lambda message, *_: warned.append(str(message))
            yield
    except torch.cuda.OutOfMemoryError:
        raise
    except RuntimeError as error:
        told = reasons_of(name, logged) + reasons_of(name, warned)
        raise Refused("; ".join(told) or first_line(error)) from None
    finally:
        log.removeHandler(handler)
        log.propagate = propagate


def _window_mask(case, device):
    queries, keys = case.sequences[0]
    i = torch.arange(keys - queries, keys, device=device)[:, None]
    j = torch.arange(keys, device=device)[None, :]
    left, right = case.window
    seen = torch.ones(queries, keys, dtype=torch.bool, device=device)
    if left >= 0:
        seen &= j >= i - left
    if right >= 0:
        seen &= j <= i + right
    return seen


def _grouped(case):
    return {"enable_gqa": True} if case.group > 1 else {}  # torch 2.4 does not know the word


def _dense(case, backend, device):
    options = {"is_causal": case.causal, **_grouped(case)}
    if case.window is not None:
        options |= {"is_causal": False, "attn_mask": _window_mask(case, device)}

    def attend(q, k, v):
        with sdpa_kernel(backend):
            o = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), **options)
        return o.transpose(1, 2)

    return attend


def _ragged(case, backend, starts):
    if case.window is not None:
        raise Refused("nested tensors take no mask, so no window")
    starts = starts.long()
    bounds = {"min_seqlen": min(case.lengths), "max_seqlen": max(case.lengths)}
    options = {"is_causal": case.causal, **_grouped(case)}

    def nested(x):
        return torch.nested.nested_tensor_from_jagged(x, starts, **bounds).transpose(1, 2)

    def attend(q, k, v):
        with sdpa_kernel(backend):
            o = F.scaled_dot_product_attention(nested(q), nested(k), nested(v), **options)
        return o.transpose(1, 2).values()

    return attend


def _loader(name):
    backend = getattr(SDPBackend, f"{name.upper()}_ATTENTION" if name != "math" else "MATH")

    def load(device):
        if device == "cpu" and name in ("cudnn", "efficient"):
            raise Refused("a back end for GPUs; this run is on the CPU")

        def bind(case, inputs):
            attend = _dense(case, backend, device) if case.lengths is None else _ragged(case, backend, inputs.starts)
            with _reasons(name):
                attend(*inputs.sets[0])
            return attend

        label = LABELS[name] if device == "cuda" else f"{name} (torch SDPA)"
        return Peer(f"sdpa-{name}", label, f"torch {torch.__version__}", bind)

    return load


LOADERS = {f"sdpa-{name}": _loader(name) for name in LABELS}
