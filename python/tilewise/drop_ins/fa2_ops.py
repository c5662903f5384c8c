"""The operators behind flash_attn 2.8.3 that other libraries call: forward and backward without autograd, with o, lse and the dropout's
state as values."""

import torch

from .._torch import seed
from .. import attention, decode
from . import _gradients
from ._arguments import dropout_probability, ragged_options, score_options
from ._names import FA2, named_as
from ._probabilities import signed_probabilities

attention = named_as(FA2, attention)
decode = named_as(FA2, decode)
backward_and_row_sums = named_as(FA2, _gradients.backward_and_row_sums)


def drawn_dropout(q, dropout_p, generator=None):
    """Options of dropout with a state (seed, offset) that is drawn here, for callers who must know it. Without dropout: none."""
    dropout_p = dropout_probability(dropout_p)
    if dropout_p == 0.0:
        return {}
    if generator is None:
        number = seed(q)
    else:
        number = int(torch.randint(0, 2**63 - 1, (), generator=generator, device=generator.device))
    return {"dropout_p": dropout_p, "dropout_seed": number, "dropout_offset": 0}


def repeated_dropout(dropout_p, rng_state):
    """Options of dropout with the state that a forward returned."""
    dropout_p = dropout_probability(dropout_p)
    if dropout_p == 0.0:
        return {}
    if rng_state is None:
        raise ValueError("rng_state: None with dropout; the fourth value of the forward says what it dropped")
    number, offset = (int(x) for x in rng_state.tolist())
    return {"dropout_p": dropout_p, "dropout_seed": number, "dropout_offset": offset}


def rng_state_of(options):
    """int64 (2), on the CPU: there the backward reads it without waiting for a GPU."""
    return torch.tensor([options.get("dropout_seed", 0), options.get("dropout_offset", 0)], dtype=torch.int64, device="cpu")


def s_dmask(q, k, options, wanted):
    if wanted and "dropout_p" in options:
        return signed_probabilities(q, k, options)
    return torch.empty(0, dtype=q.dtype, device=q.device)


@torch.no_grad()
def forward(q, k, v, options, return_softmax=False, out=None):
    """(o, lse, S_dmask, rng_state)"""
    o, lse = attention(q, k, v, return_lse=True, out=out, **options)
    return o, lse, s_dmask(q, k, options, return_softmax), rng_state_of(options)


def clear_unused_rows(q, lse, cu_seqlens_q):
    """lse of rows behind the last sequence is -inf."""
    rows = torch.arange(q.shape[0], device=q.device)
    return lse.masked_fill_(rows >= cu_seqlens_q[-1], float("-inf"))


def _flash_attn_forward(
    q, k, v, dropout_p, softmax_scale, causal, window_size_left, window_size_right, softcap, alibi_slopes, return_softmax
):
    """Forward. Returns (o, lse, S_dmask, rng_state)."""
    options = score_options(softmax_scale, causal, (window_size_left, window_size_right), softcap, alibi_slopes)
    return forward(q, k, v, options | drawn_dropout(q, dropout_p), return_softmax)


def _flash_attn_varlen_forward(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    dropout_p,
    softmax_scale,
    causal,
    window_size_left=-1,
    window_size_right=-1,
    softcap=0.0,
    alibi_slopes=None,
    return_softmax=False,
    block_table=None,
    leftpad_k=None,
    seqused_k=None,
    zero_tensors=False,
):
    """Forward of a ragged batch. Returns (o, lse, S_dmask, rng_state)."""
    options = score_options(softmax_scale, causal, (window_size_left, window_size_right), softcap, alibi_slopes)
    options |= ragged_options(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_k, block_table)
    if leftpad_k is not None:
        options["leftpad_k"] = leftpad_k
    out = q.new_zeros((*q.shape[:-1], v.shape[-1])) if zero_tensors else None
    o, lse, probabilities, state = forward(q, k, v, options | drawn_dropout(q, dropout_p), return_softmax, out)
    if zero_tensors:
        clear_unused_rows(q, lse, cu_seqlens_q)
    return o, lse, probabilities, state


def _flash_attn_backward(
    dout,
    q,
    k,
    v,
    out,
    softmax_lse,
    dq,
    dk,
    dv,
    dropout_p,
    softmax_scale,
    causal,
    window_size_left,
    window_size_right,
    softcap,
    alibi_slopes,
    deterministic,
    rng_state=None,
):
    """Writes dq, dk, dv; returns the row sums of dout * out."""
    options = score_options(softmax_scale, causal, (window_size_left, window_size_right), softcap, alibi_slopes)
    options |= repeated_dropout(dropout_p, rng_state) | {"deterministic": bool(deterministic)}
    return backward_and_row_sums((q, k, v), (dout, out, softmax_lse), (dq, dk, dv), options, dropout_p)[-1]


def _flash_attn_varlen_backward(
    dout,
    q,
    k,
    v,
    out,
    softmax_lse,
    dq,
    dk,
    dv,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    dropout_p,
    softmax_scale,
    causal,
    window_size_left,
    window_size_right,
    softcap,
    alibi_slopes,
    deterministic,
    rng_state=None,
    zero_tensors=False,
):
    """Writes dq, dk, dv of a ragged batch (rows behind its end get 0, with or without `zero_tensors`); returns the row sums."""
    options = score_options(softmax_scale, causal, (window_size_left, window_size_right), softcap, alibi_slopes)
    options |= ragged_options(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    options |= repeated_dropout(dropout_p, rng_state) | {"deterministic": bool(deterministic)}
    return backward_and_row_sums((q, k, v), (dout, out, softmax_lse), (dq, dk, dv), options, dropout_p)[-1]


_wrapped_flash_attn_forward = _flash_attn_forward
_wrapped_flash_attn_varlen_forward = _flash_attn_varlen_forward
_wrapped_flash_attn_backward = _flash_attn_backward
_wrapped_flash_attn_varlen_backward = _flash_attn_varlen_backward
