"""Results as files and as text: JSON with everything, CSV with a row for each case and peer, a line for each case, a
summary."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

from .peer_names import OURS
from .tolerances import GRADIENT_FACTOR, PEER_FACTOR, TOLERANCE

SCHEMA = 1
_CASE_COLUMNS = ("op", "dtype", "head_dim", "causal", "window", "batch", "seqlen", "heads", "heads_kv")
_RESULT_COLUMNS = (
    "status",
    "median_us",
    "p10_us",
    "p90_us",
    "tflops",
    "gb_per_s",
    "peak_bytes",
    "error",
    "method",
    "calls",
    "reason",
    "note",
)
METHOD = {
    "flops": "forward 4*seqlen_q*seqlen_k*head_dim*heads*batch, half if causal, visible pairs with a window; "
    "backward 2.5 times that (FlashAttention, benchmarks/benchmark_flash_attention.py)",
    "bytes": "decode: visible keys and values, once",
    "time": "median of interleaved samples; a sample is a batch of calls between two CUDA events (CPU: host clock); "
    "decode and ragged: in a CUDA graph",
    "cache": "decode: sets of keys and values in turn, at least 256 MiB and 4 times the L2 cache in all",
    "memory": "most that torch's allocator held during one call, above the inputs; a backward with its forward",
    "tolerance": {
        "rule": "|row - exact| / max(|exact row|, rms of |exact row|), worst row",
        **TOLERANCE,
        "gradients": f"{GRADIENT_FACTOR} times that",
        "between peers": f"{PEER_FACTOR} times that",
    },
}


def write_json(path: Path, results: dict) -> None:
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict:
    """Raises ValueError, with the file's name, for what no run of this tool has written."""
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise ValueError(f"{path}: is no JSON ({error})") from None
    if not isinstance(results, dict) or results.get("tool") != "tilewise.bench" or results.get("schema") != SCHEMA:
        raise ValueError(f"{path}: is no result of tilewise.bench (schema {SCHEMA})")
    return results


def write_csv(path: Path, results: dict) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*_CASE_COLUMNS, "peer", *_RESULT_COLUMNS])
        for case in results["cases"]:
            head = ["" if case[name] is None else case[name] for name in _CASE_COLUMNS]
            for peer, result in case["results"].items():
                values = (result.get(name) for name in _RESULT_COLUMNS)
                writer.writerow([*head, peer, *("" if value is None else value for value in values)])


def time_text(microseconds: float) -> str:
    return f"{microseconds:.1f} us" if microseconds < 1000 else f"{microseconds / 1000:.3g} ms"


def rate_text(case: dict, result: dict) -> str:
    if case["op"] == "decode":
        return f"{result['gb_per_s']:.0f} GB/s"
    tflops = result["tflops"]
    return f"{tflops:.0f} TFLOP/s" if tflops >= 10 else f"{tflops * 1000:.0f} GFLOP/s"


def case_lines(case: dict) -> list[str]:
    """A line of times with our speed-up over each peer, then a line for each that has no time, and for each note."""
    results = case["results"]
    ours = results.get(OURS, {})
    parts, lines = [], []
    for peer, result in results.items():
        if result["status"] != "ok":
            lines.append(
                f"    {peer} {'IS WRONG' if result['status'] == 'wrong' else 'does not serve it'}: {result['reason']}"
            )
            continue
        text = f"{peer} {time_text(result['median_us'])}"
        if peer == OURS:
            text += f", {rate_text(case, result)}"
        elif ours.get("status") == "ok":
            text += f" ({result['median_us'] / ours['median_us']:.2f}x)"
        parts.append(text)
        if "note" in result:
            lines.append(f"    {peer}: {result['note']}")
    return [f"{case['name']}: {'; '.join(parts) or case.get('reason', 'no times')}", *lines]


def speedups(cases: list[dict]) -> dict[tuple[str, str], list[float]]:
    """(operation, peer) -> its time over ours, of each case that both have."""
    found: dict[tuple[str, str], list[float]] = {}
    for case in cases:
        ours = case["results"].get(OURS, {})
        for peer, result in case["results"].items():
            if peer != OURS and ours.get("status") == result["status"] == "ok":
                found.setdefault((case["op"], peer), []).append(result["median_us"] / ours["median_us"])
    return found


def summary_lines(cases: list[dict]) -> list[str]:
    for_peer = []
    for (op, peer), ratios in speedups(cases).items():
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        for_peer.append(
            f"{op}: tilewise {mean:.2f}x as fast as {peer} "
            f"(geometric mean of {len(ratios)}; {min(ratios):.2f} to {max(ratios):.2f})"
        )
    return for_peer


def failures(cases: list[dict]) -> list[str]:
    """Lines about the cases in which our own result is wrong or missing."""
    lines = []
    for case in cases:
        ours = case["results"].get(OURS)
        if ours is None or ours["status"] != "ok":
            lines.append(f"{case['name']}: {'no result' if ours is None else ours['reason']}")
    return lines
