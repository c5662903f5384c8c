"""On a GPU: streams, CUDA graphs, torch.compile, no waiting, and the gradients of the CPU."""

import pytest
import reference
import tilewise
import torch

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]


def leaves(rng, *, dtype=torch.bfloat16, **shape):
    shape = {"seqlen_q": 130, "seqlen_k": 200, "head_dim": 64, "head_dim_v": 64, **shape}
    return [torch.from_numpy(x).to("cuda", dtype).requires_grad_() for x in reference.tensors(rng, **shape)]


def gradients(call, inputs):
    o, lse = call(*inputs)
    return [o, lse, *torch.autograd.grad(o.float().sin().sum() + lse.sin().sum(), inputs)]


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 3e-5), (torch.float16, 4e-3), (torch.bfloat16, 3e-2)], ids=str)
@pytest.mark.parametrize(
    "options",
    [{}, {"causal": True}, {"window": (9, 4), "softcap": 3.0}, {"dropout_p": 0.3, "dropout_seed": 2**63 + 9}, {"bias": True, "sink": True}],
    ids=lambda options: "_".join(options) or "plain",
)
def test_as_on_the_cpu(rng, dtype, error, options):
    inputs = leaves(rng, dtype=dtype)
    others = {}
    if "bias" in options:
        others = {"bias": torch.randn(1, 4, 130, 200).cuda().requires_grad_(), "sink": torch.randn(4).cuda().requires_grad_()}
    options = {**options, **others}

    def call(*x, device):
        names = dict(zip(("q", "k", "v", *others), x))
        return tilewise.attention(**{**options, **names}, return_lse=True)

    inputs += others.values()
    own = gradients(lambda *x: call(*x, device="cuda"), inputs)
    wide = [x.detach().cpu().double() if x is not others.get("sink") else x.detach().cpu() for x in inputs]
    exact = gradients(lambda *x: call(*x, device="cpu"), [x.requires_grad_() for x in wide])
    for one, other in zip(own, exact):
        assert (one.double().cpu() - other.double()).abs().max() <= error * max(1, other.abs().max())


def test_no_waiting(rng):
    """Neither a forward nor a backward waits for the GPU; a bound that lies there is not asked for."""
    inputs = leaves(rng)
    flat, at = [x.detach()[0].requires_grad_() for x in inputs], torch.tensor([0, 100, 130], dtype=torch.int32, device="cuda")
    keys = torch.tensor([0, 100, 200], dtype=torch.int32, device="cuda")
    bound = torch.tensor(150, dtype=torch.int32, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        tilewise.attention(*inputs, dropout_p=0.1).sum().backward()
        tilewise.attention_varlen(*flat, at, keys, max_seqlen_q=bound, max_seqlen_k=bound).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_streams(rng):
    inputs = leaves(rng)
    expected = gradients(lambda *x: tilewise.attention(*x, return_lse=True), inputs)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        found = gradients(lambda *x: tilewise.attention(*x, deterministic=True, return_lse=True), inputs)
    stream.synchronize()
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)


def test_graph_of_a_training_step(rng):
    inputs = leaves(rng)

    def step():
        return gradients(lambda *x: tilewise.attention(*x, causal=True, deterministic=True, return_lse=True), inputs)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        for x in inputs:
            x.copy_(torch.randn_like(x))
    graph.replay()
    for one, other in zip(captured, step()):
        assert torch.equal(one, other)


def test_graph_with_dropout(rng):
    inputs = [x.detach() for x in leaves(rng)]
    tilewise.attention(*inputs, dropout_p=0.1)
    with pytest.raises(RuntimeError, match="dropout_p: a CUDA graph"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        tilewise.attention(*inputs, dropout_p=0.1)
    torch.cuda.synchronize()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        tilewise.attention(*inputs, dropout_p=0.1, dropout_seed=4)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compile(rng, mode):
    """Also with dropout, whose seed must differ from step to step."""
    torch._dynamo.reset()

    def call(q, k, v):
        return tilewise.attention(q * 1.5, k, v, causal=True, deterministic=True, return_lse=True)

    inputs, run = leaves(rng), torch.compile(call, fullgraph=True, mode=mode)
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        for one, other in zip(gradients(run, inputs), gradients(call, inputs)):
            torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)
    dropped = torch.compile(lambda *x: tilewise.attention(*x, dropout_p=0.5), fullgraph=True, mode=mode)
    q, k, v = (x.float().detach().requires_grad_() for x in inputs)
    sums = set()
    for _ in range(5):
        torch.compiler.cudagraph_mark_step_begin()
        o = dropped(q, k, v)
        (grad_v,) = torch.autograd.grad(o, v, torch.ones_like(o))
        torch.testing.assert_close(o.sum(), (grad_v * v).sum(), rtol=1e-3, atol=1e-1)
        sums.add(o.sum().item())
    assert len(sums) == 5


def test_autocast(rng):
    q, k, v = leaves(rng, dtype=torch.float32)
    with torch.autocast("cuda", torch.float16):
        assert tilewise.attention(q, k, v).dtype == torch.float16


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_another_device(rng):
    inputs = [x.detach().to("cuda:1").requires_grad_() for x in leaves(rng)]
    tilewise.attention(*inputs).sum().backward()
    assert inputs[0].grad.device.index == 1 and torch.cuda.current_device() == 0
