"""Interleaved timing: events on CUDA, the clock on the CPU."""

from __future__ import annotations

import statistics
import time

import torch

MAX_LAUNCHES = 200


def sample(function, launches, device):
    """Microseconds of one call, over a batch of launches; `function` takes the number of the launch."""
    if device == "cuda":
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for i in range(launches):
            function(i)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3 / launches
    begin = time.perf_counter()
    for i in range(launches):
        function(i)
    return (time.perf_counter() - begin) * 1e6 / launches


def interleaved(functions, passes, pass_us, device):
    """{name: (median, p10, p90) microseconds of a call}; each pass samples every function in turn."""
    launches = {}
    for name, function in functions.items():
        sample(function, 1, device)
        launches[name] = max(1, min(MAX_LAUNCHES, int(pass_us / max(sample(function, 2, device), 1))))
    times = {name: [] for name in functions}
    for _ in range(passes):
        for name, function in functions.items():
            times[name].append(sample(function, launches[name], device))
    return {name: _summary(sorted(values)) for name, values in times.items()}


def _summary(values):
    tenth = len(values) // 10
    return statistics.median(values), values[tenth], values[-1 - tenth]


def graphed(function, launches):
    """The launches as one CUDA graph: for calls so short that the host would be the limit."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        function(0)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for i in range(launches):
            function(i)
    return lambda _: graph.replay()


def peak_bytes(function, device):
    """Most memory that one call holds above what was allocated before; None on the CPU."""
    if device != "cuda":
        return None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result = function()
    torch.cuda.synchronize()
    del result
    return torch.cuda.max_memory_allocated() - before
