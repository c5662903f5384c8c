"""torch.ops.tilewise: opcheck, fakes that tell exactly what the ops give, and what transforms get to hear."""

import pytest
import reference
import tilewise
import torch
from tilewise import torch_ops
from torch._subclasses import FakeTensorMode
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

OPS = torch.ops.tilewise
# Gradients are recorded outside of the ops, which is what opcheck's fourth test looks for.
CHECKS = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")


def tensors(rng, **shape):
    return [torch.from_numpy(x) for x in reference.tensors(rng, **{"seqlen_q": 7, "seqlen_k": 9, "head_dim": 8, "head_dim_v": 6, **shape})]


def int32(*values):
    return torch.tensor(values, dtype=torch.int32)


def calls(rng):
    """name: (op, arguments, keywords)."""
    q, k, v = tensors(rng)
    o, lse = OPS.attention(q, k, v)
    grad_o, row = torch.ones_like(o), {"kernel_name": "cpu_reference_forward", "num_threads": 1}
    flat = [x[0] for x in (q, k, v)]
    bias, sink = torch.zeros(1, 4, 7, 9), torch.zeros(4)
    many = {"causal": True, "window_left": 5, "window_right": 0, "softcap": 2.0, "softmax_scale": 0.3, "bias": bias, "sink": sink}
    state = torch.tensor([5])
    ragged = {"cu_seqlens_q": int32(0, 3, 7), "cu_seqlens_k": int32(0, 4, 9), "max_seqlen_q": 4, "max_seqlen_k": 5}
    cache, lengths = (k.clone(), v.clone()), {"cache_seqlens": int32(3, 5)}
    new = k[:, :1].clone(), v[:, :1].clone()
    parts = torch.randn(3, 2, 7, 4, 6), torch.randn(3, 2, 4, 7)
    return {
        "plain": (OPS.attention, (q, k, v), {}),
        "many": (OPS.attention, (q, k, v), many),
        "pinned": (OPS.attention, (q, k, v), row),
        "ragged": (OPS.attention, flat, ragged),
        "by_heads": (OPS.attention, [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)], {}),
        "expanded": (OPS.attention, (q, k[:, :, :1].expand(-1, -1, 4, -1), v[:1, :, :1].expand(2, -1, 4, -1)), {}),
        "seqused": (OPS.attention, (q, k, v), {"seqused_q": int32(7, 7)}),
        "dropout": (OPS.attention, (q, k, v), {"dropout_p": 0.5, "dropout_seed": 2**62, "dropout_offset": 1}),
        "drawn": (OPS.attention_dropout, (q, k, v), {"dropout_p": 0.5, "dropout_state": state}),
        "out": (OPS.attention_out, (q, k, v, torch.zeros(2, 7, 4, 6)), many),
        "backward": (OPS.attention_backward, (grad_o, lse, q, k, v, o, lse), {}),
        "backward_many": (OPS.attention_backward, (grad_o, None, q, k, v, o, lse), {**many, "grad_bias": True, "grad_sink": True}),
        "backward_expanded": (OPS.attention_backward, (torch.ones(()).expand(o.shape), None, q, k, v, o, lse), {}),
        "backward_drawn": (OPS.attention_dropout_backward, (grad_o, None, q, k, v, o, lse), {"dropout_p": 0.5, "dropout_state": state}),
        "decode": (OPS.decode, (q[:, :1], *cache, *new), lengths),
        "decode_only": (OPS.decode, (q[:, :1], *cache, None, None), {**lengths, "softcap": 1.0}),
        "append": (OPS.append, (*cache, *new), {**lengths, "error_flag": int32(0)}),
        "merge": (OPS.merge, parts, {"num_threads": 1}),
    }


NAMES = (
    "plain many pinned ragged by_heads expanded seqused dropout drawn out backward backward_many backward_expanded backward_drawn "
    "decode decode_only append merge"
).split()


def test_every_call_is_named(rng):
    assert NAMES == list(calls(rng))


@pytest.mark.parametrize("name", NAMES)
def test_opcheck(rng, name):
    op, arguments, keywords = calls(rng)[name]
    torch.library.opcheck(op.default, tuple(arguments), keywords, test_utils=CHECKS)


@pytest.mark.parametrize("name", NAMES)
def test_fakes_are_exact(rng, name):
    """Shape, strides, element type and device."""
    op, arguments, keywords = calls(rng)[name]

    def as_list(result):
        return [result] if isinstance(result, torch.Tensor) else list(result or ())

    with FakeTensorMode() as mode:
        fake = as_list(op(*torch.utils._pytree.tree_map_only(torch.Tensor, mode.from_tensor, arguments), **{
            key: mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for key, x in keywords.items()
        }))
    real = as_list(op(*arguments, **keywords))
    described = [[(x.shape, x.stride(), x.dtype, x.device) for x in results] for results in (fake, real)]
    assert described[0] == described[1]


def test_schemas_have_every_field(rng):
    """A field of the C interface that no op takes could not be traced."""
    from tilewise import _native

    written = {"o", "lse", "grad_o", "grad_lse", "grad_q", "grad_k", "grad_v", "q", "k", "v", "k_new", "v_new"}
    other = {"device", "stream", "allocate"}  # a traced call runs where its tensors are
    known = {"kernel" if a.name == "kernel_name" else a.name for name in torch_ops._SCHEMAS for a in getattr(OPS, name).default._schema.arguments}
    assert set(_native.fields()) - written - other <= known


def test_public_functions_under_fakes(rng):
    with FakeTensorMode():
        q, k, v = (torch.empty(x.shape, requires_grad=True) for x in tensors(rng))
        o, lse = tilewise.attention(q, k, v, causal=True, return_lse=True)
        o.sum().backward()
        assert q.grad.shape == q.shape and lse.shape == (2, 4, 7)
        cache = [torch.empty(2, 16, 2, 8), torch.empty(2, 16, 2, 6)]
        with torch.no_grad():
            assert tilewise.decode(q, *cache, cache_seqlens=torch.empty(2, dtype=torch.int32)).shape == (2, 7, 4, 6)
        assert tilewise.merge(torch.empty(2, 1, 3, 4, 8), torch.empty(2, 1, 4, 3))[0].shape == (1, 3, 4, 8)


def test_vmap_is_refused(rng):
    q, k, v = (x[None] for x in tensors(rng))
    recorded = [x.clone().requires_grad_() for x in (q, k, v)]
    cache_seqlens = int32(3, 3)

    def decode(q, k, v):
        return tilewise.decode(q, k, v, cache_seqlens=cache_seqlens)

    def gradient(*x):
        return torch.func.grad(lambda *y: tilewise.attention(*y).sum())(*x)

    for call, inputs in ((tilewise.attention, (q, k, v)), (tilewise.attention, recorded), (decode, (q, k, v)), (gradient, (q, k, v))):
        with pytest.raises(NotImplementedError, match="torch.vmap: attention is not vectorised"):
            torch.vmap(call)(*inputs)


def test_functional_gradients(rng):
    q, k, v = tensors(rng)

    def loss(q, k, v):
        return tilewise.attention(q, k, v, causal=True).square().sum()

    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    for own, other in zip(torch.func.grad(loss, argnums=(0, 1, 2))(q, k, v), torch.autograd.grad(loss(*inputs), inputs)):
        assert torch.equal(own, other)
    with pytest.raises(NotImplementedError, match="second derivatives"):
        torch.func.grad(lambda q: torch.func.grad(loss)(q, k, v).square().sum())(q)
    with pytest.raises(NotImplementedError, match="forward mode"):
        torch.func.jvp(lambda q: loss(q, k, v), (q,), (q,))
    with torch.autograd.forward_ad.dual_level(), pytest.raises(NotImplementedError, match="forward mode"):
        loss(torch.autograd.forward_ad.make_dual(q, q), k, v)


@pytest.mark.parametrize("use_reentrant", [False, True], ids=["", "reentrant"])
def test_checkpoint(rng, use_reentrant):
    """The second forward drops what the first one did, since it finds torch's generator as that did."""
    inputs = [x.requires_grad_() for x in tensors(rng)]

    def call(q, k, v):
        return tilewise.attention(2 * q, k, v, dropout_p=0.3)

    def gradients(run):
        torch.manual_seed(3)
        run().square().sum().backward()
        found = [x.grad for x in inputs]
        for x in inputs:
            x.grad = None
        return found

    kept = gradients(lambda: call(*inputs))
    again = gradients(lambda: checkpoint(call, *inputs, use_reentrant=use_reentrant))
    assert all(torch.equal(*pair) for pair in zip(kept, again))


def test_selective_checkpoint(rng):
    """A policy sees attention as one op."""
    seen = []

    def policy(context, op, *arguments, **keywords):
        seen.append(op)
        return CheckpointPolicy.MUST_SAVE if op is OPS.attention.default else CheckpointPolicy.PREFER_RECOMPUTE

    q, k, v = (x.requires_grad_() for x in tensors(rng))
    o = checkpoint(
        lambda q: tilewise.attention(2 * q, k, v),
        q,
        use_reentrant=False,
        context_fn=lambda: create_selective_checkpoint_contexts(policy),
    )
    (own,) = torch.autograd.grad(o.sum(), q)
    torch.testing.assert_close(own, torch.autograd.grad(tilewise.attention(2 * q, k, v).sum(), q)[0])
    assert OPS.attention.default in seen


def test_autocast(rng):
    q, k, v = (x.requires_grad_() for x in tensors(rng))
    sink = torch.zeros(4, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        o, lse = tilewise.attention(q, k.bfloat16(), v, sink=sink, return_lse=True)
        assert o.dtype == torch.bfloat16 and lse.dtype == torch.float32
        assert tilewise.attention(*(x.double() for x in (q, k, v))).dtype == torch.float64
        cache = [torch.zeros(2, 9, 2, 8), torch.zeros(2, 9, 2, 6)]
        with torch.no_grad():
            assert tilewise.decode(q.half(), *cache, k[:, :1].half(), v[:, :1], cache_seqlens=int32(0, 0)).dtype == torch.float32
    o.float().sum().backward()
    assert q.grad.dtype == k.grad.dtype == sink.grad.dtype == torch.float32
    with torch.no_grad():
        assert torch.equal(o, tilewise.attention(*(x.bfloat16() for x in (q, k, v)), sink=sink))


def test_fast_path(rng, monkeypatch):
    """Without gradients, tracing or autocast nothing of the dispatcher is in the way."""
    q, k, v = (x.requires_grad_() for x in tensors(rng))
    monkeypatch.setattr(torch_ops._native, "run", lambda *_, **__: None)
    monkeypatch.setattr("tilewise.torch_dispatch.attention", lambda *_: pytest.fail("the long way"))
    with torch.no_grad():
        tilewise.attention(q, k, v, causal=True)
    with torch.inference_mode():
        tilewise.attention(q, k, v)
    tilewise.attention(q.detach(), k.detach(), v.detach(), sink=torch.zeros(4))
