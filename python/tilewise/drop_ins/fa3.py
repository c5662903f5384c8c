"""The public functions of flash_attn_interface 3.0.0.

`pack_gqa`, `sm_margin` and `scheduler_metadata` steer kernels of that library and decide no result; they are accepted and do nothing.
`q_descale`, `k_descale` and `v_descale` belong to 8-bit inputs, which are refused.
"""

from ._arguments import cache_lengths, rotary_options, without_gradients
from .fa3_ops import attention, attention_options, check_metadata, decode, no_parts, refuse_qv
from .operators import register

VERSION = "3.0.0"

register("flash_attn_3")


def _attend(qkv, options, deterministic, return_attn_probs):
    return attention(*qkv, return_lse=return_attn_probs, deterministic=bool(deterministic), **options)


def flash_attn_func(
    q,
    k,
    v,
    softmax_scale=None,
    causal=False,
    qv=None,
    q_descale=None,
    k_descale=None,
    v_descale=None,
    window_size=(-1, -1),
    attention_chunk=0,
    softcap=0.0,
    num_splits=1,
    pack_gqa=None,
    deterministic=False,
    sm_margin=0,
    return_attn_probs=False,
):
    """Attention of q (batch, seqlen_q, heads, head_dim) over k, v (batch, seqlen_k, heads_kv, head_dim), with gradients.

    See `tilewise.attention` for what each option computes; `attention_chunk` is its `chunk`. Returns o, or (o, lse) with
    `return_attn_probs`.
    """
    refuse_qv(qv)
    options = attention_options(softmax_scale, causal, window_size, softcap, attention_chunk, num_splits)
    return _attend((q, k, v), options, deterministic, return_attn_probs)


def flash_attn_qkvpacked_func(
    qkv,
    softmax_scale=None,
    causal=False,
    q_descale=None,
    k_descale=None,
    v_descale=None,
    window_size=(-1, -1),
    attention_chunk=0,
    softcap=0.0,
    deterministic=False,
    num_heads_q=None,
    sm_margin=0,
    return_attn_probs=False,
):
    """`flash_attn_func` with qkv (batch, seqlen, 3, heads, head_dim), or with `num_heads_q` (batch, seqlen, num_heads_q + 2 heads_kv,
    head_dim)."""
    if num_heads_q is None:
        parts = qkv.unbind(-3)
    else:
        heads_kv = (qkv.shape[-2] - num_heads_q) // 2
        parts = qkv.split([num_heads_q, heads_kv, heads_kv], -2)
    options = attention_options(softmax_scale, causal, window_size, softcap, attention_chunk)
    return _attend(parts, options, deterministic, return_attn_probs)


def flash_attn_varlen_func(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    seqused_q=None,
    seqused_k=None,
    softmax_scale=None,
    causal=False,
    qv=None,
    q_descale=None,
    k_descale=None,
    v_descale=None,
    window_size=(-1, -1),
    attention_chunk=0,
    softcap=0.0,
    num_splits=1,
    pack_gqa=None,
    deterministic=False,
    sm_margin=0,
    return_attn_probs=False,
):
    """`flash_attn_func` of a ragged batch: q (total_q, heads, head_dim), k, v (total_k, heads_kv, head_dim). Of each sequence the first
    seqused_q rows and seqused_k keys count; rows of o past them are 0. lse is (heads, total_q)."""
    refuse_qv(qv)
    options = attention_options(softmax_scale, causal, window_size, softcap, attention_chunk, num_splits)
    options |= {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, "seqused_q": seqused_q, "seqused_k": seqused_k}
    options |= {"max_seqlen_q": max_seqlen_q, "max_seqlen_k": max_seqlen_k}
    return _attend((q, k, v), options, deterministic, return_attn_probs)


def flash_attn_with_kvcache(
    q,
    k_cache,
    v_cache,
    k=None,
    v=None,
    qv=None,
    rotary_cos=None,
    rotary_sin=None,
    cache_seqlens=None,
    cache_batch_idx=None,
    cache_leftpad=None,
    page_table=None,
    cu_seqlens_q=None,
    cu_seqlens_k_new=None,
    max_seqlen_q=None,
    rotary_seqlens=None,
    q_descale=None,
    k_descale=None,
    v_descale=None,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    attention_chunk=0,
    softcap=0.0,
    rotary_interleaved=True,
    scheduler_metadata=None,
    num_splits=0,
    pack_gqa=None,
    sm_margin=0,
    return_softmax_lse=False,
):
    """Appends k, v, if given, to the caches in place and attends to all of them; see `tilewise.decode`. No gradients.

    Returns o, or (o, lse, empty, empty) with `return_softmax_lse`.
    """
    refuse_qv(qv)
    check_metadata(scheduler_metadata)
    options = attention_options(softmax_scale, causal, window_size, softcap, attention_chunk, num_splits)
    options |= rotary_options(rotary_cos, rotary_sin, rotary_interleaved, rotary_seqlens)
    options |= {
        "cache_seqlens": cache_lengths(cache_seqlens, q, cu_seqlens_q),
        "cache_batch_idx": cache_batch_idx,
        "leftpad_k": cache_leftpad,
        "page_table": page_table,
        "cu_seqlens_q": cu_seqlens_q,
        "cu_seqlens_k_new": cu_seqlens_k_new,
        "max_seqlen_q": max_seqlen_q,
    }
    results = without_gradients(decode, q, k_cache, v_cache, k, v, return_lse=return_softmax_lse, **options)
    return (*results, *no_parts(q)) if return_softmax_lse else results
