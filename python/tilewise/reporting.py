"""What this build can do (`capabilities`), and whether this machine can use it (`doctor`)."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import _native

# Distributions whose versions a report names, and what they have to do with this package.
_PACKAGES = ("torch", "numpy", "jax", "cupy", "ml_dtypes", "transformers", "diffusers", "vllm")
_DROP_INS = ("flash-attn", "flash-attn-3")
_LEVELS = {"good": 0, "note": 0, "warning": 1, "broken": 2}


def capabilities(include_recorded: bool = False) -> dict[str, Any]:
    """What this build has: {"version", "devices": {name: what the planner knows}, "kernels": [what each serves]}.

    Args:
        include_recorded: also list GPUs that can be planned for without being here (`explain(device="recorded:h200")`).

    >>> import tilewise
    >>> tilewise.capabilities()["devices"]["cpu"]["kind"]
    'cpu'
    """
    return {
        "version": _native.version(),
        "devices": {name: json.loads(text) for name, text in _native.devices(include_recorded)},
        "kernels": [json.loads(text) for text in _native.kernels()],
    }


@dataclass(frozen=True)
class Report:
    """Findings of `doctor`: dicts with level ("good", "note", "warning", "broken"), topic, text, action and details."""

    findings: list[dict[str, Any]]

    @property
    def exit_code(self) -> int:
        """0 good, 1 warnings, 2 broken."""
        return max((_LEVELS[finding["level"]] for finding in self.findings), default=0)

    @property
    def status(self) -> str:
        return ("good", "warnings", "broken")[self.exit_code]

    def __str__(self) -> str:
        lines = []
        for finding in self.findings:
            lines.append(f"{finding['level']:<8} {finding['topic']:<12} {finding['text']}")
            lines += [f"{'':<23} {detail}" for detail in finding["details"]]
            if finding["action"]:
                lines.append(f"{'':<21} -> {finding['action']}")
        return "\n".join([*lines, "", self.status])


def _finding(level, topic, text, action="", details=()):
    return {"level": level, "topic": topic, "text": text, "action": action, "details": list(details)}


def _version_of(distribution):
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _python_findings():
    text = f"CPython {platform.python_version()}, tilewise {_native.version()} in {Path(__file__).parent}"
    yield _finding("good", "python", text)
    found = [f"{name} {version}" for name in _PACKAGES if (version := _version_of(name))]
    yield _finding("good", "packages", ", ".join(found) if found else "none of " + ", ".join(_PACKAGES))
    for name in _DROP_INS:
        version = _version_of(name)
        if version and "tilewise" not in version:
            yield _finding("note", "packages", f"{name} {version} is installed: its functions are its own, not Tilewise's")


def _torch_finding():
    torch = sys.modules.get("torch")
    if torch is None:
        return _finding("note", "torch", "not imported in this process; import it first to have it examined")
    if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        return _finding("good", "torch", f"{torch.__version__}: tensors come in through the DLPack exchange table")
    return _finding("note", "torch", f"{torch.__version__}: tensors come in by their attributes, some microseconds a call slower; 2.10 and up have a faster way")


def program() -> Path:
    """Path of the command line program that the package brings."""
    return Path(__file__).parent / "bin" / "tilewise"


def _machine_findings():
    try:
        done = subprocess.run([program(), "doctor", "--json"], capture_output=True, text=True, timeout=120)
        return json.loads(done.stdout)["findings"]
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
        return [_finding("broken", "program", f"{program()} does not run: {error}", "reinstall tilewise")]


def doctor() -> Report:
    """Examines this machine: driver, GPUs, CPU, which kernels typical calls run and why, a self-test against the oracle, and the
    Python packages around. Needs neither torch nor a GPU.

    Returns:
        a `Report`: `print(tilewise.doctor())` shows it; `.findings` are dicts, `.exit_code` is 0 (good), 1 (warnings) or 2 (broken).

    `python -m tilewise doctor` prints the same.

    >>> import tilewise
    >>> tilewise.doctor().status in ("good", "warnings")
    True
    """
    return Report([*_python_findings(), _torch_finding(), *_machine_findings()])
