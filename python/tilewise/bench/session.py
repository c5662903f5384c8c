"""A whole run: machine and peers, case after case, and the files, which are written after each case: an interrupted
run keeps what it has."""

from __future__ import annotations

import torch

from . import machine, report
from .cases import Case
from .peers import Peer, find_peers
from .progress import Progress
from .run import Settings, run_case


def _write(results, prefix):
    report.write_json(prefix.with_name(prefix.name + ".json"), results)
    report.write_csv(prefix.with_name(prefix.name + ".csv"), results)


def _begin(options, words, peers: list[Peer], absent):
    about = machine.describe(options.device)
    method = {**report.METHOD, "passes": options.passes, "sample_ms": options.sample_ms}
    return {
        "tool": "tilewise.bench",
        "schema": report.SCHEMA,
        "about": about,
        "command": ["python", "-m", "tilewise.bench", *map(str, words)],
        "peers": {peer.name: {"label": peer.label, "version": peer.version} for peer in peers},
        "absent": absent,
        "method": method,
        "clocks": None,
        "cases": [],
    }


def _attempt(case, peers, settings):
    """The case's results; without any where its inputs do not fit into memory."""
    try:
        return run_case(case, peers, settings)
    except torch.cuda.OutOfMemoryError:
        torch.cuda.empty_cache()
        return {
            "name": case.name,
            "op": case.op,
            **vars(case),
            "results": {},
            "reason": "its inputs and the reference do not fit into memory",
        }


def run_cases(cases: list[Case], options, words):
    """(results as report.write_json takes them, a function that prints a line)."""
    peers, absent = find_peers(options.peers, options.device)
    results = _begin(options, words, peers, absent)
    settings = Settings(options.device, options.passes, options.sample_ms * 1e-3)
    progress, clocks = Progress(len(cases)), machine.Clocks(options.device)
    about = results["about"]
    progress.say(
        f"{about['device']}, torch {about['torch']}, {about['date']}; {len(cases)} cases, {options.passes} passes"
    )
    for peer in peers:
        progress.say(f"  {peer.name}: {peer.label}, {peer.version}")
    for name, reason in absent.items():
        progress.say(f"  {name}: skipped: {reason}")
    try:
        for case in cases:
            progress.start(case.name)
            done = _attempt(case, peers, settings)
            results["cases"].append(done)
            _write(results, options.out)
            progress.finish(report.case_lines(done))
    finally:
        results["clocks"] = clocks.stop()
        progress.close()
    _write(results, options.out)
    progress.say()
    for line in report.summary_lines(results["cases"]):
        progress.say(line)
    progress.say(f"wrote {options.out}.json and {options.out}.csv")
    return results, progress.say
