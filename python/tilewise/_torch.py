"""Operations on torch tensors. A call that records no gradient goes straight to the module."""

import torch

from . import _native
from ._shapes import merged_shapes, output_shapes


def empty_like(q, shape):
    """A new tensor of `shape` whose axes lie in memory in the order of q's, so that a view that fits q fits it."""
    if tuple(q.shape) == shape:
        return torch.empty_like(q)
    strides = q.stride()
    order = sorted(range(len(shape)), key=lambda axis: strides[axis])
    if 0 in strides:
        order = list(reversed(range(len(shape))))
    own = [0] * len(shape)
    own[order[0]] = 1
    for inner, axis in zip(order, order[1:]):
        own[axis] = own[inner] * max(shape[inner], 1)
    return torch.empty_strided(shape, own, dtype=q.dtype, device=q.device)


def empty_lse(q, shape):
    return torch.empty(shape, dtype=torch.float64 if q.dtype == torch.float64 else torch.float32, device=q.device)


def place(q):
    """Arguments of a launch that say where it runs; torch >= 2.10 tells its stream through the exchange table."""
    if _HAS_TABLE or not q.is_cuda:
        return _PLACE
    return {**_PLACE, "stream": torch._C._cuda_getCurrentRawStream(q.device.index)}


def allocate(size, index):
    return torch.empty(size, dtype=torch.uint8, device=torch.device("cuda", index))


_PLACE = {"allocate": allocate}
_HAS_TABLE = hasattr(torch.Tensor, "__dlpack_c_exchange_api__")


def refuse_capture(q):
    """A seed is a number of a launch, so a graph would drop the same p in every replay."""
    if q.is_cuda and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "dropout_p: a CUDA graph that is being captured would repeat one drawn seed in every replay; give dropout_seed to accept that"
        )


def seed(q):
    """From torch's generator of the CPU: torch.manual_seed repeats it, and no GPU is waited for."""
    refuse_capture(q)
    return int(torch.randint(0, 2**63 - 1, (), dtype=torch.int64, device="cpu"))


def outputs(q, v, fields, return_lse, out):
    shape, lse_shape = output_shapes(q, v)
    o = empty_like(q, shape) if out is None else out
    if out is None and "seqused_q" in fields:
        o.zero_()  # rows past it are not written
    return o, empty_lse(q, lse_shape) if return_lse else None


def note_written(*tensors):
    """What autograd saved of a tensor that is written in place is stale now: its backward must find that out."""
    for x in tensors:
        if isinstance(x, torch.Tensor) and not x.is_inference():
            torch.autograd.graph.increment_version(x)


class Torch:
    """The operations, as `_arrays.Numpy` has them. What torch must know of, gradients above all, goes through `torch_dispatch`."""

    def __init__(self):
        from . import torch_dispatch  # which needs this module

        self.dispatch = torch_dispatch
        self.attend = torch_dispatch.attend

    def stack(self, arrays):
        return torch.stack(arrays)

    def attention(self, tensors, fields, return_lse, out):
        if self.dispatch.is_needed(tensors, fields):
            return self.dispatch.attention(tensors, fields, return_lse, out)
        q, k, v = tensors
        if fields.get("dropout_p") and "dropout_seed" not in fields:
            fields["dropout_seed"] = seed(q)
        o, lse = outputs(q, v, fields, return_lse, out)
        _native.run(_native.FORWARD, q=q, k=k, v=v, o=o, lse=lse, **place(q), **fields)
        if out is not None:
            note_written(out)
        return (o, lse) if return_lse else o

    def decode(self, tensors, fields, return_lse, out):
        if self.dispatch.is_needed(tensors, fields):
            return self.dispatch.decode(tensors, fields, return_lse, out)
        q, k, v, k_new, v_new = tensors
        o, lse = outputs(q, v, fields, return_lse, out)
        _native.run(_native.DECODE, q=q, k=k, v=v, k_new=k_new, v_new=v_new, o=o, lse=lse, **place(q), **fields)
        if k_new is not None or out is not None:
            note_written(k, v, out)
        return (o, lse) if return_lse else o

    def append(self, tensors, fields):
        if self.dispatch.is_needed(tensors, fields):
            return self.dispatch.append(tensors, fields)
        k, v, k_new, v_new = tensors
        _native.run(_native.APPEND, k=k, v=v, k_new=k_new, v_new=v_new, **place(k), **fields)
        note_written(k, v)

    def merge(self, partial_o, partial_lse, fields):
        if self.dispatch.is_needed((partial_o, partial_lse), fields):
            return self.dispatch.merge(partial_o, partial_lse, fields)
        shape, lse_shape = merged_shapes(partial_o, partial_lse)
        o = partial_o.new_empty(shape)
        lse = partial_lse.new_empty(lse_shape)
        _native.run(
            _native.COMBINE, partial_o=partial_o, partial_lse=partial_lse, o=o, lse=lse, **place(partial_o), **fields
        )
        return o, lse
