"""The keyword arguments of the public functions: one table, from Python's names to the fields of the C interface.

A function takes `**options` and gives them to `fields_of`, so only what a caller gives costs time, a misspelt name is an error, and a
new option is one line here. `None` always means "not given".
"""

from __future__ import annotations

import difflib
import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    F = TypeVar("F", bound=Callable[..., Any])


def _window(fields, value):
    try:
        left, right = value
    except (TypeError, ValueError):
        raise TypeError(f"window: a pair (left, right) is expected, not {value!r}") from None
    fields["window_left"] = -1 if left is None else left
    if right is not None:
        fields["window_right"] = right


def _diagonal(fields, value):
    if value not in ("bottom_right", "top_left"):
        raise ValueError(f'diagonal: {value!r} is unknown; "bottom_right" and "top_left" are allowed')
    fields["top_left"] = value == "top_left"


def _prefix(fields, value):
    is_array = not isinstance(value, int) and getattr(value, "shape", ()) != ()
    fields["prefix_lens" if is_array else "prefix"] = value


def _bound(name):
    def put(fields, value):
        if not isinstance(value, int) and hasattr(value, "item"):
            # Only a bound: to wait for a GPU's number would cost more than to plan without it.
            if getattr(value, "is_cuda", False):
                return
            value = value.item()
        fields[name] = value

    return put


# name: the field, or a function that puts fields
_LENGTHS = {
    "cu_seqlens_q": "cu_seqlens_q",
    "cu_seqlens_k": "cu_seqlens_k",
    "max_seqlen_q": _bound("max_seqlen_q"),
    "max_seqlen_k": _bound("max_seqlen_k"),
    "seqused_q": "seqused_q",
    "leftpad_k": "leftpad_k",
    "page_table": "page_table",
}
_MASK = {
    "causal": "causal",
    "window": _window,
    "diagonal": _diagonal,
    "chunk": "chunk",
    "prefix": _prefix,
    "block": "block",
    "mask": "mask",
    "key_begin": "key_begin",
    "key_end": "key_end",
}
_SCORE = {
    "scale": "softmax_scale",
    "softcap": "softcap",
    "alibi_slopes": "alibi_slopes",
    "bias": "bias",
    "sink": "sink",
}
_DROPOUT = {"dropout_p": "dropout_p", "dropout_seed": "dropout_seed", "dropout_offset": "dropout_offset"}
_EXECUTION = {
    "batch_invariant": "batch_invariant",
    "num_splits": "num_splits",
    "num_threads": "num_threads",
    "kernel": "kernel",
    "stream": "stream",
}
_CACHE = {
    "cache_seqlens": "cache_seqlens",
    "cache_batch_idx": "cache_batch_idx",
    "page_table": "page_table",
    "leftpad_k": "leftpad_k",
    "cu_seqlens_k_new": "cu_seqlens_k_new",
    "rotary_cos": "rotary_cos",
    "rotary_sin": "rotary_sin",
    "rotary_seqlens": "rotary_seqlens",
    "rotary_interleaved": "rotary_interleaved",
    "error_flag": "error_flag",
}

ATTENTION = {
    **_MASK,
    **_SCORE,
    **_DROPOUT,
    **_LENGTHS,
    "seqused_k": "seqused_k",
    "deterministic": "deterministic",
    **_EXECUTION,
}
DECODE = {**_MASK, **_SCORE, **_LENGTHS, **_CACHE, **_EXECUTION}
APPEND = {**_CACHE, "num_threads": "num_threads", "kernel": "kernel", "stream": "stream"}
MERGE = {"num_threads": "num_threads", "kernel": "kernel", "stream": "stream"}
EXPLAIN = {**ATTENTION, **DECODE}

# What other libraries call these.
_OTHER_NAMES = {
    "softmax_scale": "scale",
    "sm_scale": "scale",
    "is_causal": "causal",
    "attn_mask": "mask",
    "attn_bias": "bias",
    "window_size": "window",
    "sliding_window": "window",
    "block_table": "page_table",
    "cache_leftpad": "leftpad_k",
    "s_aux": "sink",
    "sinks": "sink",
    "logits_soft_cap": "softcap",
    "return_softmax_lse": "return_lse",
}


def fields_of(options, table, function):
    """The given options as fields of the C interface."""
    fields = {}
    for name, value in options.items():
        if value is None:
            continue
        target = table.get(name)
        if isinstance(target, str):
            fields[target] = value
        elif target is None:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{_hint(name, table)}")
        else:
            target(fields, value)
    if "window_right" not in fields and "window_left" in fields and fields.get("causal"):
        fields["window_right"] = 0
    return fields


def _hint(name, table):
    known = _OTHER_NAMES.get(name)
    if known is None or (known not in table and known != "return_lse"):
        known = next(iter(difflib.get_close_matches(name, table, 1)), None)
    return f"; did you mean {known!r}?" if known else ""


def takes(table: dict[str, Any]) -> Callable[[F], F]:
    """Shows the options of `table` in the signature of a function that takes `**options`."""

    def show(function: F) -> F:
        own = inspect.signature(function)
        named = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        options = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in table]
        function.__signature__ = own.replace(parameters=named + options)  # type: ignore[attr-defined]
        return function

    return show
