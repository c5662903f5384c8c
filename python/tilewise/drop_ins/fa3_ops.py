"""What flash_attn_interface 3.0.0 has beside attention: its operators without autograd, combining of parts, and scheduler metadata."""

import torch

from .. import attention, decode, merge
from . import _gradients
from ._arguments import cache_lengths, rotary_options, round_up, score_options, split_options, without_gradients
from ._names import FA3, named_as

attention = named_as(FA3, attention)
decode = named_as(FA3, decode)
backward_and_row_sums = named_as(FA3, _gradients.backward_and_row_sums)


def attention_options(softmax_scale, causal, window_size, softcap, attention_chunk, num_splits=0):
    options = score_options(softmax_scale, causal, window_size, softcap) | split_options(num_splits)
    if attention_chunk:
        options["chunk"] = int(attention_chunk)
    return options


def refuse_qv(qv):
    if qv is not None:
        raise NotImplementedError(
            "qv: scores of a second pair of tensors are not served; put qv beside q and v beside k, up to head_dim 256"
        )


def check_metadata(scheduler_metadata):
    """Plans are made on the host, so metadata decides nothing; but it must be metadata."""
    if scheduler_metadata is not None and (scheduler_metadata.dtype != torch.int32 or scheduler_metadata.dim() != 1):
        shape = tuple(scheduler_metadata.shape)
        raise ValueError(f"scheduler_metadata: is {scheduler_metadata.dtype} {shape}; what get_scheduler_metadata returns is allowed")


def get_scheduler_metadata(
    batch_size,
    max_seqlen_q,
    max_seqlen_k,
    num_heads_q,
    num_heads_kv,
    headdim,
    cache_seqlens,
    qkv_dtype=torch.bfloat16,
    headdim_v=None,
    cu_seqlens_q=None,
    cu_seqlens_k_new=None,
    cache_leftpad=None,
    page_size=None,
    max_seqlen_k_new=0,
    causal=False,
    window_size=(-1, -1),
    attention_chunk=0,
    has_softcap=False,
    num_splits=0,
    pack_gqa=None,
    sm_margin=0,
):
    """int32 zeros, as many as flash_attn 3 has: nothing is scheduled beforehand here, and a call with or without them is the same."""
    local = window_size[0] >= 0 or window_size[1] >= 0 or attention_chunk > 0
    vectors = 2 + (not local) + bool(causal or local)
    size = round_up(batch_size, 4) * vectors + 1
    return torch.zeros(size, dtype=torch.int32, device=cache_seqlens.device)


def flash_attn_combine(out_partial, lse_partial, out=None, out_dtype=None):
    """Merges attention over disjoint keys; see `tilewise.merge`.

    out_partial (parts, batch, seqlen, heads, head_dim), lse_partial (parts, batch, seqlen, heads) -> (o, lse (batch, seqlen, heads)), o
    in float32 unless `out_dtype` says otherwise.
    """
    dtype = torch.float32 if out_dtype is None else out_dtype
    if out is not None and out.dtype != dtype:
        raise ValueError(f"out: the dtype is {out.dtype}; {dtype} (out_dtype) is allowed")
    o, lse = merge(out_partial.float(), lse_partial.transpose(-1, -2))
    o = o.to(dtype) if out is None else out.copy_(o)
    return o, lse.transpose(-1, -2)


def _flash_attn_forward(
    q,
    k,
    v,
    k_new=None,
    v_new=None,
    qv=None,
    out_=None,
    cu_seqlens_q=None,
    cu_seqlens_k=None,
    cu_seqlens_k_new=None,
    seqused_q=None,
    seqused_k=None,
    max_seqlen_q=None,
    max_seqlen_k=None,
    page_table=None,
    kv_batch_idx=None,
    leftpad_k=None,
    rotary_cos=None,
    rotary_sin=None,
    seqlens_rotary=None,
    q_descale=None,
    k_descale=None,
    v_descale=None,
    softmax_scale=None,
    causal=False,
    window_size_left=-1,
    window_size_right=-1,
    attention_chunk=0,
    softcap=0.0,
    rotary_interleaved=True,
    scheduler_metadata=None,
    num_splits=1,
    pack_gqa=None,
    sm_margin=0,
):
    """Forward, of given keys or of a cache. Returns (o, lse, empty, empty), with gradients where keys are given and `out_` is not."""
    refuse_qv(qv)
    check_metadata(scheduler_metadata)
    options = attention_options(
        softmax_scale, causal, (window_size_left, window_size_right), softcap, attention_chunk, num_splits
    )
    options |= {"cu_seqlens_q": cu_seqlens_q, "max_seqlen_q": max_seqlen_q, "leftpad_k": leftpad_k, "page_table": page_table}
    options |= {"seqused_q": seqused_q}
    if k_new is None and kv_batch_idx is None:
        options |= {"cu_seqlens_k": cu_seqlens_k, "max_seqlen_k": max_seqlen_k, "seqused_k": seqused_k}
        if out_ is None and page_table is None:
            results = attention(q, k, v, return_lse=True, **options)
        else:
            results = without_gradients(attention, q, k, v, return_lse=True, out=out_, **options)
    else:
        options |= rotary_options(rotary_cos, rotary_sin, rotary_interleaved, seqlens_rotary)
        options |= {"cache_seqlens": cache_lengths(seqused_k, q, cu_seqlens_q), "cache_batch_idx": kv_batch_idx}
        options |= {"cu_seqlens_k_new": cu_seqlens_k_new}
        results = without_gradients(decode, q, k, v, k_new, v_new, return_lse=True, out=out_, **options)
    return *results, *no_parts(q)


def no_parts(q):
    """o and lse of the parts of a split, which are not kept."""
    return [torch.empty(0, dtype=torch.float32, device=q.device) for _ in range(2)]


def _flash_attn_backward(
    dout,
    q,
    k,
    v,
    out,
    softmax_lse,
    cu_seqlens_q=None,
    cu_seqlens_k=None,
    sequed_q=None,
    sequed_k=None,
    max_seqlen_q=None,
    max_seqlen_k=None,
    dq=None,
    dk=None,
    dv=None,
    softmax_scale=None,
    is_causal=False,
    window_size_left=-1,
    window_size_right=-1,
    softcap=0.0,
    deterministic=False,
    sm_margin=0,
):
    """Writes dq, dk, dv; returns the row sums of dout * out."""
    options = score_options(softmax_scale, is_causal, (window_size_left, window_size_right), softcap)
    options |= {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, "seqused_q": sequed_q, "seqused_k": sequed_k}
    options |= {"max_seqlen_q": max_seqlen_q, "max_seqlen_k": max_seqlen_k, "deterministic": bool(deterministic)}
    return backward_and_row_sums((q, k, v), (dout, out, softmax_lse), (dq, dk, dv), options)[-1]
