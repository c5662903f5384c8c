"""Public reports (docs/user-reports.md) of torch.compile, streams, graphs, devices, installing and return types."""

import os
import subprocess
import sys

import compat_formula as formula
import pytest
import tilewise
import tilewise.compat  # noqa: F401  (makes the modules importable)
import torch
from report_inputs import agree, lengths, on_gpu, randn, seeded  # noqa: F401
from test_binary import MODULE, is_allowed, loaded_library, needed

from flash_attn import bert_padding, flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache

pytestmark = pytest.mark.usefixtures("seeded")


@on_gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_R122_tensors_on_the_second_device():
    q, k, v = (torch.randn(1, n, 32, 128, dtype=torch.float16, device="cuda:1") for n in (1, 2048, 2048))
    with torch.cuda.device(0):
        o = flash_attn_func(q, k, v)
        assert o.device.index == 1 and torch.cuda.current_device() == 0
    agree(o.cpu(), formula.attention(q.cpu(), k.cpu(), v.cpu())[0])


@on_gpu
def test_R124_dropout_in_a_captured_graph():
    """A seed is a number of the launch, so a graph repeats it: that is refused, unless the caller gives the seed."""
    q, k, v = (randn(4096, 12, 64, dtype=torch.float16) for _ in range(3))
    cu = lengths(0, 2048, 4096)
    flash_attn_varlen_func(q, k, v, cu, cu, 2048, 2048, dropout_p=0.1)
    with pytest.raises(RuntimeError, match="dropout_p: a CUDA graph"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        flash_attn_varlen_func(q, k, v, cu, cu, 2048, 2048, dropout_p=0.1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = tilewise.attention_varlen(q, k, v, cu, cu, max_seqlen_q=2048, max_seqlen_k=2048, dropout_p=0.1, dropout_seed=4)
    graph.replay()
    assert torch.equal(o, tilewise.attention_varlen(q, k, v, cu, cu, max_seqlen_q=2048, max_seqlen_k=2048, dropout_p=0.1, dropout_seed=4))


@on_gpu
def test_R125_the_callers_stream():
    """The input is made on a side stream behind a long sleep: on any other stream the call would read zeros."""
    source = randn(1, 512, 4, 64, dtype=torch.float16)
    q, stream = torch.zeros_like(source), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        q.copy_(source)
        o = flash_attn_func(q, q, q)
    stream.synchronize()
    agree(o, formula.attention(source, source, source)[0])


def test_R127_a_full_graph_of_dense_and_packed_attention():
    q, k, v = (randn(1, 128, heads, 64, dtype=torch.bfloat16) for heads in (32, 4, 4))
    cu = lengths(0, 50, 128)

    def model(q, k, v):
        dense = flash_attn_func(q * 0.5, k, v, causal=True)
        return dense, flash_attn_varlen_func(q[0], k[0], v[0], cu, cu, 128, 128, causal=True)

    with torch.inference_mode():
        for one, other in zip(torch.compile(model, fullgraph=True, backend="aot_eager")(q, k, v), model(q, k, v)):
            agree(one, other, 1e-6)


def test_R128_a_decode_in_a_compiled_program_of_dynamic_shapes():
    """One graph for every length, and the caches are written."""
    graphs = []

    def step(q, k_cache, v_cache, k, v, used):
        return flash_attn_with_kvcache(q + 0, k_cache, v_cache, k, v, cache_seqlens=used, causal=True) * 2

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, dynamic=True, backend=backend)
    for batch, size in ((3, 40), (5, 50), (7, 31)):
        q, k, v = randn(batch, 1, 4, 32), randn(batch, 1, 2, 32), randn(batch, 1, 2, 32)
        caches = [randn(batch, size, 2, 32) for _ in range(2)]
        copies = [x.clone() for x in caches]
        used = torch.randint(1, size - 1, (batch,), dtype=torch.int32)
        agree(compiled(q, *caches, k, v, used), step(q, *copies, k, v, used), 1e-6)
        assert all(torch.equal(x, y) for x, y in zip(caches, copies))
    assert len(graphs) == 1


def test_R130_nothing_is_compiled_or_written_at_run_time(tmp_path):
    program = "import numpy, tilewise; q = numpy.ones((1, 40, 2, 64), 'float16'); tilewise.attention(q, q, q, causal=True)"
    environment = {name: str(tmp_path) for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "PATH")}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-c", program], env=environment, cwd=tmp_path, check=True)
    assert list(tmp_path.iterdir()) == []


def test_R131_no_library_of_torch_is_needed():
    for path in (MODULE, loaded_library()):
        assert all(is_allowed(name) for name in needed(path))


def test_R132_no_symbol_of_torch_is_needed():
    """So no pair of versions can disagree about its mangled name."""
    for path in (MODULE, loaded_library()):
        symbols = subprocess.run(["nm", "-D", "--undefined-only", str(path)], capture_output=True, text=True, check=True).stdout
        assert symbols and not any(part in symbols for part in ("N3c10", "N2at", "N5torch", "THP"))


def recorded():
    devices = tilewise.capabilities(include_recorded=True)["devices"]
    return {name: device for name, device in devices.items() if device["kind"] == "cuda"}


@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_R138_a_plan_takes_only_kernels_that_exist_for_the_device(head_dim):
    kernels = {kernel["name"]: kernel for kernel in tilewise.capabilities()["kernels"]}
    if not any(kernel["device"] == "cuda" for kernel in kernels.values()):
        pytest.skip("this build has no kernels for GPUs")
    q = tilewise.spec((1, 256, 8, head_dim), "bfloat16")
    for name, device in recorded().items():
        if device["compute_capability"] >= 80:
            kernel = kernels[tilewise.explain(q, q, q, device=name).kernel]
            level = int(kernel["name"].partition("_")[0].removeprefix("sm"))
            assert kernel["device"] == "cuda" and level <= device["compute_capability"]
            # What sm_90 has of its own, no later architecture has.
            assert level != 90 or device["compute_capability"] == 90


def test_R140_an_older_gpu_is_told_so_before_anything_runs():
    q = tilewise.spec((1, 64, 8, 128), "float16")
    with pytest.raises(NotImplementedError, match=r"T4.*compute capability 7\.5.*8\.0 or newer"):
        tilewise.explain(q, q, q, device="recorded:t4")


def test_R141_helpers_return_what_the_version_says():
    """flash_attn 2.7 and later return five values, and `__version__` says which this is."""
    import flash_attn

    x, mask = randn(2, 5, 8), torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]])
    packed, rows, cu, longest, used = bert_padding.unpad_input(x, mask)
    assert packed.shape == (7, 8) and cu.tolist() == [0, 3, 7] and longest == 4 and used.tolist() == [3, 4]
    assert torch.equal(bert_padding.pad_input(packed, rows, 2, 5), x * mask[..., None])
    assert len(bert_padding.unpad_input_for_concatenated_sequences(x, torch.tensor([[2, 1, 0, 0, 0], [4, 0, 0, 0, 0]]))) == 4
    assert tuple(int(part) for part in flash_attn.__version__.split(".")) >= (2, 7, 0)
