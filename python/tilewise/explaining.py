"""Which kernel a call runs, and why: `explain`, on arrays or on shapes alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _native
from ._options import EXPLAIN, fields_of, takes
from ._shapes import output_shapes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Unpack

    from ._typing import Array, ExplainOptions


class Spec(NamedTuple):
    """A tensor without memory, as the native module reads it."""

    address: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    device: str


def spec(shape: Sequence[int], dtype: object, strides: Sequence[int] | None = None) -> Spec:
    """A tensor without memory, for `explain`: its shape, the name of its element type, and its strides if it is not contiguous.

    >>> import tilewise
    >>> tilewise.spec((2, 128, 8, 64), "bfloat16").dtype
    'bfloat16'
    """
    return Spec(0, str(dtype), tuple(shape), None if strides is None else tuple(strides), "meta")


@dataclass(frozen=True)
class Explanation:
    """A plan: `kernel` its main kernel, `text` for people (also `str()`), `plan` as a dict, `workspace_bytes` the memory that a launch needs."""

    kernel: str
    text: str
    plan: dict[str, Any]
    workspace_bytes: int

    def __str__(self) -> str:
        return self.text


_OPERATIONS = {"forward": _native.FORWARD, "backward": _native.BACKWARD, "decode": _native.DECODE}


def _dtype_of(tensor):
    return str(tensor.dtype).rpartition(".")[2]


def _with_outputs(operation, q, k, v):
    """The tensors that the operation computes, contiguous as the functions of this package make them."""
    o, lse = output_shapes(q, v)
    dtype = _dtype_of(q)
    tensors = {"o": spec(o, dtype), "lse": spec(lse, "float64" if dtype in ("float64", "f64") else "float32")}
    if operation == "backward":
        tensors["grad_o"] = spec(o, dtype)
        for name, tensor in (("grad_q", q), ("grad_k", k), ("grad_v", v)):
            tensors[name] = spec(tensor.shape, dtype)
    return tensors


@takes(EXPLAIN)
def explain(
    q: Array,
    k: Array,
    v: Array,
    *,
    operation: str = "forward",
    device: str | None = None,
    k_new: Array | None = None,
    v_new: Array | None = None,
    **options: Unpack[ExplainOptions],
) -> Explanation:
    """How a call would run: which kernel, with which tiles and splits, how much workspace, and why each other kernel was refused.

    Nothing is computed and no memory is read.

    Args:
        q, k, v: arrays, meta tensors of torch, or `spec(shape, dtype)`.
        operation: "forward" (`attention`), "backward" or "decode" (with the caches as k and v, and k_new, v_new).
        device: where: "cpu", "cuda:0", or "recorded:h200" for a GPU that is not here; default is where the arrays are.
        options: those of `attention` or `decode`.

    Returns:
        an `Explanation`: `print(...)` shows the plan's text, `.plan` is a dict.

    Raises:
        NotImplementedError: nothing serves the call; the message has each kernel's reason.
        ValueError, TypeError: as the call itself would.

    >>> import tilewise
    >>> q = tilewise.spec((2, 1000, 8, 64), "float32")
    >>> plan = tilewise.explain(q, q, q, causal=True, device="cpu")
    >>> plan.kernel.startswith("cpu_tiled_forward_f32")
    True
    """
    if operation not in _OPERATIONS:
        raise ValueError(f"operation: {operation!r} is unknown; allowed are {', '.join(_OPERATIONS)}")
    fields = fields_of(options, EXPLAIN, "explain")
    tensors = {"q": q, "k": k, "v": v, "k_new": k_new, "v_new": v_new, **_with_outputs(operation, q, k, v)}
    fields.pop("stream", None)
    if device is None and isinstance(q, Spec):
        device = "cpu"
    kernel, text, plan, size = _native.explain(_OPERATIONS[operation], device=device, **tensors, **fields)
    return Explanation(kernel, text, json.loads(plan), size)
