"""torch.ops.tilewise: attention, attention_out, attention_backward, decode, append and merge, for everything that traces a program: torch.compile,
torch.export, FakeTensor, activation-checkpointing policies. Their keywords are the fields of the C interface.

    attention(q, k, v, *, ...) -> (o, lse)
    attention_out(q, k, v, out, *, ...) -> lse                         writes out
    attention_backward(grad_o, grad_lse, q, k, v, o, lse, *, grad_bias, grad_sink, ...) -> [grad_q, grad_k, grad_v, grad_bias?, grad_sink?]
    attention_dropout, attention_dropout_backward                      as above, with a seed in a tensor: not for CUDA graphs
    decode(q, k_cache, v_cache, k_new, v_new, *, ...) -> (o, lse)      writes the caches and error_flag
    append(k_cache, v_cache, k_new, v_new, *, ...)                     writes the caches and error_flag
    merge(partial_o, partial_lse, *, ...) -> (o, lse)

The ops record no gradient: autograd lies outside, in `torch_autograd.py`, which costs a third of what a formula registered with an op
costs. They are leaves of a graph: each runs whole, on the current stream, with memory of torch's allocator, and waits for nothing.
"""

import torch

from . import _native
from ._shapes import merged_shapes
from ._torch import note_written, outputs, place, refuse_capture

_LENGTHS = (
    "Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_k=None, Tensor? seqused_q=None, Tensor? leftpad_k=None, "
    "Tensor? page_table=None, SymInt? max_seqlen_q=None, SymInt? max_seqlen_k=None"
)
_MASK = (
    "bool causal=False, bool top_left=False, int chunk=0, int? window_left=None, int? window_right=None, SymInt prefix=0, "
    "int block=0, Tensor? prefix_lens=None, Tensor? mask=None, Tensor? key_begin=None, Tensor? key_end=None"
)
_SCORE = "float? softmax_scale=None, float softcap=0.0, Tensor? alibi_slopes=None, Tensor? bias=None, Tensor? sink=None"
_DROPOUT = "float dropout_p=0.0, SymInt? dropout_seed=None, SymInt? dropout_offset=None"
# A seed that the program draws, int64 (1) on the CPU: a number would be a constant of a traced program, the same in every step.
_DRAWN = "Tensor? dropout_state=None"
_LAUNCH = "int num_threads=0, str? kernel_name=None"
_INVARIANT = "bool batch_invariant=False"
_ATTENTION = f"Tensor? seqused_k=None, bool deterministic=False, {_LENGTHS}, {_MASK}, {_SCORE}, {_DROPOUT}, {_INVARIANT}, {_LAUNCH}"
_CACHE = (
    "Tensor? cache_seqlens=None, Tensor? cache_batch_idx=None, Tensor? cu_seqlens_k_new=None, Tensor? rotary_cos=None, "
    "Tensor? rotary_sin=None, Tensor? rotary_seqlens=None, bool rotary_interleaved=False, Tensor(c!)? error_flag=None"
)
_CACHES = "Tensor(a!) k_cache, Tensor(b!) v_cache"

_QKV = "Tensor q, Tensor k, Tensor v"
_SAVED = f"Tensor grad_o, Tensor? grad_lse, {_QKV}, Tensor o, Tensor lse, *, bool grad_bias=False, bool grad_sink=False"

_SCHEMAS = {
    "attention": f"({_QKV}, *, int num_splits=0, {_ATTENTION}) -> (Tensor, Tensor)",
    "attention_dropout": f"({_QKV}, *, int num_splits=0, {_ATTENTION}, {_DRAWN}) -> (Tensor, Tensor)",
    "attention_out": f"({_QKV}, Tensor(a!) out, *, int num_splits=0, {_ATTENTION}, {_DRAWN}) -> Tensor",
    "attention_backward": f"({_SAVED}, {_ATTENTION}) -> Tensor[]",
    "attention_dropout_backward": f"({_SAVED}, {_ATTENTION}, {_DRAWN}) -> Tensor[]",
    "decode": f"(Tensor q, {_CACHES}, Tensor? k_new, Tensor? v_new, *, int num_splits=0, {_LENGTHS}, {_MASK}, {_SCORE}, {_CACHE}, "
    f"{_INVARIANT}, {_LAUNCH}) -> (Tensor, Tensor)",
    "append": f"({_CACHES}, Tensor k_new, Tensor v_new, *, Tensor? page_table=None, Tensor? leftpad_k=None, {_CACHE}, {_LAUNCH}) -> ()",
    "merge": f"(Tensor partial_o, Tensor partial_lse, *, {_LAUNCH}) -> (Tensor, Tensor)",
}


def _run(op, like, **fields):
    state = fields.pop("dropout_state", None)
    if state is not None:
        refuse_capture(like)
        fields["dropout_seed"] = int(state)
    for name in ("dropout_seed", "dropout_offset"):
        if name in fields:
            fields[name] &= 2**64 - 1  # a schema has no unsigned numbers
    if "kernel_name" in fields:
        fields["kernel"] = fields.pop("kernel_name")  # torch.compile's own keyword
    _native.run(op, **place(like), **fields)


def attention(q, k, v, **fields):
    o, lse = outputs(q, v, fields, True, None)
    _run(_native.FORWARD, q, q=q, k=k, v=v, o=o, lse=lse, **fields)
    return o, lse


def _attention_fake(q, k, v, **_):
    return outputs(q, v, {}, True, None)


def attention_out(q, k, v, out, **fields):
    _, lse = outputs(q, v, fields, True, out)
    _run(_native.FORWARD, q, q=q, k=k, v=v, o=out, lse=lse, **fields)
    note_written(out)
    return lse


def _attention_out_fake(q, k, v, out, **_):
    return outputs(q, v, {}, True, out)[1]


def _new_gradients(q, k, v, fields):
    """Gradients by field, in the order of the op's results, to be written; takes their switches from `fields`."""
    gradients = {"grad_q": torch.empty_like(q), "grad_k": torch.empty_like(k), "grad_v": torch.empty_like(v)}
    for name in ("bias", "sink"):
        if fields.pop("grad_" + name, False):
            gradients["grad_" + name] = torch.empty_like(fields[name])
    return gradients


def attention_backward(grad_o, grad_lse, *saved, **fields):
    q, k, v, o, lse = saved
    if grad_o.stride(-1) != 1:
        # As of o.sum(), whose gradient is one number seen o.numel() times: kernels are fast on rows in one piece.
        grad_o = grad_o.contiguous()
    gradients = _new_gradients(q, k, v, fields)
    tensors = {"q": q, "k": k, "v": v, "o": o, "lse": lse, "grad_o": grad_o, "grad_lse": grad_lse}
    _run(_native.BACKWARD, q, **tensors, **gradients, **fields)
    return list(gradients.values())


def _attention_backward_fake(grad_o, grad_lse, *saved, **fields):
    return list(_new_gradients(*saved[:3], fields).values())


def _decode(q, k_cache, v_cache, k_new, v_new, **fields):
    o, lse = outputs(q, v_cache, fields, True, None)
    _run(_native.DECODE, q, q=q, k=k_cache, v=v_cache, k_new=k_new, v_new=v_new, o=o, lse=lse, **fields)
    if k_new is not None:
        note_written(k_cache, v_cache)
    return o, lse


def _decode_fake(q, k_cache, v_cache, k_new, v_new, **_):
    return outputs(q, v_cache, {}, True, None)


def _append(k_cache, v_cache, k_new, v_new, **fields):
    _run(_native.APPEND, k_cache, k=k_cache, v=v_cache, k_new=k_new, v_new=v_new, **fields)
    note_written(k_cache, v_cache)


def _append_fake(k_cache, v_cache, k_new, v_new, **_):
    return None


def merge(partial_o, partial_lse, **fields):
    o, lse = _merge_fake(partial_o, partial_lse)
    _run(_native.COMBINE, partial_o, partial_o=partial_o, partial_lse=partial_lse, o=o, lse=lse, **fields)
    return o, lse


def _merge_fake(partial_o, partial_lse, **_):
    shape, lse_shape = merged_shapes(partial_o, partial_lse)
    return partial_o.new_empty(shape), partial_lse.new_empty(lse_shape)


def refuse_vmap(*_, **__):
    raise NotImplementedError(
        "torch.vmap: attention is not vectorised; its first axis is the batch: give it all samples in one call, or ragged ones to attention_varlen"
    )


def _tags(name):
    """What torch.compile may not do. It gives strides as in eager mode, where it can promise them: a kernel is chosen by them."""
    exact = getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)
    no_graph = [torch.Tag.cudagraph_unsafe] if "dropout" in name and hasattr(torch.Tag, "cudagraph_unsafe") else []
    return [torch.Tag.pt2_compliant_tag, exact, *no_graph]


def _register():
    library = torch.library.Library("tilewise", "DEF")
    implementations = {
        "attention": (attention, _attention_fake),
        "attention_dropout": (attention, _attention_fake),
        "attention_out": (attention_out, _attention_out_fake),
        "attention_backward": (attention_backward, _attention_backward_fake),
        "attention_dropout_backward": (attention_backward, _attention_backward_fake),
        "decode": (_decode, _decode_fake),
        "append": (_append, _append_fake),
        "merge": (merge, _merge_fake),
    }
    for name, schema in _SCHEMAS.items():
        implementation, fake = implementations[name]
        library.define(name + schema, tags=_tags(name))
        library.impl(name, implementation, "CPU")
        library.impl(name, implementation, "CUDA")
        library.impl(name, refuse_vmap, "FuncTorchBatched")
        torch.library.register_fake(f"tilewise::{name}", fake, lib=library)
    return library


_library = _register()  # ops live as long as it does
