"""The public functions of flash_attn 2.8.3."""

import torch

from ._arguments import (
    cache_lengths,
    dropout_probability,
    ragged_options,
    rotary_options,
    score_options,
    split_options,
    without_gradients,
)
from .fa2_ops import attention, decode, drawn_dropout, s_dmask
from .operators import register

VERSION = "2.8.3"

register("flash_attn")


def _attend(qkv, options, dropout_p, deterministic, return_attn_probs):
    options["deterministic"] = bool(deterministic)
    if not return_attn_probs:
        return attention(*qkv, dropout_p=dropout_probability(dropout_p), **options)
    q, k, _ = qkv
    options |= drawn_dropout(q, dropout_p)
    o, lse = attention(*qkv, return_lse=True, **options)
    return o, lse, s_dmask(q, k, options, True)


def flash_attn_func(
    q,
    k,
    v,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
):
    """Attention of q (batch, seqlen_q, heads, head_dim) over k, v (batch, seqlen_k, heads_kv, head_dim), with gradients.

    See `tilewise.attention` for what each option computes. Returns o, or (o, lse, S_dmask) with `return_attn_probs`; S_dmask is empty
    without dropout, else the probabilities, negative where dropped.
    """
    options = score_options(softmax_scale, causal, window_size, softcap, alibi_slopes)
    return _attend((q, k, v), options, dropout_p, deterministic, return_attn_probs)


def flash_attn_kvpacked_func(
    q,
    kv,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
):
    """`flash_attn_func` with kv (batch, seqlen_k, 2, heads_kv, head_dim)."""
    options = score_options(softmax_scale, causal, window_size, softcap, alibi_slopes)
    return _attend((q, *kv.unbind(2)), options, dropout_p, deterministic, return_attn_probs)


def flash_attn_qkvpacked_func(
    qkv,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
):
    """`flash_attn_func` with qkv (batch, seqlen, 3, heads, head_dim)."""
    options = score_options(softmax_scale, causal, window_size, softcap, alibi_slopes)
    return _attend(qkv.unbind(2), options, dropout_p, deterministic, return_attn_probs)


def flash_attn_varlen_func(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
    block_table=None,
):
    """`flash_attn_func` of a ragged batch: q (total_q, heads, head_dim), k, v (total_k, heads_kv, head_dim), or with `block_table`
    (pages, page_size, heads_kv, head_dim), of any page size. lse is (heads, total_q)."""
    options = score_options(softmax_scale, causal, window_size, softcap, alibi_slopes)
    options |= ragged_options(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, None, block_table)
    return _attend((q, k, v), options, dropout_p, deterministic, return_attn_probs)


def flash_attn_varlen_kvpacked_func(
    q,
    kv,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
):
    """`flash_attn_varlen_func` with kv (total_k, 2, heads_kv, head_dim)."""
    options = score_options(softmax_scale, causal, window_size, softcap, alibi_slopes)
    options |= ragged_options(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    return _attend((q, *kv.unbind(1)), options, dropout_p, deterministic, return_attn_probs)


def flash_attn_varlen_qkvpacked_func(
    qkv,
    cu_seqlens,
    max_seqlen,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
):
    """`flash_attn_varlen_func` with qkv (total, 3, heads, head_dim)."""
    options = score_options(softmax_scale, causal, window_size, softcap, alibi_slopes)
    options |= ragged_options(cu_seqlens, cu_seqlens, max_seqlen, max_seqlen)
    return _attend(qkv.unbind(1), options, dropout_p, deterministic, return_attn_probs)


def flash_attn_with_kvcache(
    q,
    k_cache,
    v_cache,
    k=None,
    v=None,
    rotary_cos=None,
    rotary_sin=None,
    cache_seqlens=None,
    cache_batch_idx=None,
    cache_leftpad=None,
    block_table=None,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    rotary_interleaved=True,
    alibi_slopes=None,
    num_splits=0,
    return_softmax_lse=False,
):
    """Appends k, v, if given, to the caches in place and attends to all of them; see `tilewise.decode`. No gradients.

    Returns o, or (o, lse) with `return_softmax_lse`.
    """
    options = score_options(softmax_scale, causal, window_size, softcap, alibi_slopes) | split_options(num_splits, 128)
    options |= {
        "cache_seqlens": cache_lengths(cache_seqlens, q),
        "cache_batch_idx": cache_batch_idx,
        "leftpad_k": cache_leftpad,
        "page_table": block_table,
    } | rotary_options(rotary_cos, rotary_sin, rotary_interleaved)
    return without_gradients(decode, q, k_cache, v_cache, k, v, return_lse=return_softmax_lse, **options)


def _with_apply(function):
    """A class whose `apply` is `function`, as callers of the autograd classes use it: their one more argument is the grad mode."""
    count = function.__code__.co_argcount

    def apply(*arguments):
        with torch.set_grad_enabled(torch.is_grad_enabled() and all(arguments[count:])):
            return function(*arguments[:count])

    return type(function.__name__, (), {"apply": staticmethod(apply), "__doc__": f"`apply` is `{function.__name__}`."})


FlashAttnFunc = _with_apply(flash_attn_func)
FlashAttnKVPackedFunc = _with_apply(flash_attn_kvpacked_func)
FlashAttnQKVPackedFunc = _with_apply(flash_attn_qkvpacked_func)
FlashAttnVarlenFunc = _with_apply(flash_attn_varlen_func)
FlashAttnVarlenKVPackedFunc = _with_apply(flash_attn_varlen_kvpacked_func)
FlashAttnVarlenQKVPackedFunc = _with_apply(flash_attn_varlen_qkvpacked_func)


def maybe_contiguous(x):
    """x with a contiguous last axis."""
    return x if x is None or x.stride(-1) == 1 else x.contiguous()


def round_multiple(x, m):
    """x rounded up to a multiple of m."""
    return (x + m - 1) // m * m
