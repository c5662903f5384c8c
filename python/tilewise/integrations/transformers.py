"""Tilewise as `attn_implementation="tilewise"` of Hugging Face Transformers, on the CPU and on GPUs.

    import tilewise.integrations.transformers
    tilewise.integrations.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="tilewise")

Transformers asks for a mask once for each forward pass and gives it to every layer. `attention_mask` answers with as
little as says it all:

    None                                        causal (or all) keys, nothing hidden
    int32 (batch, 1, query_length, 2)           each row's first visible key, and one past its last: padding, windows,
                                                packed sequences
    bool (batch, 1, query_length, kv_length)    any other mask; and every mask in a traced program, which cannot look
                                                at one
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from packaging.version import Version
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function, sdpa_mask
from transformers.utils.import_utils import is_tracing

import tilewise

__all__ = ["attention", "attention_mask", "register"]

_OLDEST = "5.17"
_CHUNK = 1 << 24  # elements of a mask that are looked at together


def register(name: str = "tilewise") -> None:
    """Adds `name` to Transformers' attention and mask functions.

    Raises:
        ImportError: Transformers is older than 5.17.
        ValueError: a name with "flash" in it: Transformers takes those for its own loader.
    """
    if Version(transformers.__version__) < Version(_OLDEST):
        raise ImportError(f"transformers: {transformers.__version__} is installed; {_OLDEST} or newer is needed")
    if "flash" in name:
        raise ValueError(f'name: {name!r} is not possible; Transformers loads names with "flash" in them by itself')
    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, attention_mask)


def _interval(seen):
    """First visible key and one past the last, of bool (..., kv_length); and whether all keys between are visible."""
    kv_length = seen.shape[-1]
    keys = torch.arange(kv_length, dtype=torch.int32, device=seen.device)
    begin = torch.where(seen, keys, kv_length).amin(-1)
    end = torch.where(seen, keys + 1, 0).amax(-1)
    begin = torch.minimum(begin, end)
    return begin, end, (seen.sum(-1) == end - begin).all()


@dataclass(frozen=True)
class _Pattern:
    """Which keys a pattern shows to the rows of a forward pass, padding apart."""

    batch_size: int
    q_length: int
    kv_length: int
    q_offset: int | torch.Tensor
    kv_offset: int
    mask_function: Callable
    use_vmap: bool
    device: torch.device | str

    @property
    def is_causal(self):
        return self.mask_function is causal_mask_function

    @property
    def shows_all(self):
        return self.mask_function is bidirectional_mask_function

    def rows(self, first, count, padding=None):
        """bool (batch, 1, count, kv_length)."""
        return sdpa_mask(
            self.batch_size,
            count,
            self.kv_length,
            q_offset=self.q_offset + first,
            kv_offset=self.kv_offset,
            mask_function=self.mask_function,
            attention_mask=padding,
            allow_is_causal_skip=False,
            use_vmap=self.use_vmap,
            device=self.device,
        )

    def intervals(self):
        """First visible key and one past the last, (1 or batch, q_length); or None: some row's keys are no interval."""
        if self.shows_all:
            begin = torch.zeros(1, self.q_length, dtype=torch.int32, device=self.device)
            return begin, begin + self.kv_length
        if self.is_causal:
            end = torch.arange(1, self.q_length + 1, device=self.device) + (self.q_offset - self.kv_offset)
            end = end.clamp(0, self.kv_length).to(torch.int32)[None]
            return torch.zeros_like(end), end
        step = max(1, _CHUNK // max(1, self.batch_size * self.kv_length))
        chunks = range(0, self.q_length, step)
        found = [_interval(self.rows(first, min(step, self.q_length - first))[:, 0]) for first in chunks]
        begin, end, whole = zip(*found)
        return (torch.cat(begin, dim=1), torch.cat(end, dim=1)) if torch.stack(whole).all() else None


def _short(pattern, padding):
    """A mask as intervals, or None: some row's keys are no interval."""
    found = pattern.intervals()
    if found is None:
        return None
    begin, end = found
    if padding is not None:
        first, last, is_whole = _interval(padding)
        if not is_whole:
            return None
        begin, end = torch.maximum(begin, first[:, None]), torch.minimum(end, last[:, None])
    begin = torch.minimum(begin, end)
    shape = (pattern.batch_size, 1, pattern.q_length, 2)
    return torch.stack((begin, end), dim=-1)[:, None].expand(shape).contiguous()


def attention_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    *,
    q_offset: int | torch.Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable = causal_mask_function,
    attention_mask: torch.Tensor | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    use_vmap: bool = False,
    device: torch.device | str = "cpu",
    **kwargs,
) -> torch.Tensor | None:
    """The mask in the shortest form (see above); the arguments are those of Transformers' other mask functions."""
    pattern = _Pattern(batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, use_vmap, device)
    traced = is_tracing(attention_mask) or is_tracing(q_offset if isinstance(q_offset, torch.Tensor) else None)
    padding = attention_mask
    if padding is not None and not traced:
        padding = padding[:, kv_offset : kv_offset + kv_length].bool()
        padding = torch.nn.functional.pad(padding, (0, kv_length - padding.shape[1]))
        if padding.all():
            padding = None
    if padding is None:
        # A tensor as offset is that of a static cache, whose keys go on behind those that a row may see.
        at_end = isinstance(q_offset, int) and q_offset + q_length == kv_offset + kv_length
        if allow_is_causal_skip and pattern.is_causal and at_end:
            return None
        if allow_is_bidirectional_skip and pattern.shows_all:
            return None
    short = None if traced else _short(pattern, padding)
    return pattern.rows(0, q_length, attention_mask) if short is None else short


_UNSERVED = {
    "output_attentions": 'no probabilities are kept; load the model with attn_implementation="eager" to see them',
    "head_mask": "is not served",
    "block_table": 'a paged cache is served through attn_implementation="flash_attention_2" and tilewise.compat',
    "indices": "sparse attention by key indices is not served",
    "block_indices": "sparse attention by blocks of keys is not served",
    "sinks": "is not the s_aux that is served",
}


def _refuse(kwargs):
    for name, why in _UNSERVED.items():
        if kwargs.get(name) is not None and kwargs[name] is not False:
            raise NotImplementedError(f"{name}: {why}")


def _mask_options(mask, query):
    """What a mask is among the arguments of tilewise.attention."""
    if not isinstance(mask, torch.Tensor) or mask.dim() != 4:
        given = tuple(mask.shape) if isinstance(mask, torch.Tensor) else type(mask).__name__
        raise ValueError(
            f"attention_mask: {given} is not served; None or a tensor of 4 axes (batch, heads, query_length, kv_length) "
            "is"
        )
    if mask.dtype == torch.bool:
        return {"mask": mask}
    if mask.is_floating_point():
        return {"bias": mask}
    rows = (query.shape[0], 1, query.shape[2], 2)
    if mask.dtype != torch.int32 or tuple(mask.shape) != rows:
        raise ValueError(
            f"attention_mask: {mask.dtype} {tuple(mask.shape)} is not served; bool and floating point are, and int32 "
            f"{rows} from attention_mask()"
        )
    begin, end = mask[:, 0].unbind(-1)
    return {"key_begin": begin, "key_end": end}


def _within_documents(options, cu_seqlens, query):
    """Narrows a mask of one row of packed sequences to each one's keys; rows behind the last sequence see none."""
    if query.shape[0] != 1:
        raise ValueError(f"cu_seq_lens_q: beside an attention_mask the batch must be 1, not {query.shape[0]}")
    ends_q, ends_k = cu_seqlens
    rows = torch.arange(query.shape[2], dtype=torch.int32, device=query.device)
    sequence = torch.searchsorted(ends_q, rows, right=True).clamp(1, ends_q.shape[0] - 1)
    begin, end = ends_k[sequence - 1], torch.where(rows < ends_q[-1], ends_k[sequence], 0)
    begin, end = begin[None], end[None]
    if "key_begin" in options:
        begin, end = torch.maximum(begin, options["key_begin"]), torch.minimum(end, options["key_end"])
    return {**options, "key_begin": torch.minimum(begin, end), "key_end": end}


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    position_bias: torch.Tensor | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    cu_seq_lens_k: torch.Tensor | None = None,
    max_length_q: int | torch.Tensor | None = None,
    max_length_k: int | torch.Tensor | None = None,
    deterministic: bool | None = None,
    **kwargs,
) -> tuple[torch.Tensor, None]:
    """One layer's attention, as Transformers calls it.

    Args:
        query, key, value: (batch, heads, length, head_dim), of any strides; fewer heads of keys and values than of
            queries are fine, and another head_dim of values too.
        attention_mask: what `attention_mask` makes; or bool (True is visible) or floating point (added to the scores)
            of 4 axes. With one, it alone says what is visible: is_causal and sliding_window are for calls without.
        sliding_window: as many keys, the row's own included.
        s_aux: (heads), a sink's logits.
        position_bias: added to the scores, (1 or batch, heads, query_length, kv_length).
        cu_seq_lens_q, cu_seq_lens_k: int (sequences + 1), of packed sequences, over the flattened batch.

    Returns:
        (batch, query_length, heads, head_dim of values), None.

    Raises:
        NotImplementedError: attention probabilities, a paged cache or sparse attention is asked for.
        ValueError: a mask of another kind; lengths of queries or keys alone.
    """
    _refuse(kwargs)
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    options: dict[str, Any] = {"scale": scaling, "softcap": softcap, "deterministic": deterministic}
    if dropout:
        options["dropout_p"] = dropout
    if s_aux is not None:
        options["sink"] = s_aux.float()
    cu_seqlens = [x.to(torch.int32) for x in (cu_seq_lens_q, cu_seq_lens_k) if x is not None]
    if len(cu_seqlens) == 1:
        raise ValueError("cu_seq_lens_q, cu_seq_lens_k: one of them is missing")
    if attention_mask is None:
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        options["causal"] = causal
        if sliding_window is not None:
            options["window"] = (sliding_window - 1, 0 if causal else sliding_window - 1)
    else:
        options.update(_mask_options(attention_mask, query))
        if cu_seqlens:
            options = _within_documents(options, cu_seqlens, query)
    if position_bias is not None:
        options["bias"] = options["bias"] + position_bias if "bias" in options else position_bias
    if cu_seqlens and attention_mask is None:
        q, k, v = (x.reshape(-1, *x.shape[2:]) for x in (q, k, v))
        options |= {"max_seqlen_q": max_length_q, "max_seqlen_k": max_length_k}
        o = tilewise.attention_varlen(q, k, v, *cu_seqlens, **options)
        o = o.reshape(query.shape[0], query.shape[2], *o.shape[1:])
    else:
        o = tilewise.attention(q, k, v, **options)
    return o, None
