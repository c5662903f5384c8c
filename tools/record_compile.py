#!/usr/bin/env python3
"""A compiler launcher: runs a compiler, or ccache and a compiler -> <object>.log with seconds, memory and ptxas's lines.

usage: record_compile.py [ccache] compiler arguments... -o object

The measurement goes through the compiler's error output, and ccache stores and replays that: an object that comes from
the cache brings along what its real compilation took. What ptxas says about each kernel goes to the log and not to the
screen; everything else passes.
"""

import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

MEASUREMENT = "tilewise-compile:"
PTXAS_LINE = re.compile(r"ptxas info\s*:|\s+\d+ bytes stack frame,")
# Set for the same script one level down, where ccache calls it as a prefix of the compiler.
INNER = "TILEWISE_RECORD_INNER"


def measure(command):
    """Runs `command`, adds one line about it to the error output, and returns its exit code."""
    start = time.monotonic()
    code = subprocess.run(command, check=False).returncode
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = usage.ru_utime + usage.ru_stime
    print(f"{MEASUREMENT} wall_seconds={time.monotonic() - start:.2f} cpu_seconds={cpu:.2f} peak_kb={usage.ru_maxrss}",
          file=sys.stderr, flush=True)
    return code


def is_kept(line):
    return line.startswith(MEASUREMENT) or PTXAS_LINE.match(line) is not None


def nested_command(command):
    """The command and environment that make `measure` run around the compiler itself, also below ccache."""
    environment = dict(os.environ, **{INNER: "1"})
    script = Path(__file__).resolve()
    uses_ccache = Path(command[0]).name == "ccache"
    if uses_ccache and " " in str(script):  # ccache would take the path for two prefixes
        uses_ccache, command = False, command[1:]
    if not uses_ccache:
        return [sys.executable, str(script), *command], environment
    # ccache's own preprocessing sees one architecture's code only; in depend mode it hashes the files themselves.
    environment["CCACHE_DEPEND"] = "1"
    environment["CCACHE_PREFIX"] = " ".join(filter(None, (os.environ.get("CCACHE_PREFIX"), str(script))))
    return command, environment


def main():
    command = sys.argv[1:]
    if os.environ.pop(INNER, None):
        return measure(command)
    if not command:
        print(__doc__, file=sys.stderr)
        return 2
    nested, environment = nested_command(command)
    run = subprocess.run(nested, env=environment, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    lines = run.stderr.splitlines(keepends=True)
    sys.stderr.writelines(line for line in lines if not is_kept(line))
    if run.returncode == 0 and "-o" in command[:-1]:
        log = Path(command[command.index("-o") + 1] + ".log")
        log.write_text("".join(line for line in lines if is_kept(line)), encoding="utf-8")
    return run.returncode


if __name__ == "__main__":
    sys.exit(main())
