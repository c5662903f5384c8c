"""FlashInfer, where it is installed: its wrapper for ragged keys (forward and ragged batches) and the one for a paged
cache (decode).

It compiles kernels when they are first asked for, unless flashinfer-jit-cache is installed; nothing of that is timed.
Plans are made before, as its users do once for all layers. It has no backward.
"""

from __future__ import annotations

import importlib.metadata

import torch

from .errors import Refused, first_line
from .inputs import DTYPES
from .peers import Peer

WORKSPACE_BYTES = 128 * 2**20  # what its documentation recommends
PAGE_SIZES = (16, 1)


def _window_left(case):
    left, right = case.window or (-1, -1)
    if case.op != "decode" and case.window is not None and right != (0 if case.causal else -1):
        raise Refused(f"its window has no right side: {right}")
    return left


def _plan_options(case):
    dtype = DTYPES[case.dtype]
    return {"window_left": _window_left(case), "q_data_type": dtype, "kv_data_type": dtype}


def _bind_ragged(flashinfer, case, inputs):
    device = inputs.sets[0][0].device
    starts = inputs.starts
    if starts is None:
        starts = torch.arange(case.batch + 1, device=device, dtype=torch.int32) * case.seqlen
    wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(
        torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=device), "NHD"
    )
    wrapper.plan(starts, starts, case.heads, case.heads_kv, case.head_dim, causal=case.causal, **_plan_options(case))
    return lambda q, k, v: wrapper.run(*(x.flatten(0, -3) for x in (q, k, v))).view(q.shape)


def _bind_decode(flashinfer, case, inputs):
    device = inputs.sets[0][0].device
    page = next(size for size in PAGE_SIZES if case.seqlen % size == 0)
    pages = case.seqlen // page
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
        torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=device), "NHD", use_tensor_cores=case.group >= 4
    )
    starts = torch.arange(case.batch + 1, device=device, dtype=torch.int32) * pages
    indices = torch.arange(case.batch * pages, device=device, dtype=torch.int32)
    last = torch.full((case.batch,), page, device=device, dtype=torch.int32)
    wrapper.plan(starts, indices, last, case.heads, case.heads_kv, case.head_dim, page, **_plan_options(case))
    paged = (case.batch * pages, page, case.heads_kv, case.head_dim)
    return lambda q, k, v: wrapper.run(q.flatten(0, 1), (k.view(paged), v.view(paged))).view(q.shape)


def _load(device):
    if device != "cuda":
        raise Refused("for GPUs; this run is on the CPU")
    try:
        import flashinfer
    except ModuleNotFoundError as error:
        raise Refused(
            "flashinfer is not installed" if error.name == "flashinfer" else f"flashinfer does not import: {error}"
        ) from None
    except Exception as error:
        raise Refused(f"flashinfer does not import: {first_line(error)}") from None

    def bind(case, inputs):
        if case.op == "backward":
            raise Refused("it has no backward")
        return (_bind_decode if case.op == "decode" else _bind_ragged)(flashinfer, case, inputs)

    return Peer(
        "flashinfer", "FlashInfer", f"flashinfer-python {importlib.metadata.version('flashinfer-python')}", bind
    )


LOADERS = {"flashinfer": _load}
