"""Tilewise as the flash attention of `torch.nn.functional.scaled_dot_product_attention`, on GPUs, in torch 2.11 and newer.

    import tilewise.integrations.sdpa
    tilewise.integrations.sdpa.register()
    torch.nn.attention.activate_flash_attention_impl("tilewise")
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    torch.nn.attention.restore_flash_attention_impl()

What is replaced is the CUDA kernel of five operators; their names, layouts and gradient formulas stay torch's:

    aten::_scaled_dot_product_flash_attention, _scaled_dot_product_flash_attention_backward
        (batch, heads, seqlen, head_dim); F.scaled_dot_product_attention, CausalBias, context parallelism
    aten::_flash_attention_forward, _flash_attention_forward_no_dropout_inplace, _flash_attention_backward
        (batch, seqlen, heads, head_dim), or ragged (total, heads, head_dim); nested tensors, varlen_attn
"""

from __future__ import annotations

import torch
import torch.nn.attention

from .. import torch_ops
from .._options import ATTENTION, fields_of
from .._torch import empty_like

__all__ = ["register"]

_OLDEST = "2.11"
_API = ("register_flash_attention_impl", "activate_flash_attention_impl", "restore_flash_attention_impl")


def register(name: str = "tilewise") -> None:
    """Adds `name` to torch's flash attention implementations; `activate_flash_attention_impl(name)` then turns it on.

    Raises:
        NotImplementedError: torch has no such implementations to choose from.
    """
    if not all(hasattr(torch.nn.attention, function) for function in _API):
        raise NotImplementedError(
            f"torch: {torch.__version__} cannot exchange its flash attention; {_OLDEST} and newer can "
            f"(torch.nn.attention.{_API[0]}). tilewise.attention works without that."
        )
    torch.nn.attention.register_flash_attention_impl(name, register_fn=activate)


class Handle:
    """Keeps the kernels in torch's dispatcher until it is removed."""

    def __init__(self, library: torch.library.Library):
        self._library: torch.library.Library | None = library

    def remove(self) -> None:
        self._library = None


def activate(key: str = "CUDA") -> Handle:
    """Puts the kernels at `key` of the dispatcher."""
    library = torch.library.Library("aten", "IMPL")
    for operator, kernel in KERNELS.items():
        if hasattr(torch.ops.aten, operator):
            library.impl(operator, _bound(operator, kernel), key)
    return Handle(library)


def _bound(operator, kernel):
    """The kernel as torch calls it: arguments by position or by name, as many as this torch has."""
    arguments = getattr(torch.ops.aten, operator).default._schema.arguments
    names = [x.name for x in arguments]
    defaults = {x.name: x.default_value for x in arguments}
    unknown = [name for name in names if name not in _KNOWN]

    def call(*args, **kwargs):
        given = {**defaults, **dict(zip(names, args)), **kwargs}
        for name in unknown:
            x = given.pop(name)
            if x is not None and (isinstance(x, torch.Tensor) or x != defaults[name]):
                raise NotImplementedError(f"{operator}: {name}: {x!r} is not served")
        return kernel(given)

    return call


_KNOWN = frozenset(
    "query key value out logsumexp grad_out cum_seq_q cum_seq_k max_q max_k dropout_p is_causal return_debug_mask scale "
    "window_size_left window_size_right seqused_k alibi_slopes block_table num_splits "
    "rng_state unused philox_seed philox_offset".split()
)
# What torch's backward does not hear of, so that its gradients would be those of another call.
_FORWARD_ONLY = ("seqused_k", "alibi_slopes", "block_table")


def _refuse(given):
    if given["dropout_p"]:
        raise NotImplementedError(
            f"dropout_p: {given['dropout_p']} is not served through torch's operators; use 0 here, or tilewise.attention"
        )
    if given.get("return_debug_mask"):
        raise NotImplementedError("return_debug_mask: True is not served; no probabilities are kept")
    if torch.is_grad_enabled() and any(given[name].requires_grad for name in ("query", "key", "value")):
        for name in _FORWARD_ONLY:
            if given.get(name) is not None:
                raise NotImplementedError(
                    f"{name}: torch's operators have no gradient with it; call under torch.no_grad(), or use "
                    "tilewise.attention"
                )


def _side(given, name):
    """Of a window: torch's -1 (any negative number) and None are both unlimited."""
    value = given.get(name)
    return None if value is None or value < 0 else value


def _fields(given):
    """The call as fields of the C interface. Both libraries align causal masks and windows to the bottom right."""
    options = {
        "causal": given["is_causal"],
        "scale": given["scale"],
        "seqused_k": given.get("seqused_k"),
        "alibi_slopes": given.get("alibi_slopes"),
        "page_table": given.get("block_table"),
        "num_splits": given.get("num_splits"),
    }
    left, right = _side(given, "window_size_left"), _side(given, "window_size_right")
    if left is not None or right is not None:
        options["window"] = (left, 0 if given["is_causal"] else right)
    if given.get("cum_seq_q") is not None:
        options |= {"cu_seqlens_q": given["cum_seq_q"], "max_seqlen_q": given["max_q"]}
        if options["page_table"] is None:
            options |= {"cu_seqlens_k": given["cum_seq_k"], "max_seqlen_k": given["max_k"]}
    return fields_of(options, ATTENTION, "attention")


def _by_heads(*tensors):
    return [x.transpose(1, 2) for x in tensors]


def _extras(query):
    """What torch's operators return besides: a random state, which a call without dropout never reads; no mask."""
    state = torch.empty(2, dtype=torch.uint64, device=query.device)
    offset = torch.empty((), dtype=torch.uint64, device=query.device)
    return state, offset, torch.empty(0, dtype=query.dtype, device=query.device)


def _sdpa_forward(given):
    _refuse(given)
    query, key, value = given["query"], given["key"], given["value"]
    out = empty_like(query, (*query.shape[:-1], value.shape[-1]))
    lse = torch_ops.attention_out(*_by_heads(query, key, value, out), **_fields(given))
    return out, lse, None, None, query.shape[2], key.shape[2], *_extras(query)


def _sdpa_backward(given):
    names = ("grad_out", "query", "key", "value", "out")
    transposed = dict(zip(names, _by_heads(*[given[name] for name in names])))
    return tuple(_by_heads(*_backward({**given, **transposed})))


def _forward(given):
    _refuse(given)
    o, lse = torch_ops.attention(given["query"], given["key"], given["value"], **_fields(given))
    return o, lse, *_extras(given["query"])


def _forward_into(given):
    _refuse(given)
    return torch_ops.attention_out(*[given[name] for name in ("query", "key", "value", "out")], **_fields(given))


def _backward(given):
    _refuse(given)
    fields = _fields(given)
    if torch.are_deterministic_algorithms_enabled():
        fields["deterministic"] = True
    saved = [given[name] for name in ("query", "key", "value", "out", "logsumexp")]
    return tuple(torch_ops.attention_backward(given["grad_out"], None, *saved, **fields))


KERNELS = {
    "_scaled_dot_product_flash_attention": _sdpa_forward,
    "_scaled_dot_product_flash_attention_backward": _sdpa_backward,
    "_flash_attention_forward": _forward,
    "_flash_attention_forward_no_dropout_inplace": _forward_into,
    "_flash_attention_backward": _backward,
}
