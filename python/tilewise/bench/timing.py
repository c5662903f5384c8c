"""Times of several functions, taken in turn.

On a GPU a sample is the time between two events around a batch of calls that the host enqueues without waiting, long
enough (`sample_s`) that neither the events nor the start of the batch count. On the CPU it is the host's clock around
a batch. Every pass takes one sample of each function, beginning with another one each time, so that clock and
temperature drift reach all; the median over the passes is the result.

A decode is shorter than what the host needs to launch it, and a nested tensor of torch costs the host more than a
short ragged batch the GPU; so the calls of both are captured in a CUDA graph, which is what serving engines do. A
function that cannot be captured is timed without, and its result says so.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from .errors import first_line

MOST_CALLS = 2000  # of one sample
WARM_UP_CALLS = 2


@dataclass
class Step:
    """`function(n)` makes `calls` calls of what is timed, beginning with number n."""

    function: Callable[[int], object]
    calls: int = 1
    method: str = "events"
    note: str = ""


@dataclass(frozen=True)
class Timing:
    """Seconds of a call: median, 10th and 90th percentile over the passes, and how they were found."""

    median: float
    p10: float
    p90: float
    calls: int  # in a sample
    method: str
    note: str


def sample(step: Step, repeats: int, device: str) -> float:
    """Seconds of one call, over `repeats` runs of the step."""
    if device == "cuda":
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for n in range(repeats):
            step.function(n)
        end.record()
        end.synchronize()
        seconds = begin.elapsed_time(end) * 1e-3
    else:
        start = time.perf_counter()
        for n in range(repeats):
            step.function(n)
        seconds = time.perf_counter() - start
    return seconds / (repeats * step.calls)


def graphed(function: Callable[[int], object], calls: int) -> Step:
    """`calls` calls in one CUDA graph; the plain function where it cannot be captured."""
    stream, before = torch.cuda.Stream(), torch.cuda.current_stream()
    stream.wait_stream(before)
    try:
        with torch.cuda.stream(stream):
            function(0)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for n in range(calls):
                function(n)
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:
        torch.cuda.synchronize()
        return Step(function, note=f"no CUDA graph, so the host's launches count: {first_line(error)}")
    finally:
        torch.cuda.set_stream(before)  # a capture that fails at its end leaves its own stream behind as the current one
    return Step(lambda _: graph.replay(), calls, "graph")


def measure(steps: dict[str, Step], passes: int, sample_s: float, device: str) -> dict[str, Timing]:
    repeats, samples = {}, {name: [] for name in steps}
    for name, step in steps.items():
        sample(step, WARM_UP_CALLS, device)
        once = sample(step, WARM_UP_CALLS, device) * step.calls
        repeats[name] = max(1, min(MOST_CALLS, int(sample_s / max(once, 1e-9))))
    names = list(steps)
    for n in range(passes):
        first = n % len(names)
        for name in names[first:] + names[:first]:
            samples[name].append(sample(steps[name], repeats[name], device))
    return {name: _timing(values, steps[name], repeats[name], device) for name, values in samples.items()}


def _timing(values, step, repeats, device):
    values = sorted(values)
    tenth = len(values) // 10
    method = step.method if device == "cuda" else "host clock"
    return Timing(statistics.median(values), values[tenth], values[-1 - tenth], repeats * step.calls, method, step.note)
