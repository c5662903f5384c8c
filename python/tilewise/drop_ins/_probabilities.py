"""Attention probabilities as a tensor, for `return_attn_probs` with dropout: attention to an identity matrix has them as its output."""

import torch

from ..attention import attention
from ._arguments import round_up

_COLUMNS = 512  # the widest v that is served


def _place(length, device):
    return torch.arange(length, device=device)


def _sequences(cu_seqlens, total):
    """Sequence and position of each row of a ragged tensor; rows past the end have the sequence `batch`."""
    rows = _place(total, cu_seqlens.device)
    sequence = torch.searchsorted(cu_seqlens[1:].contiguous(), rows.to(cu_seqlens.dtype), right=True)
    return sequence, rows - cu_seqlens[sequence.clamp(max=cu_seqlens.shape[0] - 2)]


def _columns(q, k, options):
    """p and the dropped ones of it, for neighbouring keys of each sequence at a time: yields (first key, p, dropped)."""
    ragged = q.dim() == 3
    if ragged:
        _, positions = _sequences(options["cu_seqlens_k"], k.shape[0])
        keys = int(options["max_seqlen_k"])
    else:
        keys = k.shape[1]
        positions = _place(keys, q.device)
    kept = {name: value for name, value in options.items() if name not in ("scale", "softcap", "alibi_slopes")}
    plain = {name: value for name, value in options.items() if not name.startswith("dropout")}
    for first in range(0, keys, _COLUMNS):
        width = min(_COLUMNS, keys - first)
        one = (positions[:, None] == _place(width, q.device) + first).to(q.dtype)[..., None, :]
        one = one.expand(*k.shape[:-1], width)
        # Logits that are all 0 leave no probability small enough to be taken for a dropped one.
        uniform = attention(torch.zeros_like(q), torch.zeros_like(k), one, **kept)
        p = attention(q, k, one, **plain)
        yield first, p, (uniform == 0) & (p > 0)


@torch.no_grad()
def signed_probabilities(q, k, options):
    """(batch, heads, seqlen_q, seqlen_k), lengths rounded up to 128: probabilities, negative where dropout drops them, 0 elsewhere."""
    q, k = q.detach(), k.detach()
    if "page_table" in options:
        raise NotImplementedError("return_attn_probs: probabilities of paged keys (block_table) are not served with dropout")
    ragged = q.dim() == 3
    if ragged:
        sequence, row = _sequences(options["cu_seqlens_q"], q.shape[0])
        batch, rows, keys = options["cu_seqlens_q"].shape[0] - 1, int(options["max_seqlen_q"]), int(options["max_seqlen_k"])
        inside = sequence < batch
    else:
        batch, rows, keys = q.shape[0], q.shape[1], k.shape[1]
    signed = q.new_zeros(batch, round_up(rows, 128), q.shape[-2], round_up(keys, 128))
    for first, p, dropped in _columns(q, k, options):
        p = torch.where(dropped, -p, p)
        last = first + p.shape[-1]
        if ragged:
            signed[sequence[inside], row[inside], :, first:last] = p[inside]
        else:
            signed[:, :rows, :, first:last] = p
    return signed.transpose(1, 2).contiguous()
