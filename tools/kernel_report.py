#!/usr/bin/env python3
"""What the CUDA kernels cost: a build tree -> registers, local memory, compile time and size, checked against the budget.

Reads cuda_build.json and, beside each object, the log of tools/record_compile.py. --write puts the table into
docs/kernels/resources.md. Seconds are CPU seconds of the compilation that made the object, wherever it came from.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from source_tree import ROOT

TABLE = ROOT / "docs" / "kernels" / "resources.md"

UNIT_SECONDS = 60
UNIT_BYTES = 1.5e9
# Seconds of two cores for one architecture, by what the names of units begin with; those of sm90 are for one architecture in any build.
FAMILIES = {"sm90_fwd_": 6 * 60, "sm90_bwd_": 6 * 60, "sm80_": 5 * 60, "": 5 * 60}
FAMILY_CORES = 2
MOST_SLOWDOWN = 2.0  # of a machine beside the one that the table was made on
LIBRARY_BYTES = 40e6

# Kernels that may use local memory: regular expressions of names, and how many bytes of it. sm80: addresses that do not fit beside tiles at the
# limit of 255 registers; the same shapes with smaller tiles keep none and are slower. sm90: the end of a row tile and the warps that load and schedule;
# the loop over key tiles has none.
LOCAL_MEMORY_ALLOWED = {
    r"sm80_fwd_(bf16|f16)_d128_128x(64_plain|32_mod)": 48,
    r"sm80_fwd_(bf16|f16)_d256_(128x64_plain|128x32_mod|32x32_mod)": 48,
    r"sm80_bwd_(bf16|f16)_(d64|d128)_64x128_plain": 48,
    r"sm90_fwd_(bf16|f16)_(d64_192x128(_noskip)?|d128_192x80)_plain": 64,
    r"sm90_fwd_(bf16|f16)_d256_128x64_plain": 96,
    r"sm90_fwd_(bf16|f16)_d64_dv256_128x96_plain": 160,
    r"sm90_fwd_(bf16|f16)_\w+_any": 128,
}

MEASUREMENT = re.compile(r"tilewise-compile: wall_seconds=[\d.]+ cpu_seconds=([\d.]+) peak_kb=(\d+)")
ENTRY = re.compile(r"ptxas info\s*: Compiling entry function '(\S+)' for 'sm_(\w+)'")
PROPERTIES = re.compile(r"ptxas info\s*: Function properties for (\S+)")
LOCAL = re.compile(r"\s+(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
SERIALISED = re.compile(r"\(C75(?!19)\d\d\).*")  # C7519 adds an order that costs nothing
ROW = re.compile(r"^\| `([^`]+)` \|.*\| ([\d.]+) \| \d+ \|$", re.MULTILINE)  # name and seconds, in the table
USED = re.compile(r"ptxas info\s*: Used (\d+) registers(?:.*?, (\d+) bytes smem)?")


@dataclass
class Usage:
    """Of one kernel on one target; bytes are those of a thread, shared memory that of a block (static part only)."""

    registers: int = 0
    stack_bytes: int = 0
    spill_bytes: int = 0
    shared_bytes: int = 0


@dataclass
class Unit:
    """One translation unit: {kernel: {target: Usage}}, and what its compilation took (None: not measured)."""

    name: str
    kernels: dict = field(default_factory=dict)
    seconds: float | None = None
    peak_bytes: int | None = None
    serialised: list = field(default_factory=list)  # what ptxas says of matrix products that it could not leave in flight


@dataclass
class Build:
    nvcc: str
    sass: list
    units: list
    missing: list  # objects without a log
    library_bytes: int | None


def parse_log(name, text):
    unit, kernel, target, function = Unit(name), None, None, None
    for line in text.splitlines():
        if match := ENTRY.match(line):
            kernel, target = match.groups()
            unit.kernels.setdefault(kernel, {})[target] = Usage()
        elif match := PROPERTIES.match(line):
            function = match.group(1)
        elif match := MEASUREMENT.match(line):
            unit.seconds, unit.peak_bytes = float(match.group(1)), int(match.group(2)) * 1024
        elif match := SERIALISED.search(line):
            unit.serialised.append(match.group(0))
        elif kernel is None:
            continue
        elif match := LOCAL.match(line):
            # A function that was not inlined has its own frame, and the kernel pays for it: the kernel's is a lower bound.
            usage = unit.kernels[kernel][target]
            usage.stack_bytes = max(usage.stack_bytes, int(match.group(1)))
            usage.spill_bytes += int(match.group(2)) + int(match.group(3))
        elif (match := USED.match(line)) and function in (None, kernel):
            usage = unit.kernels[kernel][target]
            usage.registers, usage.shared_bytes = int(match.group(1)), int(match.group(2) or 0)
    return unit


def readable(names):
    """{mangled name: name without namespaces and parameters}."""
    names = list(names)
    if not names or not shutil.which("c++filt"):
        return {name: name for name in names}
    run = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    return {name: shorten(text) for name, text in zip(names, run.stdout.splitlines())}


def shorten(signature):
    depth, end = 0, len(signature)
    for place, letter in enumerate(signature.replace("(anonymous namespace)", "_anonymous_namespace_")):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            end = place
            break
    text = signature[:end].replace("(anonymous namespace)::", "").removeprefix("void ")
    return re.sub(r"\b(?:\w+::)+", "", text)


def load_build(build_dir):
    """The build in `build_dir`, or None if it has no CUDA backend."""
    description = build_dir / "cuda_build.json"
    if not description.is_file():
        return None
    facts = json.loads(description.read_text(encoding="utf-8"))
    units, missing = [], []
    for path in map(Path, filter(lambda name: name.endswith(".cu.o"), facts["objects"].split(";"))):
        log = Path(f"{path}.log")
        if path.is_file() and log.is_file():
            units.append(parse_log(path.name.removesuffix(".cu.o"), log.read_text(encoding="utf-8")))
        else:
            missing.append(path.name)
    for unit in units:
        names = readable(unit.kernels)
        unit.kernels = {names[name]: usages for name, usages in unit.kernels.items()}
    library = Path(facts["library"])
    size = library.stat().st_size if library.is_file() else None
    return Build(facts["nvcc"], facts["sass"].split(";"), sorted(units, key=lambda unit: unit.name), missing, size)


def kernels_of(build):
    """(unit, kernel, {target: Usage}) of every kernel."""
    return [(unit, name, usages) for unit in build.units for name, usages in unit.kernels.items()]


def total_seconds(build):
    return sum(unit.seconds or 0 for unit in build.units)


def check_local_memory(build, allowed):
    for _, name, usages in kernels_of(build):
        for target, usage in usages.items():
            most = max((most for pattern, most in allowed.items() if re.fullmatch(pattern, name)), default=0)
            if usage.stack_bytes > most or (usage.spill_bytes and not most):
                yield (f"{name} on sm_{target}: {usage.registers} registers, {usage.stack_bytes} bytes of stack and "
                       f"{usage.spill_bytes} bytes of spills; a kernel keeps everything in registers")


def check_units(build, table_text):
    most = UNIT_SECONDS * slowdown(build, table_text)
    for unit in build.units:
        if unit.seconds is None:
            yield f"{unit.name}: its compilation was not measured; remove its object and build again"
        elif unit.seconds > most:
            yield f"{unit.name}: compiled in {unit.seconds:.0f} s; at most {most:.0f}"
        if (unit.peak_bytes or 0) > UNIT_BYTES:
            yield f"{unit.name}: compiled in {unit.peak_bytes / 1e9:.2f} GB; at most {UNIT_BYTES / 1e9:g}"


def check_serialised(build):
    for unit in build.units:
        for message in unit.serialised:
            yield f"{unit.name}: {message}"


def slowdown(build, table_text):
    """How much longer than in the table units take here, in the middle: a shared machine is now and then half as fast. At least 1."""
    recorded = {name: float(seconds) for name, seconds in ROW.findall(table_text)}
    ratios = []
    for unit in build.units:
        known = {recorded.get(name) for name in unit.kernels}
        if len(known) == 1 and unit.seconds and (before := known.pop()):
            ratios.append(unit.seconds / before)
    return min(max(1.0, median(ratios)), MOST_SLOWDOWN) if ratios else 1.0


def family_seconds(build):
    """{start of names: seconds of two cores for one architecture}."""
    seconds = dict.fromkeys(FAMILIES, 0.0)
    for unit in build.units:
        family = next(start for start in FAMILIES if unit.name.startswith(start))
        seconds[family] += (unit.seconds or 0) / FAMILY_CORES / (1 if family else max(1, len(build.sass)))
    return seconds


def check_families(build, table_text):
    factor = slowdown(build, table_text)
    for family, seconds in family_seconds(build).items():
        if seconds > FAMILIES[family] * factor:
            yield (f"{family or 'other kernels'}: {seconds:.0f} s for one architecture on {FAMILY_CORES} cores; at most "
                   f"{FAMILIES[family]}, times {factor:.2f} on this machine")


def check_library(build):
    if build.library_bytes is None:
        yield "the library was not built"
    elif build.library_bytes > LIBRARY_BYTES:
        yield f"the library has {build.library_bytes / 1e6:.1f} MB; at most {LIBRARY_BYTES / 1e6:g}"


def check_table(build, text):
    """Every kernel, and none that is gone, has its line in the table."""
    listed = set(re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE))
    built = {name for _, name, _ in kernels_of(build)}
    refresh = f"refresh {TABLE.relative_to(ROOT)} with `make kernel-report`"
    if built - listed:
        yield f"not in the table: {', '.join(sorted(built - listed))}; {refresh}"
    if listed - built:
        yield f"in the table, but no kernel: {', '.join(sorted(listed - built))}; {refresh}"


def check(build, table_text, allowed=None):
    """{case: messages}, as the checkers of source rules give it."""
    cases = {
        "compiled": iter([f"{name}: no object or no log of its compilation" for name in build.missing]),
        "local_memory": check_local_memory(build, LOCAL_MEMORY_ALLOWED if allowed is None else allowed),
        "unit_budget": check_units(build, table_text),
        "no_serialised_products": check_serialised(build),
        "family_budget": check_families(build, table_text),
        "library_size": check_library(build),
        "table": check_table(build, table_text),
    }
    return {name: list(messages) for name, messages in cases.items()}


def family_summary(build, table_text):
    families = ", ".join(f"{family or 'others'} {seconds:.0f} s" for family, seconds in family_seconds(build).items())
    return f"on {FAMILY_CORES} cores, for one architecture: {families}; {slowdown(build, table_text):.2f} times the table's"


def summary(build):
    slowest = max(build.units, key=lambda unit: unit.seconds or 0, default=Unit("none"))
    largest = max((unit.peak_bytes or 0 for unit in build.units), default=0)
    return (f"CUDA build: {len(kernels_of(build))} kernels, {total_seconds(build):.0f} seconds of compiling for "
            f"sm_{', sm_'.join(build.sass)}, slowest unit {slowest.name} ({slowest.seconds or 0:.1f} s), "
            f"largest {largest / 1e9:.2f} GB, library {(build.library_bytes or 0) / 1e6:.1f} MB")


def joined(values):
    """One value if all targets agree, else one for each."""
    texts = [str(value) for value in values]
    return texts[0] if len(set(texts)) == 1 else " / ".join(texts)


def table(build):
    targets = " / ".join(f"sm_{arch}" for arch in build.sass)
    lines = [
        "# Resources of the CUDA kernels",
        "",
        f"What nvcc {build.nvcc} made of each kernel for {targets}; one number where all targets agree. Registers and",
        "local memory are per thread; shared memory is the static part (the rest is asked for at launch, by the plan).",
        "Local memory is stack and spills: none is the rule, and `make test` fails otherwise. Seconds and peak memory are",
        "of the compilation of the kernel's source, for all these targets. Written by `make kernel-report`.",
        "",
        "| kernel | registers | local bytes | shared bytes | seconds | peak MB |",
        "|---|---|---|---|---|---|",
    ]
    for unit, name, usages in kernels_of(build):
        of = list(usages.values())
        registers, shared = joined(u.registers for u in of), joined(u.shared_bytes for u in of)
        local = joined(max(u.stack_bytes, u.spill_bytes) for u in of)
        lines.append(f"| `{name}` | {registers} | {local} | {shared} | {unit.seconds or 0:.1f} | "
                     f"{(unit.peak_bytes or 0) / 1e6:.0f} |")
    return "\n".join(lines) + "\n\n" + summary(build) + ".\n"


def read_table():
    return TABLE.read_text(encoding="utf-8") if TABLE.is_file() else ""


def run(build_dir, say=print):
    """Prints the budget and each case; {case: messages}, empty if the build has no CUDA backend."""
    build = load_build(build_dir)
    if build is None:
        return {}
    table_text = read_table()
    results = check(build, table_text)
    for name, messages in results.items():
        for message in messages:
            say(message)
        say(f"  {'FAILED' if messages else 'passed'}  kernel_report.{name}")
    say(summary(build))
    say(family_summary(build, table_text))
    return results


def main():
    parser = argparse.ArgumentParser(description="Checks what the CUDA kernels of a build cost.")
    parser.add_argument("--build-dir", type=Path, required=True)
    parser.add_argument("--write", action="store_true", help=f"refresh {TABLE.relative_to(ROOT)} first")
    options = parser.parse_args()
    build = load_build(options.build_dir)
    if build is None:
        print(f"{options.build_dir} has no CUDA backend: the line \"CUDA backend\" of its configuration says why")
        return 1
    if options.write:
        TABLE.parent.mkdir(parents=True, exist_ok=True)
        TABLE.write_text(table(build), encoding="utf-8")
    return 1 if any(run(options.build_dir).values()) else 0


if __name__ == "__main__":
    sys.exit(main())
