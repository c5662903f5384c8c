"""The operators that flash_attn and flash_attn 3 register with torch, under their names and with their schemas, for programs that call or
list them: torch.ops.flash_attn._flash_attn_forward, torch.ops.flash_attn_3.fwd and so on. CPU tensors are served too.

Those with an underscore may be traced; fwd, bwd, fwd_combine and get_scheduler_metadata are for eager mode, as in flash_attn 3.
"""

import math

import torch

from .._torch import note_written, outputs
from . import fa2_ops, fa3_ops
from ._arguments import round_up
from ._gradients import backward

_QKV = "Tensor q, Tensor k, Tensor v"
_SAVED = f"Tensor dout, {_QKV}, Tensor out, Tensor softmax_lse"
_FOUR = "(Tensor, Tensor, Tensor, Tensor)"

# flash_attn
_SCORES = "float dropout_p, float softmax_scale, bool causal"
_WINDOW = "SymInt window_size_left, SymInt window_size_right, float softcap, Tensor? alibi_slopes"
_RAGGED = "Tensor cu_seqlens_q, Tensor cu_seqlens_k, SymInt max_seqlen_q, SymInt max_seqlen_k"
_VARLEN = (
    "SymInt window_size_left=-1, SymInt window_size_right=-1, float softcap=0.0, Tensor? alibi_slopes=None, "
    "bool return_softmax=False, Tensor? block_table=None, Tensor? leftpad_k=None, Tensor? seqused_k=None, bool zero_tensors=False"
)
_GRADIENTS = "Tensor(a!)? dq, Tensor(b!)? dk, Tensor(c!)? dv"

# flash_attn 3
_USED = "Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_k=None, Tensor? {}_q=None, Tensor? {}_k=None"
_NEW = "Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_k=None, Tensor? cu_seqlens_k_new=None, Tensor? seqused_q=None, Tensor? seqused_k=None"
_LONGEST = "{0}? max_seqlen_q=None, {0}? max_seqlen_k=None"
_CACHE = (
    "Tensor? page_table=None, Tensor? kv_batch_idx=None, Tensor? leftpad_k=None, Tensor? rotary_cos=None, Tensor? rotary_sin=None, "
    "Tensor? seqlens_rotary=None, Tensor? q_descale=None, Tensor? k_descale=None, Tensor? v_descale=None"
)
_SIDES = "{0} window_size_left=-1, {0} window_size_right=-1"
_CHUNK = "{0} attention_chunk=0, float softcap=0.0"
_STEER = "Tensor? scheduler_metadata=None, {0} num_splits={1}, bool? pack_gqa=None, {0} sm_margin=0"


def _sums(dout, batch=None):
    """Row sums of dout * out, without values: (batch, heads, rows rounded up), or ragged (heads, rows + 128 * batch)."""
    rows, heads = dout.shape[-3:-1]
    shape = (dout.shape[0], heads, round_up(rows, 128)) if batch is None else (heads, rows + 128 * batch)
    return dout.new_empty(shape, dtype=torch.float32)


def _sums_fake(*, dout, cu_seqlens_q=None, **_):
    return _sums(dout, None if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1)


def _forward_fake(*, q, k, v, dropout_p, return_softmax, cu_seqlens_q=None, max_seqlen_q=None, max_seqlen_k=None, **_):
    o, lse = outputs(q, v, {}, True, None)
    shape = (0,)
    if return_softmax and dropout_p > 0:
        sizes = (q.shape[1], k.shape[1]) if cu_seqlens_q is None else (max_seqlen_q, max_seqlen_k)
        batch = q.shape[0] if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1
        shape = (batch, q.shape[-2], *(round_up(size, 128) for size in sizes))
    return o, lse, q.new_empty(shape), torch.empty(2, dtype=torch.int64, device="cpu")


def _writing(function):
    """`function`, which writes dq, dk and dv, as autograd must know."""

    def call(**named):
        result = function(**named)
        note_written(named["dq"], named["dk"], named["dv"])
        return result

    return call


def _third_forward_fake(*, q, v, out_, k_new, num_splits, **_):
    for name, x in (("out_", out_), ("k_new", k_new)):
        if x is not None:
            raise NotImplementedError(f"{name}: a traced call of this operator writes nothing; call flash_attn_with_kvcache")
    return *outputs(q, v, {}, True, None), *fa3_ops.no_parts(q)


def _fwd(*, q_v, out, is_causal, is_rotary_interleaved, **others):
    return fa3_ops._flash_attn_forward(
        qv=q_v, out_=out, causal=is_causal, rotary_interleaved=is_rotary_interleaved, **others
    )


def _bwd(*, seqused_q, seqused_k, softmax_lse, **others):
    """(row sums of dout * out, lse in base 2, and three sums that are not kept)"""
    sums = fa3_ops._flash_attn_backward(softmax_lse=softmax_lse, sequed_q=seqused_q, sequed_k=seqused_k, **others)
    return sums, softmax_lse * math.log2(math.e), *(softmax_lse.new_empty(0) for _ in range(3))


def _metadata(*, num_heads, num_heads_k, seqused_k, is_causal, window_size_left, window_size_right, **others):
    ignored = ("cu_seqlens_k", "seqused_q", "leftpad_k")
    return fa3_ops.get_scheduler_metadata(
        num_heads_q=num_heads,
        num_heads_kv=num_heads_k,
        cache_seqlens=seqused_k,
        causal=is_causal,
        window_size=(window_size_left, window_size_right),
        **{name: value for name, value in others.items() if name not in ignored},
    )


# namespace: {schema: (function of all arguments by name, the same without values)}
_OPERATORS = {
    "flash_attn": {
        f"_flash_attn_forward({_QKV}, {_SCORES}, {_WINDOW}, bool return_softmax) -> {_FOUR}": (
            fa2_ops._flash_attn_forward,
            _forward_fake,
        ),
        f"_flash_attn_varlen_forward({_QKV}, {_RAGGED}, {_SCORES}, {_VARLEN}) -> {_FOUR}": (
            fa2_ops._flash_attn_varlen_forward,
            _forward_fake,
        ),
        f"_flash_attn_backward({_SAVED}, {_GRADIENTS}, {_SCORES}, {_WINDOW}, bool deterministic, Tensor? rng_state=None) -> Tensor": (
            _writing(fa2_ops._flash_attn_backward),
            _sums_fake,
        ),
        f"_flash_attn_varlen_backward({_SAVED}, {_GRADIENTS}, {_RAGGED}, {_SCORES}, {_WINDOW}, bool deterministic, "
        "Tensor? rng_state=None, bool zero_tensors=False) -> Tensor": (
            _writing(fa2_ops._flash_attn_varlen_backward),
            _sums_fake,
        ),
    },
    "flash_attn_3": {
        f"_flash_attn_forward({_QKV}, Tensor? k_new=None, Tensor? v_new=None, Tensor? qv=None, Tensor? out_=None, {_NEW}, "
        f"{_LONGEST.format('SymInt')}, {_CACHE}, float? softmax_scale=None, bool causal=False, {_SIDES.format('SymInt')}, "
        f"{_CHUNK.format('SymInt')}, bool rotary_interleaved=True, {_STEER.format('SymInt', 1)}) -> {_FOUR}": (
            torch.no_grad()(fa3_ops._flash_attn_forward),
            _third_forward_fake,
        ),
        f"_flash_attn_backward({_SAVED}, {_USED.format('sequed', 'sequed')}, {_LONGEST.format('SymInt')}, Tensor(a!)? dq=None, "
        f"Tensor(b!)? dk=None, Tensor(c!)? dv=None, float? softmax_scale=None, bool is_causal=False, {_SIDES.format('SymInt')}, "
        "float softcap=0.0, bool deterministic=False, SymInt sm_margin=0) -> Tensor": (
            _writing(fa3_ops._flash_attn_backward),
            _sums_fake,
        ),
        f"fwd({_QKV}, Tensor(k_new!)? k_new=None, Tensor(v_new!)? v_new=None, Tensor? q_v=None, Tensor(out!)? out=None, {_NEW}, "
        f"{_LONGEST.format('int')}, {_CACHE}, float? softmax_scale=None, bool is_causal=False, {_SIDES.format('int')}, "
        f"{_CHUNK.format('int')}, bool is_rotary_interleaved=False, {_STEER.format('int', 0)}) -> (Tensor(out!), Tensor, Tensor, Tensor)": (
            torch.no_grad()(_fwd),
            None,
        ),
        f"bwd({_SAVED}, Tensor(dq!)? dq=None, Tensor(dk!)? dk=None, Tensor(dv!)? dv=None, {_USED.format('seqused', 'seqused')}, "
        f"{_LONGEST.format('int')}, float? softmax_scale=None, bool is_causal=False, {_SIDES.format('int')}, float softcap=0.0, "
        "bool deterministic=False, int sm_margin=0) -> (Tensor, Tensor, Tensor, Tensor, Tensor)": (_writing(_bwd), None),
        "fwd_combine(Tensor out_partial, Tensor lse_partial, Tensor(out!)? out=None, ScalarType? out_dtype=None) "
        "-> (Tensor(out!), Tensor)": (torch.no_grad()(fa3_ops.flash_attn_combine), None),
        "get_scheduler_metadata(int batch_size, int max_seqlen_q, int max_seqlen_k, int num_heads, int num_heads_k, int headdim, "
        "int headdim_v, ScalarType qkv_dtype, Tensor seqused_k, Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_k=None, "
        "Tensor? cu_seqlens_k_new=None, Tensor? seqused_q=None, Tensor? leftpad_k=None, int? page_size=None, int max_seqlen_k_new=0, "
        f"bool is_causal=False, {_SIDES.format('int')}, int attention_chunk=0, bool has_softcap=False, int num_splits=0, "
        "bool? pack_gqa=None, int sm_margin=0) -> Tensor": (_metadata, None),
    },
}


def _by_name(arguments, function):
    """Takes what torch gives, positions and no defaults, and calls `function` with every argument by its name."""
    names = [argument.name for argument in arguments]
    defaults = {argument.name: argument.default_value for argument in arguments if argument.has_default_value()}

    def call(*values, **named):
        return function(**{**defaults, **dict(zip(names, values)), **named})

    return call


def _keep(ctx, inputs, output):
    names = [argument.name for argument in torch.ops.flash_attn_3._flash_attn_forward.default._schema.arguments]
    given = dict(zip(names, inputs))
    lengths = ("cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k")
    ctx.save_for_backward(*(given[name] for name in ("q", "k", "v", *lengths)), *output[:2])
    ctx.refused = [name for name in ("k_new", "qv", "page_table", "kv_batch_idx", "leftpad_k") if given[name] is not None]
    window = (given["window_size_left"], given["window_size_right"])
    ctx.options = fa3_ops.attention_options(
        given["softmax_scale"], given["causal"], window, given["softcap"], given["attention_chunk"]
    ) | {name: given[name] for name in ("max_seqlen_q", "max_seqlen_k")}


def _gradients(ctx, grad_o, *_):
    """Of q, k and v; lse has none, as in flash_attn 3."""
    if ctx.refused:
        raise NotImplementedError(f"{ctx.refused[0]}: a call with it has no gradient")
    q, k, v, *lengths, o, lse = ctx.saved_tensors
    options = ctx.options | dict(zip(("cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k"), lengths))
    return *backward((q, k, v), (grad_o, o, lse), (None, None, None), options), *(None,) * 31


_libraries = {}  # operators live as long as they do


def register(namespace):
    """Registers the operators of "flash_attn" or "flash_attn_3", once."""
    if namespace in _libraries:
        return
    library = _libraries[namespace] = torch.library.Library(namespace, "FRAGMENT")
    for schema, (function, fake) in _OPERATORS[namespace].items():
        name = schema.partition("(")[0]
        library.define(schema)
        arguments = getattr(getattr(torch.ops, namespace), name).default._schema.arguments
        library.impl(name, _by_name(arguments, function), "CompositeExplicitAutograd")
        if fake is not None:
            torch.library.register_fake(f"{namespace}::{name}", _by_name(arguments, fake), lib=library)
    if namespace == "flash_attn_3":
        torch.library.register_autograd(f"{namespace}::_flash_attn_forward", _gradients, setup_context=_keep, lib=library)
