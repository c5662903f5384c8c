"""The array libraries: which one an array is of, and the operations on its arrays. NumPy, CuPy, JAX and whatever else has `__dlpack__`
are here; torch has autograd and is in `_torch.py`. None is imported before its arrays come in: the package works with any one alone.
"""

import random
import sys

from . import _native
from ._shapes import merged_shapes, output_shapes


class Numpy:
    """Operations on NumPy arrays, and on the bfloat16 of ml_dtypes, which has no DLPack form."""

    def __init__(self):
        import numpy

        self.numpy = numpy

    def export(self, array):
        """What the module reads: the array, or its address and type in words."""
        if type(array) is not self.numpy.ndarray or array.dtype.name != "bfloat16":
            return array
        strides = tuple(stride // 2 for stride in array.strides)
        return (array.__array_interface__["data"][0], "bf16", array.shape, strides, "cpu")

    def empty(self, like, shape):
        return self.numpy.empty(shape, like.dtype)

    def empty_lse(self, like, shape):
        return self.numpy.empty(shape, "float64" if like.dtype == "float64" else "float32")

    def finish(self, array):
        return array

    def stack(self, arrays):
        return self.numpy.stack(arrays)

    def place(self):
        """Arguments of a launch that say where it runs."""
        return {}

    def seed(self):
        return random.getrandbits(63)

    def run(self, op, **fields):
        arrays = {name: self.export(value) for name, value in fields.items() if value is not None}
        _native.run(op, **self.place(), **arrays)

    def _outputs(self, q, v, fields, return_lse, out):
        shape, lse_shape = output_shapes(q, v)
        o = self.empty(q, shape) if out is None else out
        if out is None and "seqused_q" in fields:
            o[...] = 0  # rows past it are not written
        return o, self.empty_lse(q, lse_shape) if return_lse else None

    def _finish(self, o, lse, out):
        o = self.finish(o) if out is None else out
        return o if lse is None else (o, self.finish(lse))

    def attend(self, *_):
        return None  # torch's short cut

    def attention(self, tensors, fields, return_lse, out):
        q, k, v = tensors
        if fields.get("dropout_p") and "dropout_seed" not in fields:
            fields["dropout_seed"] = self.seed()
        o, lse = self._outputs(q, v, fields, return_lse, out)
        self.run(_native.FORWARD, q=q, k=k, v=v, o=o, lse=lse, **fields)
        return self._finish(o, lse, out)

    def decode(self, tensors, fields, return_lse, out):
        q, k, v, k_new, v_new = tensors
        o, lse = self._outputs(q, v, fields, return_lse, out)
        self.run(_native.DECODE, q=q, k=k, v=v, k_new=k_new, v_new=v_new, o=o, lse=lse, **fields)
        return self._finish(o, lse, out)

    def append(self, tensors, fields):
        k, v, k_new, v_new = tensors
        self.run(_native.APPEND, k=k, v=v, k_new=k_new, v_new=v_new, **fields)

    def merge(self, partial_o, partial_lse, fields):
        shape, lse_shape = merged_shapes(partial_o, partial_lse)
        o, lse = self.empty(partial_o, shape), self.empty_lse(partial_lse, lse_shape)
        self.run(_native.COMBINE, partial_o=partial_o, partial_lse=partial_lse, o=o, lse=lse, **fields)
        return self.finish(o), self.finish(lse)


class Jax(Numpy):
    """JAX on the CPU. Its arrays cannot be written, so outputs are NumPy's until they are finished."""

    def __init__(self):
        super().__init__()
        import jax.numpy

        self.jax, self.jax_numpy = jax, jax.numpy

    def export(self, array):
        if any(device.platform != "cpu" for device in getattr(array, "devices", tuple)()):
            raise NotImplementedError(
                "a JAX array on a GPU: arrays of JAX are served on the CPU; take torch tensors or CuPy arrays there (both read it by DLPack)"
            )
        return super().export(array)

    def finish(self, array):
        return self.jax.device_put(array, self.jax.devices("cpu")[0])

    def stack(self, arrays):
        return self.jax_numpy.stack(arrays)


class Cupy(Numpy):
    """CuPy: memory from its pool, work on its current stream."""

    def __init__(self):
        import cupy

        self.numpy = cupy

    def place(self):
        stream = self.numpy.cuda.get_current_stream()
        return {"stream": stream.ptr, "allocate": lambda size, _: self.numpy.empty(size, "uint8")}


_known: dict[type, object] = {}  # the library of each type of array


def library_of(array, argument="q"):
    """The library of `array`; TypeError for what is no array."""
    library = _known.get(type(array))
    return library if library is not None else _find(array, argument)


def _find(array, argument):
    kind = type(array)
    torch = sys.modules.get("torch")
    root = kind.__module__.partition(".")[0]
    if torch is not None and isinstance(array, torch.Tensor):
        from ._torch import Torch

        library = Torch()
    elif root in ("jax", "jaxlib"):
        library = Jax()
    elif root == "cupy":
        library = Cupy()
    elif hasattr(kind, "__dlpack__") and hasattr(kind, "dtype"):
        library = Numpy()
    else:
        raise TypeError(f"{argument}: a tensor (torch, or an array with __dlpack__) is expected, not {kind.__qualname__}")
    _known[kind] = library
    return library
