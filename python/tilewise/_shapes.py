"""Shapes of outputs. They trust the inputs: what does not fit is refused by the library, whose messages name the argument."""


def output_shapes(q, v):
    """Shapes of o and lse: (b, sq, h, dv) and (b, h, sq), or ragged (total_q, h, dv) and (h, total_q)."""
    shape, head_dim_v = tuple(q.shape), v.shape[-1] if len(v.shape) > 0 else 0
    if len(shape) == 4:
        batch, seqlen, heads, _ = shape
        return (batch, seqlen, heads, head_dim_v), (batch, heads, seqlen)
    if len(shape) == 3:
        total, heads, _ = shape
        return (total, heads, head_dim_v), (heads, total)
    raise ValueError(
        f"q: has {len(shape)} axes, {shape}; (batch, seqlen_q, num_heads_q, head_dim), or ragged "
        "(total_q, num_heads_q, head_dim) with cu_seqlens_q, is allowed"
    )


def merged_shapes(partial_o, partial_lse):
    """Shapes of o and lse from stacked parts: without the first axis."""
    if len(partial_o.shape) not in (4, 5):
        raise ValueError(
            f"partial_o: is {tuple(partial_o.shape)}; (splits, batch, seqlen_q, num_heads_q, head_dim_v), or ragged "
            "(splits, total_q, num_heads_q, head_dim_v), is allowed"
        )
    if len(partial_lse.shape) != len(partial_o.shape) - 1:
        raise ValueError(
            f"partial_lse: is {tuple(partial_lse.shape)} beside partial_o {tuple(partial_o.shape)}; "
            "(splits, batch, num_heads_q, seqlen_q), or ragged (splits, num_heads_q, total_q), is allowed"
        )
    return tuple(partial_o.shape[1:]), tuple(partial_lse.shape[1:])
