"""flash_attn.bert_padding: between padded batches (batch, seqlen, ...) and ragged ones (total, ...). Gradients are torch's own, so an
index that is given twice gets both of its gradients."""

import torch
import torch.nn.functional as F

try:
    from einops import rearrange, repeat
except ImportError:
    _MISSING = ("rearrange", "repeat")  # only passed on, to callers that import them from here
else:
    _MISSING = ()


def __getattr__(name):
    if name in _MISSING:
        raise ImportError(f"{name} is of the package einops, which is not installed")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def index_first_axis(input, indices):
    """Rows `indices` of input."""
    if input.dim() < 2:
        raise ValueError(f"input: has {input.dim()} axis; at least 2 are allowed")
    return input.index_select(0, indices)


def index_put_first_axis(values, indices, first_axis_dim):
    """(first_axis_dim, ...) of zeros, with `values` in the rows `indices`."""
    if values.dim() < 2 or indices.dim() != 1:
        raise ValueError(f"values: has {values.dim()} axes, indices {indices.dim()}; at least 2, and 1, are allowed")
    return values.new_zeros(first_axis_dim, *values.shape[1:]).index_copy(0, indices.long(), values)


def index_first_axis_residual(input, indices):
    """(rows `indices` of input, input without its gradient)."""
    return index_first_axis(input, indices), input.detach()


class IndexFirstAxis:
    """`apply` is `index_first_axis`."""

    apply = staticmethod(index_first_axis)


class IndexPutFirstAxis:
    """`apply` is `index_put_first_axis`."""

    apply = staticmethod(index_put_first_axis)


class IndexFirstAxisResidual:
    """`apply` is `index_first_axis_residual`."""

    apply = staticmethod(index_first_axis_residual)


def _ragged(hidden_states, indices, lengths):
    """What both functions below return first: rows, their indices, cu_seqlens, and the longest length, for which a GPU is waited for."""
    cu_seqlens = F.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    longest = int(lengths.max()) if lengths.numel() else 0
    return hidden_states.flatten(0, 1).index_select(0, indices), indices, cu_seqlens, longest


def unpad_input(hidden_states, attention_mask, unused_mask=None):
    """Takes the rows that the masks (batch, seqlen), of 0 and 1 or bool, keep.

    Returns:
        (rows (total, ...), their indices int64 in the flattened batch, cu_seqlens int32 (batch + 1), longest length as int, lengths by
        `attention_mask` alone int32 (batch)). `unused_mask` keeps rows too, which those lengths do not count.
    """
    used = attention_mask.sum(-1, dtype=torch.int32)
    kept = attention_mask if unused_mask is None else attention_mask + unused_mask
    indices = kept.flatten().nonzero().flatten()
    return *_ragged(hidden_states, indices, kept.sum(-1, dtype=torch.int32)), used


def unpad_input_for_concatenated_sequences(hidden_states, attention_mask_in_length):
    """`unpad_input` of rows that hold several sequences each: `attention_mask_in_length` (batch, seqlen) has their lengths, then zeros.

    Returns:
        (rows, indices, cu_seqlens with one entry a sequence and one more, longest length).
    """
    filled = attention_mask_in_length.sum(-1)
    seqlen = attention_mask_in_length.shape[-1]
    kept = torch.arange(seqlen, device=filled.device) < filled[:, None]
    lengths = attention_mask_in_length.flatten()
    return _ragged(hidden_states, kept.flatten().nonzero().flatten(), lengths[lengths > 0])


def pad_input(hidden_states, indices, batch, seqlen):
    """(batch, seqlen, ...) of zeros, with the rows of hidden_states at `indices`."""
    return index_put_first_axis(hidden_states, indices, batch * seqlen).unflatten(0, (batch, seqlen))
