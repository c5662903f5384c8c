#!/usr/bin/env python3
"""Virtual environments for building the wheel and for testing the package: name -> build/python-env-NAME, made when its requirements change.

usage: tools/python_env.py wheel|test...        prints the path of each environment's Python
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from source_tree import ROOT

REQUIREMENTS = {name: ROOT / "tools" / f"requirements-{name}.txt" for name in ("wheel", "test")}


def prepare(name, folder=None):
    """Path of the environment's Python."""
    folder = Path(folder) if folder else ROOT / "build" / f"python-env-{name}"
    requirements = REQUIREMENTS[name]
    stamp = folder / "requirements.sha256"
    wanted = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()
    python = folder / "bin" / "python"
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"installing {requirements.name} into {folder}", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(requirements)]
    subprocess.run(command, check=True, stdout=sys.stderr)
    stamp.write_text(wanted)
    return python


def main():
    parser = argparse.ArgumentParser(description="Makes environments and prints the paths of their Pythons.")
    parser.add_argument("name", nargs="+", choices=sorted(REQUIREMENTS))
    for name in parser.parse_args().name:
        print(prepare(name))


if __name__ == "__main__":
    main()
