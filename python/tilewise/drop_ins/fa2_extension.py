"""flash_attn_2_cuda: the extension's functions, whose arguments are positional. Despite the name CPU tensors are served."""

from ._arguments import ragged_options, rotary_options, score_options, split_options, without_gradients
from .fa2_ops import backward_and_row_sums, clear_unused_rows, decode, drawn_dropout, forward, repeated_dropout


def fwd(
    q, k, v, out, alibi_slopes, p_dropout, softmax_scale, is_causal, window_left, window_right, softcap, return_softmax, gen=None
):
    """[o, lse, S_dmask, rng_state]"""
    options = score_options(softmax_scale, is_causal, (window_left, window_right), softcap, alibi_slopes)
    return list(forward(q, k, v, options | drawn_dropout(q, p_dropout, gen), return_softmax, out))


def varlen_fwd(
    q,
    k,
    v,
    out,
    cu_seqlens_q,
    cu_seqlens_k,
    seqused_k,
    leftpad_k,
    block_table,
    alibi_slopes,
    max_seqlen_q,
    max_seqlen_k,
    p_dropout,
    softmax_scale,
    zero_tensors,
    is_causal,
    window_left,
    window_right,
    softcap,
    return_softmax,
    gen=None,
    num_splits=0,
):
    """[o, lse, S_dmask, rng_state]"""
    options = score_options(softmax_scale, is_causal, (window_left, window_right), softcap, alibi_slopes)
    options |= ragged_options(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_k, block_table)
    options |= {"leftpad_k": leftpad_k} | split_options(num_splits) | drawn_dropout(q, p_dropout, gen)
    if zero_tensors:
        out = q.new_zeros((*q.shape[:-1], v.shape[-1])) if out is None else out.zero_()
    results = list(forward(q, k, v, options, return_softmax, out))
    if zero_tensors:
        clear_unused_rows(q, results[1], cu_seqlens_q)
    return results


def bwd(
    dout,
    q,
    k,
    v,
    out,
    softmax_lse,
    dq,
    dk,
    dv,
    alibi_slopes,
    p_dropout,
    softmax_scale,
    is_causal,
    window_left,
    window_right,
    softcap,
    deterministic,
    gen=None,
    rng_state=None,
):
    """[dq, dk, dv, row sums of dout * out]"""
    options = score_options(softmax_scale, is_causal, (window_left, window_right), softcap, alibi_slopes)
    options |= repeated_dropout(p_dropout, rng_state) | {"deterministic": bool(deterministic)}
    return backward_and_row_sums((q, k, v), (dout, out, softmax_lse), (dq, dk, dv), options, p_dropout)


def varlen_bwd(
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
    alibi_slopes,
    max_seqlen_q,
    max_seqlen_k,
    p_dropout,
    softmax_scale,
    zero_tensors,
    is_causal,
    window_left,
    window_right,
    softcap,
    deterministic,
    gen=None,
    rng_state=None,
):
    """[dq, dk, dv, row sums of dout * out]"""
    options = score_options(softmax_scale, is_causal, (window_left, window_right), softcap, alibi_slopes)
    options |= ragged_options(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    options |= repeated_dropout(p_dropout, rng_state) | {"deterministic": bool(deterministic)}
    return backward_and_row_sums((q, k, v), (dout, out, softmax_lse), (dq, dk, dv), options, p_dropout)


def fwd_kvcache(
    q,
    kcache,
    vcache,
    k,
    v,
    seqlens_k,
    rotary_cos,
    rotary_sin,
    cache_batch_idx,
    leftpad_k,
    block_table,
    alibi_slopes,
    out,
    softmax_scale,
    is_causal,
    window_left,
    window_right,
    softcap,
    is_rotary_interleaved,
    num_splits,
):
    """[o, lse]"""
    options = score_options(softmax_scale, is_causal, (window_left, window_right), softcap, alibi_slopes)
    options |= split_options(num_splits, 128)
    options |= {
        "cache_seqlens": seqlens_k,
        "cache_batch_idx": cache_batch_idx,
        "leftpad_k": leftpad_k,
        "page_table": block_table,
    } | rotary_options(rotary_cos, rotary_sin, is_rotary_interleaved)
    return list(without_gradients(decode, q, kcache, vcache, k, v, return_lse=True, out=out, **options))
