"""Gradients of torch tensors: against finite differences in float64, against torch's own of the formula, and what is refused."""

import numpy as np
import pytest
import reference
import tilewise
import torch
from tilewise import torch_ops


def leaves(rng, *, dtype=torch.float64, **shape):
    shape = {"seqlen_q": 7, "seqlen_k": 9, "head_dim": 5, "head_dim_v": 3, **shape}
    return [torch.from_numpy(x).to(dtype).requires_grad_() for x in reference.tensors(rng, **shape)]


def formula(q, k, v, *, seen, bias=None, sink=None, softcap=0.0):
    """(o, lse) by plain operations that torch differentiates."""
    groups = q.shape[2] // k.shape[2]
    k, v = (x.repeat_interleave(groups, 2) for x in (k, v))
    s = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    if bias is not None:
        s = s + bias
    s = s.masked_fill(~torch.from_numpy(seen), -torch.inf)
    extra = [] if sink is None else [sink.to(s.dtype).view(1, -1, 1, 1).expand(*s.shape[:3], 1)]
    lse = torch.cat([s, *extra], -1).logsumexp(-1)
    return torch.einsum("bhij,bjhd->bihd", (s - lse.unsqueeze(-1)).exp(), v), lse


OPTIONS = {
    "plain": {},
    "causal": {"causal": True},
    "window": {"window": (2, 1), "softcap": 1.5},
    "top_left": {"causal": True, "diagonal": "top_left"},
    "alibi": {"alibi_slopes": torch.tensor([0.5, 0.25, 0.125, 0.0625])},
    "prefix": {"causal": True, "prefix": 5, "scale": 0.7},
    "sink": {"sink": torch.tensor([0.0, 1.0, -1.0, 0.5])},
    "dropout": {"dropout_p": 0.4, "dropout_seed": 2**64 - 7, "dropout_offset": 3},
    "seqused": {"seqused_q": torch.tensor([7, 4], dtype=torch.int32), "seqused_k": torch.tensor([9, 2], dtype=torch.int32)},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_finite_differences(rng, options):
    """Through o and through lse, which every row of a sequence of `seqused_q` rows has."""
    tensors = leaves(rng)

    def call(q, k, v):
        o, lse = tilewise.attention(q, k, v, return_lse=True, **options)
        return o, lse[..., :4]

    assert torch.autograd.gradcheck(call, tensors)


@pytest.mark.parametrize("shape", [(2, 4, 7, 9), (1, 4, 7, 9), (1, 1, 7, 9), (2, 1, 1, 9), (1, 1, 1, 1)], ids=str)
def test_bias(rng, shape):
    bias = torch.from_numpy(rng.standard_normal(shape)).requires_grad_()
    assert torch.autograd.gradcheck(lambda *x: tilewise.attention(*x[:3], bias=x[3], causal=True), (*leaves(rng), bias))


def test_sink_and_bias_alone(rng):
    """Each gradient on its own: what is not asked for costs nothing and disturbs nothing."""
    q, k, v = leaves(rng)
    bias, sink = torch.zeros(1, 1, 7, 9, dtype=torch.float64, requires_grad=True), torch.zeros(4, requires_grad=True)
    inputs = {"q": q, "k": k, "v": v, "bias": bias, "sink": sink}
    seen = reference.visible(7, 9, causal=True)

    def loss(o, lse):
        return (o.sin().sum() + lse.cos().sum()).double()

    expected = torch.autograd.grad(loss(*formula(q, k, v, bias=bias, sink=sink, seen=seen)), list(inputs.values()))
    for name, gradient in zip(inputs, expected):
        only = {key: x if key == name else x.detach() for key, x in inputs.items()}
        o, lse = tilewise.attention(**only, causal=True, return_lse=True)
        (own,) = torch.autograd.grad(loss(o, lse), only[name])
        torch.testing.assert_close(own, gradient, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.float16, 4e-3), (torch.bfloat16, 3e-2)], ids=str)
def test_types(rng, dtype, error):
    tensors = leaves(rng, dtype=dtype, seqlen_q=33, seqlen_k=65, head_dim=24, head_dim_v=40)
    exact = [x.detach().double().requires_grad_() for x in tensors]
    bias = torch.from_numpy(rng.standard_normal((1, 4, 33, 65))).to(dtype).requires_grad_()
    weight = torch.from_numpy(rng.standard_normal((2, 33, 4, 40)))
    o = tilewise.attention(*tensors, bias=bias, causal=True, softcap=4.0)
    o.backward(weight.to(dtype))
    wide = bias.detach().double().requires_grad_()
    formula(*exact, bias=wide, softcap=4.0, seen=reference.visible(33, 65, causal=True))[0].backward(weight)
    for own, other in zip((*tensors, bias), (*exact, wide)):
        assert own.grad.dtype == dtype
        assert (own.grad.double() - other.grad).abs().max() <= error * other.grad.abs().max()


def test_ragged(rng):
    lengths = [3, 0, 9, 1]
    total = sum(lengths)
    bounds = torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    q, k, v = (x.detach()[0].requires_grad_() for x in leaves(rng, batch=1, seqlen_q=total + 2, seqlen_k=total + 2))
    o, lse = tilewise.attention_varlen(q, k, v, bounds, bounds, causal=True, return_lse=True, max_seqlen_q=torch.tensor(9))
    own = torch.autograd.grad(o[:total].sin().sum() + lse[:, :total].sum(), (q, k, v))
    loss = 0
    for begin, end in zip(bounds.tolist(), bounds.tolist()[1:]):
        if begin < end:
            part = formula(*(x[None, begin:end] for x in (q, k, v)), seen=reference.visible(end - begin, end - begin, causal=True))
            loss = loss + part[0].sin().sum() + part[1].sum()
    for mine, other in zip(own, torch.autograd.grad(loss, (q, k, v))):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-7)  # scale is a float32
        assert not mine[total:].any()


def test_strides(rng):
    """Views, a packed qkv, broadcast heads, and gradients of o of any strides."""
    q, k, v = leaves(rng, heads_kv=4, seqlen_k=7, head_dim_v=5)
    weight = torch.from_numpy(rng.standard_normal((2, 7, 4, 5)))

    def gradients(call, weight=weight):
        return torch.autograd.grad((call(q, k, v) * weight).sum(), (q, k, v))

    expected = gradients(tilewise.attention)

    def by_heads(*x):
        return tilewise.attention(*(y.transpose(1, 2).contiguous().transpose(1, 2) for y in x))

    def packed(*x):
        return tilewise.attention(*torch.stack(x, 2).unbind(2), causal=False)

    def inner(*x):
        return tilewise.attention(*(y.transpose(-1, -2).contiguous().transpose(-1, -2) for y in x))

    for call in (by_heads, packed, inner):
        for own, other in zip(gradients(call), expected):
            torch.testing.assert_close(own, other)
    o = tilewise.attention(q, k, v)
    for grad in (weight.transpose(0, 3).contiguous().transpose(0, 3), torch.ones(()).double().expand(o.shape), weight[:, :1].expand(o.shape)):
        own = torch.autograd.grad(o, (q, k, v), grad, retain_graph=True)
        for mine, other in zip(own, torch.autograd.grad(o, (q, k, v), grad.contiguous(), retain_graph=True)):
            torch.testing.assert_close(mine, other)
    one = k[:, :, :1].detach().requires_grad_()
    (own,) = torch.autograd.grad(tilewise.attention(q, one.expand(-1, -1, 4, -1), v).sin().sum(), one)
    (other,) = torch.autograd.grad(tilewise.attention(q, one.repeat(1, 1, 4, 1), v).sin().sum(), one)
    torch.testing.assert_close(own, other)


@pytest.mark.parametrize("empty", [{"batch": 0}, {"seqlen_q": 0}, {"seqlen_k": 0}], ids=str)
def test_empty(rng, empty):
    tensors = leaves(rng, **empty)
    for gradient, x in zip(torch.autograd.grad(tilewise.attention(*tensors).sum(), tensors), tensors):
        assert gradient.shape == x.shape and not gradient.any()


def test_row_without_keys(rng):
    q, k, v = leaves(rng, seqlen_q=9, seqlen_k=4)
    grad_q, grad_k, grad_v = torch.autograd.grad(tilewise.attention(q, k, v, causal=True).sum(), (q, k, v))
    assert not grad_q[:, :5].any() and all(x.isfinite().all() for x in (grad_q, grad_k, grad_v))


def test_dropout(rng):
    """o is linear in v, so <weight, o> = <grad_v, v> exactly if the backward drops what the forward dropped."""
    q, k, v = leaves(rng)
    weight = torch.from_numpy(rng.standard_normal((2, 7, 4, 3)))
    for seed in (None, 11):
        torch.manual_seed(3)
        o = tilewise.attention(q, k, v, dropout_p=0.5, dropout_seed=seed)
        (grad_v,) = torch.autograd.grad(o, v, weight)
        torch.testing.assert_close((o * weight).sum(), (grad_v * v).sum())
        torch.manual_seed(3)
        with torch.no_grad():
            assert torch.equal(o, tilewise.attention(q, k, v, dropout_p=0.5, dropout_seed=seed))


def test_options_of_the_forward_alone(rng):
    """A pinned kernel or a number of splits of the forward does not reach the backward."""
    q, k, v = leaves(rng, dtype=torch.float32)
    o = tilewise.attention(q, k, v, kernel="cpu_reference_forward", deterministic=True, num_threads=1)
    torch.testing.assert_close(torch.autograd.grad(o.sum(), q), torch.autograd.grad(tilewise.attention(q, k, v, num_splits=2).sum(), q))


def test_same_tensor(rng):
    x = torch.from_numpy(rng.standard_normal((2, 7, 4, 5))).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: tilewise.attention(x, x, x, causal=True), x)


def test_merge(rng):
    """Through merge and the parts, as through the whole; a part that has no key counts nothing, whatever it holds."""
    q, k, v = leaves(rng, dtype=torch.float32, seqlen_q=9, seqlen_k=9)

    def halves():
        parts = [tilewise.attention(q, k[:, keys], v[:, keys], return_lse=True) for keys in (slice(0, 5), slice(5, 9))]
        return tilewise.merge([part[0] for part in parts], [part[1] for part in parts])

    def loss(o, lse):
        return o.sin().sum() + lse.cos().sum()

    for own, other in zip(*(torch.autograd.grad(loss(*x), (q, k, v)) for x in (halves(), tilewise.attention(q, k, v, return_lse=True)))):
        torch.testing.assert_close(own, other)
    partial_lse = torch.zeros(2, 1, 1, 3)
    partial_lse[1, ..., 0] = partial_lse[:, ..., 1] = -torch.inf
    partial_o = torch.ones(2, 1, 3, 1, 4)
    partial_o[1, :, 0] = partial_o[:, :, 1] = torch.nan
    inputs = partial_o.requires_grad_(), partial_lse.requires_grad_()
    for gradient in torch.autograd.grad(tilewise.merge(*inputs)[0].sum(), inputs):
        assert gradient.isfinite().all()


def test_saved_tensors_are_watched(rng):
    q, k, v = leaves(rng)
    mask = torch.ones(1, 1, 7, 9, dtype=torch.bool)
    for changed in (v, mask):
        o = tilewise.attention(q, k, v, mask=mask)
        with torch.no_grad():
            changed.copy_(torch.zeros_like(changed))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            o.sum().backward()


def test_written_tensors_are_noted(rng):
    """A cache, and `out`, that autograd saved before they were written; also where only an op is called."""
    q, k, v = (x.detach() for x in leaves(rng, dtype=torch.float32))
    lengths, new = torch.tensor([3, 3], dtype=torch.int32), (k[:, :1].clone(), v[:, :1].clone())
    out, weight = torch.zeros(2, 7, 4, 3), torch.ones((), requires_grad=True)
    writes = [
        (k, lambda: tilewise.append(k, v, *new, cache_seqlens=lengths)),
        (v, lambda: tilewise.decode(q, k, v, *new, cache_seqlens=lengths)),
        (k, lambda: torch.ops.tilewise.append(k, v, *new, cache_seqlens=lengths)),
        (out, lambda: tilewise.attention(q, k, v, out=out)),
        (out, lambda: torch.ops.tilewise.attention_out(q, k, v, out)),
    ]
    for tensor, write in writes:
        loss = (tensor * weight).sum()
        write()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
    loss = (k * weight).sum()
    tilewise.decode(q, k, v, cache_seqlens=lengths)
    loss.backward()


def test_refusals(rng):
    q, k, v = leaves(rng, dtype=torch.float32)
    cases = [
        ("out", {"out": torch.empty(2, 7, 4, 3)}),
        ("stream", {"stream": 1}),
        ("alibi_slopes", {"alibi_slopes": torch.ones(4, requires_grad=True)}),
        ("scale", {"scale": torch.tensor(0.5, requires_grad=True)}),
        ("page_table", {"page_table": torch.zeros(2, 1, dtype=torch.int32), "seqused_k": torch.ones(2, dtype=torch.int32)}),
    ]
    for name, options in cases:
        with pytest.raises(NotImplementedError, match=f"^{name}: "):
            tilewise.attention(q, k, v, **options)
    with pytest.raises(NotImplementedError, match="^q, k_new, v_new: .*in place"):
        tilewise.decode(q, k.detach(), v.detach())
    with pytest.raises(ValueError, match="dropout_seed: -1"):
        tilewise.attention(q, k, v, dropout_p=0.1, dropout_seed=-1)
    with pytest.raises(ValueError, match="sink: .*f64"):
        tilewise.attention(q, k, v, sink=torch.zeros(4, dtype=torch.float64))


def test_deterministic_algorithms(rng, monkeypatch):
    """torch's own switch reaches the backward."""
    calls, run = [], torch_ops._native.run
    monkeypatch.setattr(torch_ops._native, "run", lambda op, **fields: (calls.append(fields.get("deterministic")), run(op, **fields)))
    q, k, v = leaves(rng)
    tilewise.attention(q, k, v).sum().backward()
    torch.use_deterministic_algorithms(True)
    try:
        tilewise.attention(q, k, v).sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
    assert calls == [None, None, True, True]


def test_second_derivative_is_refused(rng):
    q, k, v = leaves(rng)
    (gradient,) = torch.autograd.grad(tilewise.attention(q, k, v).sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivatives"):
        gradient.square().sum().backward()
