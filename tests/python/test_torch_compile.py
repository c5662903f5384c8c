"""torch.compile with fullgraph=True: the same bits as eager mode, no graph break, and no recompilation where a size or a number changes."""

import pytest
import reference
import tilewise
import torch
from torch.utils.checkpoint import checkpoint


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def tensors(rng, **shape):
    shape = {"seqlen_q": 7, "seqlen_k": 9, "head_dim": 8, "head_dim_v": 6, **shape}
    return [torch.from_numpy(x).requires_grad_() for x in reference.tensors(rng, **shape)]


def compiled(function, **options):
    """Down to machine code where a mode is given; else only traced and taken apart, which takes no compiler's seconds."""
    backend = {} if "mode" in options else {"backend": "aot_eager"}
    return torch.compile(function, fullgraph=True, **backend, **options)


def assert_same(function, inputs, **options):
    """Results, and gradients of those inputs that want one."""
    wanted = [x for x in inputs if isinstance(x, torch.Tensor) and x.requires_grad]
    found = []
    for call in (function, compiled(function, **options)):
        results = call(*inputs)
        results = [results] if isinstance(results, torch.Tensor) else list(results)
        loss = sum(x.float().sin().sum() for x in results)
        found.append(results + (list(torch.autograd.grad(loss, wanted)) if wanted else []))
    for one, other in zip(*found):
        assert one.dtype == other.dtype and one.stride() == other.stride()
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_modes(rng, mode):
    bias, sink = torch.zeros(1, 4, 7, 9, requires_grad=True), torch.zeros(4, requires_grad=True)

    def call(q, k, v, bias, sink):
        return tilewise.attention(2 * q, k, v, bias=bias, sink=sink, causal=True, window=(4, 0), softcap=2.0, return_lse=True)

    assert_same(call, (*tensors(rng), bias, sink), mode=mode)
    with torch.no_grad():
        assert_same(call, [x.detach() for x in (*tensors(rng), bias, sink)], mode=mode)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_training_step(mode):
    """Two layers, whose weights after three steps are those of eager mode."""

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.o = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)
            self.sink = torch.nn.Parameter(torch.zeros(4))

        def forward(self, x):
            q, k, v = self.qkv(x).view(*x.shape[:2], 3, 4, 8).unbind(2)
            return x + self.o(tilewise.attention(q, k, v, causal=True, sink=self.sink).flatten(2))

    def train(prepare):
        torch.manual_seed(0)
        model = torch.nn.Sequential(Layer(), Layer())
        x, optimizer = torch.randn(2, 17, 32), torch.optim.SGD(model.parameters(), 0.05)
        run = prepare(model)
        for _ in range(3):
            optimizer.zero_grad()
            run(x).square().mean().backward()
            optimizer.step()
        return [p.detach() for p in model.parameters()]

    for one, other in zip(train(lambda model: model), train(lambda model: compiled(model, mode=mode))):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_sizes(rng):
    """Lengths, bounds and numbers that change from call to call."""
    call = compiled(lambda q, k, v: tilewise.attention(q, k, v, causal=True, prefix=q.shape[1] // 2), dynamic=True)
    for seqlen in (9, 10, 33, 64):
        inputs = tensors(rng, seqlen_q=seqlen, seqlen_k=seqlen)
        o = call(*inputs)
        torch.testing.assert_close(o, tilewise.attention(*inputs, causal=True, prefix=seqlen // 2))
        o.sum().backward()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2


def test_varlen(rng):
    call = compiled(lambda q, k, v, at, n: tilewise.attention_varlen(q, k, v, at, at, max_seqlen_q=n, max_seqlen_k=n, causal=True))
    for lengths in ([3, 0, 9], [5, 5, 2], [1, 2, 3], [8, 8, 8]):
        total, at = sum(lengths), torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32)
        inputs = [x.detach()[0].requires_grad_() for x in tensors(rng, batch=1, seqlen_q=total, seqlen_k=total)]
        o = call(*inputs, at, max(lengths))
        expected = tilewise.attention_varlen(*inputs, at, at, causal=True)
        torch.testing.assert_close(o, expected)
        for pair in zip(torch.autograd.grad(o.sum(), inputs), torch.autograd.grad(expected.sum(), inputs)):
            torch.testing.assert_close(*pair)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 3


def test_number_of_rows_is_data(rng):
    """Rows picked by a mask: a size that no compiler knows."""

    def call(x, keep, at):
        rows = x[keep]
        return tilewise.attention_varlen(rows[..., :4], rows[..., :4], rows, at, at)

    x, keep = torch.randn(12, 4, 8, requires_grad=True), torch.arange(12) % 2 == 0
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        assert_same(call, (x, keep, torch.tensor([0, 2, 6], dtype=torch.int32)))


def test_same_tensor():
    assert_same(lambda x: tilewise.attention(x, x, x, causal=True), (torch.randn(2, 9, 4, 8, requires_grad=True),))


def test_drawn_dropout(rng):
    """A seed for every call and every step, and the backward drops what the forward dropped: o is linear in v."""
    q, k, v = tensors(rng)
    weight = torch.randn(2, 7, 4, 6)
    call = compiled(lambda *x: (tilewise.attention(*x, dropout_p=0.5), tilewise.attention(*x, dropout_p=0.5)), mode="default")
    first, second = call(q, k, v), call(q, k, v)
    assert len({x.sum().item() for x in (*first, *second)}) == 4
    for o in (*first, *second):
        (grad_v,) = torch.autograd.grad(o, v, weight, retain_graph=True)
        torch.testing.assert_close((o * weight).sum(), (grad_v * v).sum(), rtol=1e-4, atol=1e-4)


def test_given_dropout(rng):
    inputs = tensors(rng)
    call = compiled(lambda q, k, v, seed: tilewise.attention(q, k, v, dropout_p=0.5, dropout_seed=seed))
    for seed in (1, 2, 3, 2**63 - 1, 2**63 + 5):
        assert torch.equal(call(*inputs, seed), tilewise.attention(*inputs, dropout_p=0.5, dropout_seed=seed))


def test_checkpoint(rng):
    q, k, v = tensors(rng)
    weight = torch.randn(2, 7, 4, 6)

    def attend(q, k, v):
        return tilewise.attention(2 * q, k, v, causal=True)

    assert_same(lambda *x: checkpoint(attend, *x, use_reentrant=False), (q, k, v))
    dropped = compiled(lambda *x: checkpoint(lambda *y: tilewise.attention(*y, dropout_p=0.5), *x, use_reentrant=False))(q, k, v)
    (grad_v,) = torch.autograd.grad(dropped, v, weight)
    torch.testing.assert_close((dropped * weight).sum(), (grad_v * v).sum(), rtol=1e-4, atol=1e-4)


def test_autocast(rng):
    def call(q, k, v):
        with torch.autocast("cpu", torch.bfloat16):
            return tilewise.attention(q, k, v, return_lse=True)

    assert_same(call, tensors(rng))


def test_cache(rng):
    """A step of generation writes the caller's cache."""
    q, k, v = (x.detach() for x in tensors(rng, seqlen_q=1))
    new, lengths = (k[:, :1].clone(), v[:, :1].clone()), torch.tensor([3, 5], dtype=torch.int32)

    def step(q, k, v, k_new, v_new, lengths):
        tilewise.append(k, v, k_new, v_new, cache_seqlens=lengths)
        return tilewise.decode(q, k, v, k_new + 1, v_new, cache_seqlens=lengths + 1)

    caches = [(k.clone(), v.clone()) for _ in range(2)]
    results = [call(q, *cache, *new, lengths) for call, cache in zip((step, compiled(step, mode="reduce-overhead")), caches)]
    assert torch.equal(*results) and all(torch.equal(*pair) for pair in zip(*caches))
    assert not torch.equal(caches[0][0], k)
    assert torch.equal(results[0], compiled(lambda q, k, v, n: tilewise.decode(q, k, v, cache_seqlens=n))(q, *caches[0], lengths + 2))


def test_out(rng):
    q, k, v = (x.detach() for x in tensors(rng))
    used, out = torch.tensor([7, 4], dtype=torch.int32), torch.full((2, 7, 4, 6), 5.0)
    compiled(lambda out: tilewise.attention(q, k, v, seqused_q=used, out=out))(out)
    expected = tilewise.attention(q, k, v)
    assert torch.equal(out[0], expected[0]) and torch.equal(out[1, :4], expected[1, :4]) and (out[1, 4:] == 5).all()


def test_merge():
    parts = torch.randn(3, 2, 5, 4, 6, requires_grad=True), torch.randn(3, 2, 4, 5, requires_grad=True)
    assert_same(lambda o, lse: tilewise.merge(o, lse), parts)
    assert_same(lambda o, lse: tilewise.merge(list(o), list(lse)), parts)


def test_export(rng):
    class Model(torch.nn.Module):
        def forward(self, q, k, v):
            return tilewise.attention(q, k, v, causal=True)

    inputs = tuple(x.detach() for x in tensors(rng))
    program = torch.export.export(Model(), inputs)
    assert any(node.target is torch.ops.tilewise.attention.default for node in program.graph.nodes)
    assert torch.equal(program.module()(*inputs), Model()(*inputs))


def test_errors_come_through(rng):
    with pytest.raises(ValueError, match="sink: .*f16"):
        compiled(lambda q, k, v, sink: tilewise.attention(q, k, v, sink=sink))(*(x.detach() for x in tensors(rng)), torch.zeros(4).half())
