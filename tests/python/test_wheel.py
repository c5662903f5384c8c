"""The wheel, as pip installs it: into every Python from 3.10 on that this machine has, without torch or NumPy, and beside torch.

The wheel's path comes in TILEWISE_WHEEL.
"""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

WHEEL = Path(os.environ["TILEWISE_WHEEL"]) if "TILEWISE_WHEEL" in os.environ else None
pytestmark = pytest.mark.skipif(WHEEL is None, reason="TILEWISE_WHEEL names no wheel")

# No array library at all: memory of the standard library, in words.
WITHOUT_LIBRARIES = """
import array, tilewise
from tilewise import _native
q, o = array.array("f", [1.0] * 8), array.array("f", [0.0] * 8)
words = lambda x: (x.buffer_info()[0], "f32", (1, 2, 1, 4), None, "cpu")
_native.run(_native.FORWARD, q=words(q), k=words(q), v=words(q), o=words(o), causal=True)
assert list(o) == [1.0] * 8, o
assert tilewise.capabilities()["version"] == tilewise.__version__
assert tilewise.explain(*[tilewise.spec((1, 8, 2, 64), "float16")] * 3).kernel
report = tilewise.doctor()
assert report.exit_code < 2, str(report)
"""

WITH_TORCH = """
import torch, tilewise
q = torch.randn(1, 5, 2, 8)
expected = torch.nn.functional.scaled_dot_product_attention(*[q.transpose(1, 2)] * 3, is_causal=True)
torch.testing.assert_close(tilewise.attention(q, q, q, causal=True).transpose(1, 2), expected)
assert "site" in tilewise.__file__, tilewise.__file__
"""


def pythons():
    """The interpreters of this machine, one a version."""
    home = Path.home() / ".pyenv" / "versions"
    found = {}
    candidates = [shutil.which(f"python3.{minor}") for minor in range(10, 16)]
    candidates = [*home.glob("3.*/bin/python"), *(path for path in candidates if path and "shims" not in path), sys.executable]
    for path in candidates:
        code = "import sys, venv; print(*sys.version_info[:2])"
        done = subprocess.run([str(path), "-c", code], capture_output=True, text=True)
        version = re.fullmatch(r"3 (\d+)\n", done.stdout)
        if version and int(version.group(1)) >= 10:
            found.setdefault(f"3.{version.group(1)}", str(path))
    return found


PYTHONS = pythons() if WHEEL is not None else {}


def clean_environment():
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


def run(*command, cwd):
    done = subprocess.run([str(x) for x in command], capture_output=True, text=True, cwd=cwd, env=clean_environment())
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_name_and_contents():
    assert re.fullmatch(r"tilewise-[\d.]+-cp310-abi3-manylinux_2_\d+_\w+\.whl", WHEEL.name)
    assert WHEEL.stat().st_size < 60_000_000
    with zipfile.ZipFile(WHEEL) as archive:
        names = archive.namelist()
        metadata = archive.read(next(n for n in names if n.endswith("/METADATA"))).decode()
    folders = {name.partition("/")[0] for name in names}
    assert {re.sub(r"-.*", "", folder) for folder in folders} == {"tilewise"}
    assert {"tilewise/py.typed", "tilewise/_native.abi3.so", "tilewise/bin/tilewise"} <= set(names)
    assert "Requires-Dist: torch>=2.4; extra == \"torch\"" in metadata
    assert "Requires-Dist: torch;" not in metadata and not re.search(r"^Requires-Dist: [^;]*$", metadata, re.MULTILINE)


@pytest.mark.parametrize("version", sorted(PYTHONS))
def test_without_libraries(version, tmp_path):
    run(PYTHONS[version], "-m", "venv", "--without-pip", tmp_path / "env", cwd=tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    install = ["-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--disable-pip-version-check", WHEEL]
    run(sys.executable, *install, cwd=tmp_path)
    run(python, "-c", WITHOUT_LIBRARIES, cwd=tmp_path)
    assert "cpu_tiled_forward" in run(tmp_path / "env" / "bin" / "tilewise", "info", cwd=tmp_path)


def test_with_torch(tmp_path):
    site = tmp_path / "site"
    install = ["-m", "pip", "install", "--no-deps", "--no-index", "--disable-pip-version-check", "--target", site, WHEEL]
    run(sys.executable, *install, cwd=tmp_path)
    code = f"import sys; sys.path.insert(0, {str(site)!r})\n{WITH_TORCH}"
    run(sys.executable, "-c", code, cwd=tmp_path)
