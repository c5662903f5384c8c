#!/usr/bin/env python3
"""Tilewise beside its peers on one GPU: grid -> a table and a JSON file. Needs torch with CUDA.

Peers are torch's scaled_dot_product_attention with its FLASH_ATTENTION (FlashAttention-2) and CUDNN_ATTENTION back ends, and
FlashAttention-3 where the package fa3-fwd is installed (forward).
Ours and the peers alternate, pass by pass, in this process; a pass is a batch of launches between two events; the median
over passes counts. Outputs are checked against the first peer's before anything is timed. FLOPs: 4 b h s s d forward,
2.5 times that backward, half if causal. Training cells: 16k tokens, hidden 2048. Decode cells: one query token; the sets
of keys and values rotate through at least 256 MB, past the L2 cache.
"""

import argparse
import datetime
import json
import math
import re
import statistics
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import c_interface as tw

PEERS = {"fa2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
FA3 = "fa3"
TOKENS, HIDDEN = 16384, 2048
ROTATED_BYTES = 256 * 2**20


def timed(function, launches):
    """Microseconds of one call."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for i in range(launches):
        function(i)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / launches


def interleaved(functions, passes, target_us):
    """{name: (median, p10, p90) microseconds}; every pass times each function once, in turn."""
    launches = {}
    for name, function in functions.items():
        timed(function, 2)
        launches[name] = max(1, min(200, int(target_us / max(timed(function, 3), 1))))
    times = {name: [] for name in functions}
    for _ in range(passes):
        for name, function in functions.items():
            times[name].append(timed(function, launches[name]))
    result = {}
    for name, values in times.items():
        values.sort()
        result[name] = (statistics.median(values), values[len(values) // 10], values[-1 - len(values) // 10])
    return result


def graphed(function, launches):
    """The function's launches as one replayed CUDA graph: for calls so short that the host would be the limit."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        function(0)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for i in range(launches):
            function(i)
    return lambda _: graph.replay()


def normal(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


def assert_close(name, ours, peer, tolerance):
    error = (ours.float() - peer.float()).norm() / peer.float().norm()
    if not error <= tolerance:
        raise SystemExit(f"{name}: outputs differ by {error:.2e} (relative norm), at most {tolerance:.0e} is allowed")


def sdpa(backend, leaves, **options):
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(*leaves, **options)


def fa3_forward():
    """FlashAttention-3's forward, or None."""
    try:
        from fa3_fwd_interface import flash_attn_func
    except ImportError:
        return None

    def forward(*tensors, **options):
        out = flash_attn_func(*tensors, **options)
        return out[0] if isinstance(out, tuple) else out

    return forward


def training_cell(library, cell, options):
    d, s, causal, backward = cell["head_dim"], cell["seqlen"], cell["causal"], cell["op"] == "backward"
    b, h = TOKENS // s, HIDDEN // d
    q, k, v, grad_o = (normal(b, s, h, d) for _ in range(4))
    o, lse = torch.empty_like(q), torch.empty(b, h, s, device="cuda")
    forward = tw.attention_of(causal=causal, q=q, k=k, v=v, o=o, lse=lse)
    plan = tw.Plan(library, tw.FORWARD, forward)
    plan.launch(forward)
    leaves = [x.transpose(1, 2).detach().requires_grad_(backward) for x in (q, k, v)]
    functions = {}
    if backward:
        grads = [torch.empty_like(x) for x in (q, k, v)]
        call = tw.attention_of(
            causal=causal, q=q, k=k, v=v, o=o, lse=lse, grad_o=grad_o, grad_q=grads[0], grad_k=grads[1], grad_v=grads[2]
        )
        plan = tw.Plan(library, tw.BACKWARD, call)
        functions["tilewise"] = lambda _: plan.launch(call)
        if options.deterministic:
            repeatable = tw.attention_of(
                causal=causal, q=q, k=k, v=v, o=o, lse=lse, grad_o=grad_o, grad_q=grads[0], grad_k=grads[1], grad_v=grads[2]
            )
            repeatable.options.flags |= tw.DETERMINISTIC
            repeatable_plan = tw.Plan(library, tw.BACKWARD, repeatable)
            functions["deterministic"] = lambda _: repeatable_plan.launch(repeatable)
    else:
        functions["tilewise"] = lambda _: plan.launch(forward)
    functions["tilewise"](0)
    if FA3 in options.peers and not backward:
        peer = fa3_forward()
        assert_close(f"{FA3} {cell}", o, peer(q, k, v, causal=causal), 1e-2)
        functions[FA3] = lambda _: peer(q, k, v, causal=causal)
    for name in (name for name in options.peers if name in PEERS):
        out = sdpa(PEERS[name], leaves, is_causal=causal)
        assert_close(f"{name} {cell}", o, out.transpose(1, 2), 1e-2)
        if backward:
            wanted = torch.autograd.grad(out, leaves, grad_o.transpose(1, 2), retain_graph=True)
            for label, ours, theirs in zip("qkv", grads, wanted):
                assert_close(f"{name} grad_{label} {cell}", ours, theirs.transpose(1, 2), 2e-2)
            functions[name] = lambda _, out=out: torch.autograd.grad(
                out, leaves, grad_o.transpose(1, 2), retain_graph=True
            )
        else:
            functions[name] = lambda _, backend=PEERS[name]: sdpa(backend, leaves, is_causal=causal)
    flops = 4 * b * h * s * s * d * (2.5 if backward else 1) / (2 if causal else 1)
    times = interleaved(functions, options.passes, options.pass_us)
    return plan.kernel, {name: [flops / t * 1e-6 for t in values] for name, values in times.items()}


def decode_cell(library, cell, options):
    b, s, h, hk, d = cell["batch"], cell["seqlen"], cell["heads"], cell["heads_kv"], 128
    set_bytes = 2 * b * s * hk * d * 2
    sets = max(1, math.ceil(ROTATED_BYTES / set_bytes))
    caches = [(normal(b, s, hk, d), normal(b, s, hk, d)) for _ in range(sets)]
    q = normal(b, 1, h, d)
    o = torch.empty_like(q)
    calls = [tw.attention_of(q=q, k=k, v=v, o=o) for k, v in caches]
    plan = tw.Plan(library, tw.FORWARD, calls[0])
    plan.launch(calls[0])
    functions = {"tilewise": lambda i: plan.launch(calls[i % sets])}
    for name in (name for name in options.peers if name in PEERS):
        views = [[x.transpose(1, 2) for x in cache] for cache in caches]

        def peer(i, backend=PEERS[name], views=views):
            return sdpa(backend, (q.transpose(1, 2), *views[i % sets]), enable_gqa=True)

        try:
            assert_close(f"{name} {cell}", o, peer(0).transpose(1, 2), 1e-2)
        except RuntimeError as error:
            print(f"  {name} does not serve this cell: {str(error).splitlines()[0]}", flush=True)
            continue
        functions[name] = peer
    launches = max(sets, min(64, max(4, int(2000 / (5 + set_bytes / 4e6)))))
    graphs = {name: graphed(function, launches) for name, function in functions.items()}
    times = interleaved(graphs, options.passes, options.pass_us)
    return plan.kernel, {name: [t / launches for t in values] for name, values in times.items()}


def cells_of(names):
    cells = []
    for op in ("forward", "backward"):
        if op in names:
            for d in (64, 128, 256):
                for causal in (False, True):
                    cells += [
                        {"op": op, "head_dim": d, "causal": causal, "seqlen": s}
                        for s in (512, 1024, 2048, 4096, 8192, 16384)
                    ]
    if "decode" in names:
        for h in (32, 64):
            for b, s in [(1, 1024), (1, 4096), (1, 16384), (1, 65536), (1, 131072), (16, 1024), (16, 4096), (16, 16384)] + [
                (64, 1024), (64, 4096), (64, 16384), (128, 1024), (128, 4096)]:
                cells.append({"op": "decode", "batch": b, "seqlen": s, "heads": h, "heads_kv": 8})
    return cells


def name_of(cell):
    if cell["op"] == "decode":
        return f"decode b{cell['batch']} kv{cell['seqlen']} {cell['heads']}/{cell['heads_kv']} heads"
    return f"{cell['op']} d{cell['head_dim']} {'causal' if cell['causal'] else 'full'} {cell['seqlen']}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="path of libtilewise.so")
    parser.add_argument("--grid", nargs="+", default=["forward", "backward", "decode"], choices=["forward", "backward", "decode"])
    parser.add_argument("--peers", nargs="+", default=None, choices=[*PEERS, FA3])
    parser.add_argument("--deterministic", action="store_true", help="time our deterministic backward too")
    parser.add_argument("--only", default="", help="a regular expression of the cells' names, for example 'd128 causal'")
    parser.add_argument("--passes", type=int, default=7)
    parser.add_argument("--pass-us", type=float, default=4000, help="length of one pass")
    parser.add_argument("--json", type=Path, help="where to write the results")
    options = parser.parse_args()
    options.peers = options.peers or [*PEERS, *([FA3] if fa3_forward() else [])]
    library = tw.Library(options.library)
    print(f"{torch.cuda.get_device_name()}, {datetime.date.today()}, torch {torch.__version__}; TFLOP/s, decode: microseconds")
    results, ratios = [], {}
    for cell in cells_of(options.grid):
        if not re.search(options.only, name_of(cell)):
            continue
        run = decode_cell if cell["op"] == "decode" else training_cell
        kernel, values = run(library, cell, options)
        sign = -1 if cell["op"] == "decode" else 1
        peers = {name: (values["tilewise"][0] / value[0]) ** sign for name, value in values.items() if name != "tilewise"}
        for name, ratio in peers.items():
            ratios.setdefault((cell["op"], name), []).append(ratio)
        line = "  ".join(f"{name} {value[0]:.1f}" for name, value in values.items())
        print(f"{name_of(cell):38} {line}  " + "  ".join(f"{r:.2f}x {n}" for n, r in peers.items()) + f"  [{kernel}]", flush=True)
        results.append({**cell, "kernel": kernel, "values": values, "ratios": peers})
    for (op, name), values in ratios.items():
        mean = math.exp(sum(map(math.log, values)) / len(values))
        print(f"{op} against {name}: geometric mean {mean:.3f}x, lowest {min(values):.2f}x, {len(values)} cells")
    if options.json:
        card = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "date": str(datetime.date.today())}
        options.json.write_text(json.dumps({**card, "command": [Path(word).name for word in sys.argv], "cells": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
