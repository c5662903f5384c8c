"""One case: every peer is bound, run once, checked and its memory taken; those that are right are timed together.

Memory is the most that torch's allocator held during one call (of a backward: forward and backward) above what it
held before, with the inputs in place and the outputs counted. Allocations past torch's allocator are not seen.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import asdict, dataclass

import torch

from . import checks
from .cases import Case
from .errors import Refused, first_line
from .inputs import Inputs, make_inputs
from .peer_names import OURS
from .peers import Peer, kernel_of
from .timing import Step, graphed, measure

GRADIENTS = ("grad_q", "grad_k", "grad_v")
GRAPH_CALLS = 8  # at least, of one replay; small caches have many sets and so make more


@dataclass(frozen=True)
class Settings:
    device: str
    passes: int
    sample_s: float


def _run_once(attend, inputs: Inputs) -> checks.Outputs:
    q, k, v = inputs.sets[0]
    o = attend(q, k, v)
    if inputs.grad_o is None:
        return {"o": o}
    gradients = torch.autograd.grad(o, (q, k, v), inputs.grad_o)
    return {"o": o.detach(), **dict(zip(GRADIENTS, gradients))}


def _peak_bytes(peer, case, inputs, device):
    """None on the CPU, where torch does not count."""
    if device != "cuda":
        return None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    outputs = _run_once(peer.bind(case, inputs), inputs)
    torch.cuda.synchronize()
    del outputs
    return torch.cuda.max_memory_allocated() - before


def _step(attend, case, inputs, device) -> Step:
    """What is timed of a case."""
    if case.op == "backward":
        q, k, v = inputs.sets[0]
        o = attend(q, k, v)
        return Step(lambda _: torch.autograd.grad(o, (q, k, v), inputs.grad_o, retain_graph=True))
    turn = itertools.cycle(inputs.sets)

    def call(_):
        return attend(*next(turn))

    if case.op == "forward" or device != "cuda":
        return Step(call)
    return graphed(call, math.ceil(GRAPH_CALLS / len(inputs.sets)) * len(inputs.sets))


def _reason(error):
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return "out of memory: " + str(error).partition(". ")[2].partition(". ")[0]
    return str(error) if isinstance(error, Refused) else first_line(error)


class CaseRun:
    """The peers of one case, as far as they have come: {name: result} with a status of ok, wrong or refused."""

    def __init__(self, case: Case, peers: list[Peer], settings: Settings):
        self.case, self.peers, self.settings = case, peers, settings
        self.inputs = make_inputs(case, settings.device)
        self.results, self.attends, self.outputs = {}, {}, None
        device = self.inputs.sets[0][0].device
        self.places = [(place, checks.exact(case, self.inputs, place)) for place in checks.sampled_places(case, device)]

    def _fail(self, name, status, reason):
        self.results[name] = {**self.results.get(name, {}), "status": status, "reason": reason}
        self.attends.pop(name, None)

    def _judge(self, name, outputs, places):
        faults = [checks.fault_of(self.case, outputs, wanted, place) for place, wanted in places]
        self.results[name]["error"] = max(self.results[name].get("error", 0.0), *(error for error, _ in faults))
        fault = next((text for _, text in faults if text), None)
        if fault:
            self._fail(name, "wrong", fault)

    def _compare(self, name, outputs):
        """Against ours, everywhere; the reference decides which of the two is wrong."""
        where = checks.disagreement(self.case, outputs, self.outputs)
        if where is None:
            return
        place = checks.place_of(self.case, *where, outputs["o"].device)
        decided = [(place, checks.exact(self.case, self.inputs, place))]
        for candidate, found in ((name, outputs), (OURS, self.outputs)):
            if self.results[candidate]["status"] == "ok":
                self._judge(candidate, found, decided)

    def check(self, peer: Peer) -> None:
        try:
            attend = peer.bind(self.case, self.inputs)
            outputs = _run_once(attend, self.inputs)
            if self.settings.device == "cuda":
                torch.cuda.synchronize()
            self.results[peer.name] = {"status": "ok", "peak_bytes": None}
            self.attends[peer.name] = attend
            self._judge(peer.name, outputs, self.places)
            if peer.name == OURS:
                self.outputs = outputs
            elif self.outputs is not None:
                self._compare(peer.name, outputs)
            del outputs
            self.results[peer.name]["peak_bytes"] = _peak_bytes(peer, self.case, self.inputs, self.settings.device)
        except Exception as error:
            self._fail(peer.name, "refused", _reason(error))
        if self.settings.device == "cuda":
            torch.cuda.empty_cache()

    def time(self) -> None:
        steps = {}
        for name, attend in list(self.attends.items()):
            try:
                steps[name] = _step(attend, self.case, self.inputs, self.settings.device)
            except Exception as error:
                self._fail(name, "refused", _reason(error))
        if not steps:
            return
        for name, timing in measure(steps, self.settings.passes, self.settings.sample_s, self.settings.device).items():
            figures = {f"{key}_us": getattr(timing, key) * 1e6 for key in ("median", "p10", "p90")}
            self.results[name] |= {**figures, "tflops": self.case.flops / timing.median * 1e-12}
            if self.case.op == "decode":
                self.results[name]["gb_per_s"] = self.case.kv_bytes / timing.median * 1e-9
            self.results[name] |= {"method": timing.method, "calls": timing.calls}
            if timing.note:
                self.results[name]["note"] = timing.note


def run_case(case: Case, peers: list[Peer], settings: Settings) -> dict:
    """The case with its results as a dict of plain values, ready for JSON."""
    run = CaseRun(case, peers, settings)
    for peer in peers:
        run.check(peer)
    run.time()
    try:
        kernel = kernel_of(case, run.inputs, settings.device)
    except Exception as error:
        kernel = f"none: {_reason(error)}"
    sets = {"kv_bytes": case.kv_bytes, "sets": len(run.inputs.sets)} if case.op == "decode" else {}
    return {"name": case.name, **asdict(case), "flops": case.flops, **sets, "kernel": kernel, "results": run.results}
