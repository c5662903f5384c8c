"""flash_attn.layers.rotary: rotary position embedding, in torch, computed in float32 (float64 for float64)."""

import torch


def _rows(table, positions):
    """Rows of cos and sin tables; past their end nothing is rotated."""
    cos, sin = table
    inside = (positions >= 0) & (positions < cos.shape[0])
    positions = positions.clamp(0, cos.shape[0] - 1)
    return torch.where(inside[..., None], cos[positions], 1.0), torch.where(inside[..., None], sin[positions], 0.0)


def _positions(x, seqlen_offsets, cu_seqlens):
    """Position of each row of x: (seqlen), (batch, seqlen) or ragged (total)."""
    is_array = isinstance(seqlen_offsets, torch.Tensor) and seqlen_offsets.dim() > 0
    if cu_seqlens is None:
        rows = torch.arange(x.shape[1], device=x.device)
        return rows + (seqlen_offsets[:, None] if is_array else seqlen_offsets)
    rows = torch.arange(x.shape[0], device=x.device)
    sequence = torch.searchsorted(cu_seqlens[1:].contiguous(), rows.to(cu_seqlens.dtype), right=True)
    sequence = sequence.clamp(max=cu_seqlens.shape[0] - 2)
    return rows - cu_seqlens[sequence] + (seqlen_offsets[sequence] if is_array else seqlen_offsets)


def _check(x, cos, sin, max_seqlen):
    if x.dim() not in (3, 4):
        raise ValueError(f"x: has {x.dim()} axes; (batch, seqlen, heads, head_dim), or ragged (total, heads, head_dim), is allowed")
    if (x.dim() == 3) != (max_seqlen is not None):
        raise ValueError("max_seqlen: is needed with cu_seqlens, and only with it")
    if cos.shape != sin.shape or cos.dim() != 2 or 2 * cos.shape[1] > x.shape[-1]:
        allowed = f"two of (positions, rotary_dim / 2) with rotary_dim at most head_dim {x.shape[-1]} are allowed"
        raise ValueError(f"cos, sin: are {tuple(cos.shape)} and {tuple(sin.shape)}; {allowed}")


def _rotate(x, cos, sin, interleaved):
    """The rotated features of x, in x's type; cos and sin have the axes of x."""
    compute = torch.float64 if x.dtype == torch.float64 else torch.float32
    width = 2 * cos.shape[-1]
    pairs = x[..., :width].to(compute).unflatten(-1, (-1, 2) if interleaved else (2, -1))
    first, second = pairs.unbind(-1 if interleaved else -2)
    cos, sin = cos.to(compute), sin.to(compute)
    rotated = (first * cos - second * sin, first * sin + second * cos)
    return torch.stack(rotated, -1 if interleaved else -2).flatten(-2).to(x.dtype)


def apply_rotary(
    x, cos, sin, seqlen_offsets=0, cu_seqlens=None, max_seqlen=None, interleaved=False, inplace=False, conjugate=False
):
    """`apply_rotary_emb` without gradients, as flash_attn.ops.triton.rotary has it; `conjugate` rotates back."""
    if cu_seqlens is not None and max_seqlen is None:
        raise ValueError("max_seqlen: is needed with cu_seqlens")
    _check(x, cos, sin, max_seqlen if cu_seqlens is not None else None)
    with torch.no_grad():
        table = (cos, -sin if conjugate else sin)
        cos, sin = (rows[..., None, :] for rows in _rows(table, _positions(x, seqlen_offsets, cu_seqlens)))
        out = x if inplace else x.clone(memory_format=torch.contiguous_format)
        out[..., : 2 * cos.shape[-1]] = _rotate(x, cos, sin, interleaved)
    return out


class ApplyRotaryEmb(torch.autograd.Function):
    """Rotates x; the gradient is rotated back."""

    @staticmethod
    def forward(ctx, x, cos, sin, interleaved=False, inplace=False, seqlen_offsets=0, cu_seqlens=None, max_seqlen=None):
        ctx.save_for_backward(cos, sin)
        ctx.rest = (seqlen_offsets, cu_seqlens, max_seqlen, interleaved)
        out = apply_rotary(x, cos, sin, *ctx.rest, inplace=inplace)
        if inplace:
            ctx.mark_dirty(x)
        return out

    @staticmethod
    def backward(ctx, gradient):
        return apply_rotary(gradient, *ctx.saved_tensors, *ctx.rest, conjugate=True), *(None,) * 7


def apply_rotary_emb(
    x, cos, sin, interleaved=False, inplace=False, seqlen_offsets=0, cu_seqlens=None, max_seqlen=None
):
    """Rotates the pairs (t, t + rotary_dim / 2) of x, or (2t, 2t + 1) if interleaved, by the angles of each row's position.

    x (batch, seqlen, heads, head_dim), or ragged (total, heads, head_dim) with cu_seqlens and max_seqlen; cos, sin (positions,
    rotary_dim / 2). Row t of a sequence has position t + seqlen_offsets, an int or int (batch). Features past rotary_dim are kept.
    """
    return ApplyRotaryEmb.apply(x, cos, sin, interleaved, inplace, seqlen_offsets, cu_seqlens, max_seqlen)


apply_rotary_emb_func = apply_rotary_emb


def rotate_half(x, interleaved=False):
    """(first, second) of each pair -> (-second, first)."""
    first, second = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    return torch.stack((-second, first), -1).flatten(-2) if interleaved else torch.cat((-second, first), -1)


def apply_rotary_emb_torch(x, cos, sin, interleaved=False):
    """`apply_rotary_emb` of differentiable operations: cos, sin (seqlen, rotary_dim / 2) or (batch, seqlen, rotary_dim / 2)."""
    cos, sin = cos[..., None, :], sin[..., None, :]
    return torch.cat((_rotate(x, cos, sin, interleaved), x[..., 2 * cos.shape[-1] :]), -1)


def _parts(packed, num_heads_q):
    """q and k of qkv, as views."""
    if packed.dim() == 5:
        return packed[:, :, 0], packed[:, :, 1]
    if packed.dim() != 4 or num_heads_q is None:
        raise ValueError(
            f"qkv: is {tuple(packed.shape)}; (batch, seqlen, 3, heads, head_dim), or with num_heads_q (batch, seqlen, "
            "num_heads_q + 2 heads_kv, head_dim), is allowed"
        )
    last = num_heads_q + (packed.shape[2] - num_heads_q) // 2
    return packed[:, :, :num_heads_q], packed[:, :, num_heads_q:last]


class ApplyRotaryEmbQKV_(torch.autograd.Function):
    """Rotates q and k of a packed qkv in place."""

    @staticmethod
    def forward(ctx, qkv, cos, sin, cos_k=None, sin_k=None, interleaved=False, seqlen_offsets=0, num_heads_q=None):
        ctx.tables = (cos, sin), (cos if cos_k is None else cos_k, sin if sin_k is None else sin_k)
        ctx.rest = interleaved, seqlen_offsets, num_heads_q
        ApplyRotaryEmbQKV_._rotate(ctx, qkv, False)
        ctx.mark_dirty(qkv)
        return qkv

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        ApplyRotaryEmbQKV_._rotate(ctx, gradient, True)
        return gradient, *(None,) * 7

    @staticmethod
    def _rotate(ctx, qkv, conjugate):
        interleaved, offsets, num_heads_q = ctx.rest
        for part, (cos, sin) in zip(_parts(qkv, num_heads_q), ctx.tables):
            apply_rotary(part, cos, sin, offsets, interleaved=interleaved, inplace=True, conjugate=conjugate)


class ApplyRotaryEmbKV_(torch.autograd.Function):
    """Rotates k of a packed kv in place."""

    @staticmethod
    def forward(ctx, kv, cos, sin, interleaved=False, seqlen_offsets=0):
        ctx.save_for_backward(cos, sin)
        ctx.rest = seqlen_offsets, None, None, interleaved
        apply_rotary(kv[:, :, 0], cos, sin, *ctx.rest, inplace=True)
        ctx.mark_dirty(kv)
        return kv

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        apply_rotary(gradient[:, :, 0], *ctx.saved_tensors, *ctx.rest, inplace=True, conjugate=True)
        return gradient, *(None,) * 4


def apply_rotary_emb_qkv_(
    qkv, cos, sin, cos_k=None, sin_k=None, interleaved=False, seqlen_offsets=0, num_heads_q=None
):
    """Rotates q and k of qkv (batch, seqlen, 3, heads, head_dim) in place, or of (batch, seqlen, num_heads_q + 2 heads_kv, head_dim)."""
    return ApplyRotaryEmbQKV_.apply(qkv, cos, sin, cos_k, sin_k, interleaved, seqlen_offsets, num_heads_q)


def apply_rotary_emb_kv_(kv, cos, sin, interleaved=False, seqlen_offsets=0):
    """Rotates k of kv (batch, seqlen, 2, heads_kv, head_dim) in place."""
    return ApplyRotaryEmbKV_.apply(kv, cos, sin, interleaved, seqlen_offsets)
