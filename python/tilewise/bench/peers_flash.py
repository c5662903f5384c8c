"""The packages of the FlashAttention repository, where they are installed: flash_attn (2), flash_attn_interface (3),
flash_attn.cute (4).

FlashAttention-3 is also looked for under the name fa3_fwd_interface (the wheel fa3-fwd, forward only). Modules of
these names that are this package's own drop-ins do not take part: they would race against themselves.
"""

from __future__ import annotations

import importlib
import importlib.metadata

from .errors import Refused, first_line
from .peers import Peer

_DISTRIBUTIONS = {
    "flash_attn": "flash-attn",
    "flash_attn_interface": "flash-attn-3",
    "fa3_fwd_interface": "fa3-fwd",
    "flash_attn.cute": "flash-attn-4",
}


def _version(module_name, module):
    try:
        name = _DISTRIBUTIONS[module_name]
        return f"{name} {importlib.metadata.version(name)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{module_name} {getattr(module, '__version__', 'of unknown version')}"


def load_module(name: str):
    """The module, or Refused: it is not there, does not import, has no flash_attn_func, or is Tilewise's."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if name == missing or name.startswith(f"{missing}."):
            raise Refused(f"{name} is not installed") from None
        raise Refused(f"{name} does not import: {error}") from None
    except Exception as error:
        raise Refused(f"{name} does not import: {first_line(error)}") from None
    function = getattr(module, "flash_attn_func", None)
    if function is None:
        raise Refused(f"{name} has no flash_attn_func")
    if (getattr(function, "__module__", None) or "").partition(".")[0] == "tilewise":
        raise Refused(f"the {name} that Python finds is Tilewise's own drop-in; it does not race against itself")
    return module


def _first(result):
    return result[0] if isinstance(result, tuple) else result


def _bind(module, unlimited, has_cache):
    def bind(case, inputs):
        window = case.window or (-1, -1)
        options = {"causal": case.causal, "window_size": tuple(unlimited if x < 0 else x for x in window)}
        if case.op == "decode" and has_cache:
            options |= {"cache_seqlens": inputs.cache_seqlens}
            return lambda q, k, v: _first(module.flash_attn_with_kvcache(q, k, v, **options))
        if case.lengths is None:
            return lambda q, k, v: _first(module.flash_attn_func(q, k, v, **options))
        starts, longest = inputs.starts, case.seqlen
        lengths = {"cu_seqlens_q": starts, "cu_seqlens_k": starts, "max_seqlen_q": longest, "max_seqlen_k": longest}
        return lambda q, k, v: _first(module.flash_attn_varlen_func(q, k, v, **lengths, **options))

    return bind


def _load(peer, label, modules, *, unlimited, has_cache):
    def load(device):
        if device != "cuda":
            raise Refused("for GPUs; this run is on the CPU")
        reasons = []
        for name in modules:
            try:
                module = load_module(name)
            except Refused as reason:
                reasons.append(str(reason))
                continue
            return Peer(peer, label, _version(name, module), _bind(module, unlimited, has_cache))
        raise Refused("; ".join(reasons))

    return load


LOADERS = {
    "flash_attn": _load("flash_attn", "FlashAttention-2 (flash_attn)", ("flash_attn",), unlimited=-1, has_cache=True),
    "fa3": _load(
        "fa3", "FlashAttention-3", ("flash_attn_interface", "fa3_fwd_interface"), unlimited=-1, has_cache=True
    ),
    "fa4": _load("fa4", "FlashAttention-4", ("flash_attn.cute",), unlimited=None, has_cache=False),
}
