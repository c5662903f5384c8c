"""From the arguments of flash_attn to options of `tilewise.attention`, for both generations."""

import torch

MAX_SPLITS = 256
# Below it every probability is kept: callers ask for 1e-30 to be given lse by versions that had no other way.
LEAST_DROPOUT = 2.0**-32


def bound(value):
    """A side of a window: any negative number is unlimited."""
    value = -1 if value is None else int(value)
    return value if value >= 0 else -1


def score_options(softmax_scale, causal, window_size, softcap, alibi_slopes=None):
    """The options that decide scores and mask. `window_size` is whatever has a [0] and a [1], a tensor too."""
    left, right = bound(window_size[0]), bound(window_size[1])
    options = {"causal": bool(causal)}
    if left >= 0 or (right >= 0 and not causal):
        options["window"] = (left, 0 if causal else right)
    if softmax_scale is not None:
        options["scale"] = float(softmax_scale)
    if softcap is not None and softcap > 0:
        options["softcap"] = float(softcap)
    if alibi_slopes is not None:
        options["alibi_slopes"] = alibi_slopes
    return options


def dropout_probability(dropout_p):
    return 0.0 if 0.0 <= dropout_p < LEAST_DROPOUT else float(dropout_p)


def split_options(num_splits, most=MAX_SPLITS):
    """0 and less: the plan chooses."""
    if num_splits > most:
        raise ValueError(f"num_splits: {num_splits} is more than {most}")
    return {"num_splits": int(num_splits)} if num_splits > 0 else {}


def ragged_options(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_k=None, page_table=None):
    """Lengths of a ragged call. With pages cu_seqlens_k only says how long the sequences are."""
    options = {"cu_seqlens_q": cu_seqlens_q, "max_seqlen_q": max_seqlen_q}
    if page_table is None:
        options |= {"cu_seqlens_k": cu_seqlens_k, "max_seqlen_k": max_seqlen_k, "seqused_k": seqused_k}
    else:
        lengths = cu_seqlens_k[1:] - cu_seqlens_k[:-1] if seqused_k is None else seqused_k
        options |= {"page_table": page_table, "seqused_k": lengths}
    return {name: value for name, value in options.items() if value is not None}


def cache_lengths(cache_seqlens, q, cu_seqlens_q=None):
    """int32 (batch); a number is that of every sequence."""
    if cache_seqlens is None or isinstance(cache_seqlens, torch.Tensor) and cache_seqlens.dim() > 0:
        return cache_seqlens
    batch = q.shape[0] if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1
    return torch.full((batch,), int(cache_seqlens), dtype=torch.int32, device=q.device)


def rotary_options(rotary_cos, rotary_sin, rotary_interleaved, rotary_seqlens=None):
    """None of it without tables: the flag has a default, so it says nothing alone."""
    if rotary_cos is None and rotary_sin is None:
        return {}
    options = {"rotary_cos": rotary_cos, "rotary_sin": rotary_sin, "rotary_seqlens": rotary_seqlens}
    return options | {"rotary_interleaved": bool(rotary_interleaved)}


def without_gradients(function, *arguments, **options):
    """Calls what records none; entering a mode that is on already would cost a microsecond or two."""
    if not torch.is_grad_enabled():
        return function(*arguments, **options)
    with torch.no_grad():
        return function(*arguments, **options)


def round_up(number, multiple):
    return (number + multiple - 1) // multiple * multiple
