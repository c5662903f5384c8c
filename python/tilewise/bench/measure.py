"""One case: every peer checked, then timed in interleaved passes."""

from __future__ import annotations

import logging
import warnings

import torch

from . import checks, timing
from .cases import bytes_of, flops_of, inputs_of
from .peers import OURS, first_line


class Judge:
    """Checks peers on small cases against the reference; keeps the verdicts, since lengths share them."""

    def __init__(self):
        self._verdicts = {}

    def __call__(self, peer, case):
        """"" or what is wrong; raises what the peer raises."""
        small = checks.small_of(case)
        if (peer.name, small) not in self._verdicts:
            inputs = inputs_of(small)
            error = checks.difference(checks.results_of(peer, small, inputs), checks.reference_results(small, inputs))
            self._verdicts[peer.name, small] = _wrong(error, small, "the float32 reference")
        return self._verdicts[peer.name, small]


def _wrong(error, case, other):
    allowed = checks.tolerance_of(case)
    return "" if error <= allowed else f"differs from {other} by {error:.1e} (relative norm), {allowed:.1e} is allowed"


def _admitted(peers, case, inputs, judge):
    """({name: peer}, {name: memory}, {name: (status, reason)})."""
    admitted, memory, refused, ours = {}, {}, {}, None
    for peer in peers:
        try:
            wrong = judge(peer, case)
            if not wrong:
                found = checks.results_of(peer, case, inputs)
                if peer.name == OURS:
                    ours = found
                elif ours is not None:
                    allowed = checks.tolerance_of(case)
                    error = checks.difference(found, ours)
                    wrong = "" if error <= 2 * allowed else f"differs from ours by {error:.1e}, {2 * allowed:.1e} is allowed"
                del found
                memory[peer.name] = timing.peak_bytes(lambda: checks.results_of(peer, case, inputs), case.device)
        except Exception as error:  # a peer refuses with whatever it likes
            refused[peer.name] = ("refused", first_line(error))
            torch.cuda.empty_cache()
            continue
        if wrong:
            refused[peer.name] = ("wrong", wrong)
        else:
            admitted[peer.name] = peer
    others = [name for name in (p.name for p in peers[1:]) if refused.get(name, ("",))[0] == "wrong"]
    alone = len(others) > 1 and not any(name != OURS for name in admitted)
    if OURS in admitted and alone:
        refused[OURS] = ("wrong", f"differs from every peer that ran: {', '.join(others)}")
        del admitted[OURS]
    return admitted, memory, refused


def _call_of(peer, case, inputs):
    """The function that is timed. A backward's forward runs once, before."""
    if case.op == "backward":
        leaves = (inputs.q, inputs.k, inputs.v)
        o = peer.attend(*leaves, case, None)
        return lambda _: torch.autograd.grad(o, leaves, inputs.grad_o, retain_graph=True)
    if case.op == "decode":
        caches = inputs.caches
        return lambda i: peer.attend(inputs.q, *caches[i % len(caches)], case, None)
    return lambda _: peer.attend(inputs.q, inputs.k, inputs.v, case, inputs.cu_seqlens)


def measure(case, peers, options, judge):
    """One row (dict) a peer: its status is "ok", "wrong" or "refused"."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns, and logs, why a back end refuses; the row has the reason
        logging.getLogger("torch.nested._internal.sdpa").setLevel(logging.ERROR)
        inputs = inputs_of(case, rotate=case.device == "cuda")
        admitted, memory, refused = _admitted(peers, case, inputs, judge)
        functions, launches = {}, 1
        graphs = case.op == "decode" and case.device == "cuda"
        if graphs:
            launches = max(16, len(inputs.caches))
        for name, peer in admitted.items():
            try:
                call = _call_of(peer, case, inputs)
                functions[name] = timing.graphed(call, launches) if graphs else call
            except Exception as error:  # as above
                refused[name] = ("refused", ("CUDA graph: " if graphs else "") + first_line(error))
        times = timing.interleaved(functions, options.passes, options.pass_us, case.device)
    return [_row(case, peer.name, times, memory, refused, launches) for peer in peers]


def _row(case, name, times, memory, refused, launches):
    status, reason = refused.get(name, ("ok", ""))
    row = {"peer": name, "status": status, "reason": reason}
    keys = ("us", "us_p10", "us_p90", "tflops", "gbps", "peak_bytes")
    row |= dict.fromkeys(keys)
    if name in times:
        us, p10, p90 = (t / launches for t in times[name])
        row |= {"us": us, "us_p10": p10, "us_p90": p90, "tflops": flops_of(case) / us * 1e-6, "peak_bytes": memory[name]}
        if case.op == "decode":
            row["gbps"] = bytes_of(case) / us * 1e-3
    return row
