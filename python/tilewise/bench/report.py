"""The results as lines, JSON and CSV."""

from __future__ import annotations

import csv
import datetime
import json
import platform
import subprocess
from pathlib import Path

import torch

JSON_NAME, CSV_NAME = "python.json", "python.csv"
METHOD = (
    "medians of interleaved passes in one process; TFLOP/s: 4 b h sq sk d FLOPs (FlashAttention's benchmarks count so), half if causal, "
    "2.5 times that backward; a window counts its pairs; GB/s: keys and values over time; peak_bytes: above the inputs, backward: "
    "forward and backward; a decode runs in a CUDA graph, over caches rotated through 256 MB"
)


def _driver():
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


def _processor():
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if line.startswith("model name")] if info.is_file() else []
    return names[0].split(":", 1)[1].strip() if names else platform.processor() or platform.machine()


def environment(device, peers, absent, arguments):
    """What the results depend on."""
    cuda = device == "cuda"
    return {
        "card": torch.cuda.get_device_name() if cuda else f"{_processor()}, threads: {torch.get_num_threads()}",
        "driver": _driver() if cuda else None,
        "cudnn": torch.backends.cudnn.version() if cuda else None,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": str(datetime.date.today()),
        "command": " ".join(["python -m tilewise.bench", *arguments]),
        "versions": {peer.name: peer.version for peer in peers},
        "absent": absent,
        "method": METHOD,
    }


def figure_of(row):
    """The figure that a line shows of a row."""
    if row["status"] != "ok":
        return row["status"]
    if row["gbps"] is not None:
        return f"{row['us']:.1f} us, {row['gbps']:.4g} GB/s"
    return f"{row['us']:.1f} us, {row['tflops']:.4g} TFLOP/s"


def lines_of(name, rows):
    """Text of one case: a line a peer."""
    yield name
    for row in rows:
        memory = "" if row["peak_bytes"] is None else f", {row['peak_bytes'] / 2**20:.0f} MiB"
        yield f"  {row['peer']:15} {figure_of(row)}{memory}" + (f": {row['reason']}" if row["reason"] else "")


def write(folder, about, rows):
    """python.json and python.csv in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / JSON_NAME).write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    with open(folder / CSV_NAME, "w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
