"""What the module and the library depend on: the C and C++ runtimes, and no version of Python, torch or CUDA."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tilewise import _native

MODULE = Path(_native.__file__)
RUNTIMES = {"libstdc++.so.6", "libgcc_s.so.1", "libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"}


def is_allowed(name):
    return name in RUNTIMES or name.startswith(("libtilewise.so.", "ld-linux"))


def loaded_library():
    """Path of the libtilewise that this process runs."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return Path(next(line.split()[-1] for line in lines if "/libtilewise.so" in line))


def needed(path):
    text = subprocess.run(["readelf", "-d", str(path)], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.+)\]", text)


def test_name():
    assert MODULE.name == "_native.abi3.so"


@pytest.mark.parametrize("path", [MODULE, loaded_library()], ids=["module", "library"])
def test_dependencies(path):
    names = needed(path)
    assert names and [name for name in names if not is_allowed(name)] == []


def test_stable_abi():
    command = [sys.executable, "-m", "abi3audit", "--strict", "--assume-minimum-abi3", "3.10", "--report", str(MODULE)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_import_takes_no_array_library():
    code = "import sys, tilewise; print([m for m in ('numpy', 'torch', 'jax', 'cupy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
