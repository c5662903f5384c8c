"""Calls on torch tensors that cannot go straight to the module: traced ones, those under autocast, and those that record gradients."""

import torch
from torch.autograd import forward_ad

from . import _native
from ._options import ATTENTION
from ._torch import allocate, seed
from .torch_autograd import PLAIN_TYPES, QUESTIONS, Attention, Merge, TransformedAttention, is_traced

_ops = torch.ops.tilewise
_NUMBERS = (int, float, str, torch.SymInt, torch.SymFloat)
_compiles = torch.compiler.is_compiling
_transform = torch._C._functorch.peek_interpreter_stack


def _is_recorded(tensors):
    """Whether gradients may be asked for. A Function is also what tells a transform and forward-mode AD that it serves neither."""
    if not _compiles() and (_transform() is not None or forward_ad._current_level >= 0):
        return True
    return _wants_gradients(tensors)


def _wants_gradients(tensors):
    if torch.is_grad_enabled():
        for x in tensors:
            if isinstance(x, torch.Tensor) and x.requires_grad:
                return True
    return False


def is_needed(tensors, fields):
    """Whether a call must go through this module. Every call pays for the answer."""
    return _compiles() or not _native.is_plain(*tensors, *fields.values())


def attend(q, k, v, options):
    """The common call, up to the launch one step of the module; None where it is not common."""
    return None if _compiles() else _native.attend(q, k, v, options)


# A seed is drawn, rows past seqused_q are set to 0: more than one step.
_MORE = ("dropout_p", "dropout_seed", "dropout_offset", "seqused_q")
_FIELDS = {name: field for name, field in ATTENTION.items() if isinstance(field, str) and name not in _MORE}
_native.bind_torch(
    PLAIN_TYPES, (*QUESTIONS, torch._C._is_any_autocast_enabled), torch.is_grad_enabled, forward_ad, torch.empty_like, allocate, _FIELDS
)


def _as_tensors(values):
    """Arrays of other libraries as tensors; None stays."""
    return [x if x is None or isinstance(x, torch.Tensor) else torch.as_tensor(x) for x in values]


def _autocast(tensors, dtype=None):
    """What torch's own matrix products do: floating-point tensors, float64 apart, take autocast's type (or that of the cache)."""
    device_type = tensors[0].device.type
    if not torch.is_autocast_enabled(device_type):
        return tensors
    dtype = torch.get_autocast_dtype(device_type) if dtype is None else dtype
    if any(x is not None and x.dtype == torch.float64 for x in tensors):
        return tensors
    return [x if x is None or not x.is_floating_point() else x.to(dtype) for x in tensors]


def _refuse_stream(fields):
    if "stream" in fields:
        raise NotImplementedError(
            "stream: a call that is traced or records gradients runs on torch's current stream; use `with torch.cuda.stream(...)`"
        )


def _split(fields):
    """Tensors by name, and numbers by name as pairs that fit a schema."""
    tensors, options = {}, []
    for name, value in fields.items():
        if name in ("dropout_seed", "dropout_offset"):
            if value < 0 or value >= 2**64:
                raise ValueError(f"{name}: {value} is out of range; 0 to 2^64 - 1 is allowed")
            value = value - 2**64 if value >= 2**63 else value
        if isinstance(value, torch.Tensor):
            tensors[name] = value
        elif isinstance(value, _NUMBERS) or getattr(value, "shape", ()) == ():
            options.append(("kernel_name" if name == "kernel" else name, value))
        else:
            tensors[name] = torch.as_tensor(value)
    return tensors, tuple(options)


_INSTEAD = {
    "softmax_scale": "scale: has no gradient; multiply q by it, with scale=1, or detach it",
    "alibi_slopes": "alibi_slopes: have no gradient; detach them, or give a bias",
}


def _refuse_untaught(tensors, out):
    """Gradients that no kernel computes, by name and before any work."""
    if out is not None:
        raise NotImplementedError("out: gradients are not recorded into a given tensor; leave it out, or call under torch.no_grad()")
    if "page_table" in tensors:
        raise NotImplementedError("page_table: a cache has no gradient; gather its pages into k and v first")
    for name, x in tensors.items():
        if name not in ("bias", "sink") and x.requires_grad:
            raise NotImplementedError(_INSTEAD.get(name, f"{name}: has no gradient; detach it"))


def _distinct(tensors):
    """Another view of a tensor that comes a second time, as in attention(x, x, x): torch.compile takes each only once for a Function."""
    seen = []
    for x in tensors:
        seen.append(x.view_as(x) if any(x is y for y in seen) else x)
    return seen


def _draw(tensors, fields):
    """A seed for a call that has none. Traced it is a part of the program, so that every step gets its own."""
    if is_traced(tensors):
        fields["dropout_state"] = torch.randint(0, 2**63 - 1, (1,), dtype=torch.int64, device="cpu")
    else:
        fields["dropout_seed"] = seed(tensors[0])


def attention(tensors, fields, return_lse, out):
    q, k, v = _autocast(_as_tensors(tensors))
    _refuse_stream(fields)
    if fields.get("dropout_p") and "dropout_seed" not in fields:
        _draw((q, k, v), fields)
    if torch.is_grad_enabled() and torch.are_deterministic_algorithms_enabled():
        fields["deterministic"] = True
    others, options = _split(fields)
    if _is_recorded((q, k, v, *others.values())):
        _refuse_untaught(others, out)
        given = (q, k, v, *others.values())
        if _compiles():
            given = _distinct(given)
        function = Attention if _compiles() or _transform() is None else TransformedAttention
        o, lse = function.apply(tuple(others), options, *given)
    else:
        fields = {**dict(options), **others}
        if out is not None:
            o, lse = out, _ops.attention_out.default(q, k, v, out, **fields)
        elif "dropout_state" in fields:
            o, lse = _ops.attention_dropout.default(q, k, v, **fields)
        else:
            o, lse = _ops.attention.default(q, k, v, **fields)
    return (o, lse) if return_lse else o


def _refuse_gradients(tensors, fields):
    if _wants_gradients((*tensors, *fields.values())):
        raise NotImplementedError(
            "q, k_new, v_new: a cache is written in place and records no gradients; use attention, or call under torch.no_grad()"
        )


def decode(tensors, fields, return_lse, out):
    q, k, v, k_new, v_new = _as_tensors(tensors)
    _refuse_gradients(tensors, fields)
    _refuse_stream(fields)
    if out is not None and "seqused_q" in fields:
        raise NotImplementedError("out: rows past seqused_q cannot keep what they hold in a traced call; leave one of the two out")
    q, k_new, v_new = _autocast([q, k_new, v_new], k.dtype)
    others, options = _split(fields)
    o, lse = _ops.decode.default(q, k, v, k_new, v_new, **dict(options), **others)
    if out is not None:
        o = out.copy_(o)
    return (o, lse) if return_lse else o


def append(tensors, fields):
    k, v, k_new, v_new = _as_tensors(tensors)
    _refuse_gradients(tensors, fields)
    _refuse_stream(fields)
    k_new, v_new = _autocast([k_new, v_new], k.dtype)
    others, options = _split(fields)
    _ops.append.default(k, v, k_new, v_new, **dict(options), **others)


def merge(partial_o, partial_lse, fields):
    partial_o, partial_lse = _as_tensors((partial_o, partial_lse))
    _refuse_stream(fields)
    options = _split(fields)[1]
    if _is_recorded((partial_o, partial_lse)):
        return Merge.apply(options, partial_o, partial_lse)
    return _ops.merge.default(partial_o, partial_lse, **dict(options))
