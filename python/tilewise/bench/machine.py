"""What a result was measured on: card, driver, versions, and the clocks while it ran."""

from __future__ import annotations

import datetime
import os
import platform
import statistics
import subprocess
import tempfile
from pathlib import Path

import torch

import tilewise

_QUERY_SECONDS = 30
_SAMPLE_MS = 500
_CLOCKS = ("clocks.sm", "power.draw", "temperature.gpu")


def _card() -> str | None:
    """How nvidia-smi is told torch's current card, whose number there may be another one."""
    uuid = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "uuid", None)
    return None if uuid is None else f"--id=GPU-{uuid}"


def _query(*names: str) -> list[str]:
    """Values of nvidia-smi, or none where it cannot tell."""
    card = _card()
    if card is None:
        return []
    command = ["nvidia-smi", card, f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_QUERY_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return []
    values = [value.strip() for value in done.stdout.strip().split(",")]
    return values if done.returncode == 0 and len(values) == len(names) else []


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def describe(device: str) -> dict:
    """{"device", "date", "torch", ...}: plain values; what cannot be found out is None."""
    about = {
        "date": datetime.date.today().isoformat(),
        "tilewise": tilewise.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    if device != "cuda":
        return {"device": _cpu_name(), "threads": torch.get_num_threads(), "processors": os.cpu_count(), **about}
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    names = ("driver_version", "clocks.max.sm", "power.limit")
    driver, clock, power = _query(*names) or (None, None, None)
    return {
        "device": properties.name,
        "driver": driver,
        "max_sm_mhz": clock,
        "power_limit_w": power,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "l2_bytes": getattr(properties, "L2_cache_size", None),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        **about,
    }


class Clocks:
    """Asks nvidia-smi twice a second while a run lasts; `stop` tells the median and the range of what it said."""

    def __init__(self, device: str):
        self._process = None
        card = _card() if device == "cuda" else None
        if card is None:
            return
        self._file = tempfile.TemporaryFile("w+")
        command = [
            "nvidia-smi",
            card,
            f"--query-gpu={','.join(_CLOCKS)}",
            "--format=csv,noheader,nounits",
            f"--loop-ms={_SAMPLE_MS}",
        ]
        try:
            self._process = subprocess.Popen(command, stdout=self._file, stderr=subprocess.DEVNULL)
        except OSError:
            self._file.close()

    def stop(self) -> dict | None:
        if self._process is None:
            return None
        self._process.terminate()
        self._process.wait()
        self._file.seek(0)
        rows = [line.split(",") for line in self._file.read().splitlines()]
        self._file.close()
        self._process = None
        return summary_of(rows)


def summary_of(rows: list[list[str]]) -> dict | None:
    """{"sm_mhz": {"median", "lowest", "highest"}, ...} of nvidia-smi's rows; rows that are no numbers do not count."""
    columns: list[list[float]] = [[], [], []]
    for row in rows:
        try:
            values = [float(value) for value in row]
        except ValueError:
            continue
        if len(values) == len(columns):
            for column, value in zip(columns, values):
                column.append(value)
    if not columns[0]:
        return None
    names = ("sm_mhz", "power_w", "temperature_c")
    return {
        name: {"median": statistics.median(column), "lowest": min(column), "highest": max(column)}
        for name, column in zip(names, columns)
    }
