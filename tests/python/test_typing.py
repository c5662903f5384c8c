"""Types of the public functions and of the compiled module: what a type checker accepts and refuses of a user's program."""

import ast
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import tilewise
import torch
from tilewise import _native, _options, _typing, compat

PROGRAM = Path(__file__).parent / "typing" / "user.py"
PACKAGE = Path(inspect.getsourcefile(tilewise)).resolve().parent


@pytest.fixture(scope="module")
def check(tmp_path_factory):
    """Runs a module of mypy on the installed package; returns its exit code and its lines."""
    pytest.importorskip("mypy", reason="mypy is not installed")
    folder = tmp_path_factory.mktemp("mypy")
    config = folder / "mypy.ini"
    libraries = ("torch", "jax", "cupy", "transformers")
    skipped = "".join(f"[mypy-{name},{name}.*]\nfollow_imports = skip\nignore_missing_imports = True\n" for name in libraries)
    config.write_text(f"[mypy]\n{skipped}")
    environment = {**os.environ, "MYPY_CACHE_DIR": str(folder), "MYPYPATH": str(Path(tilewise.__path__[0]).parent)}

    def run(module, *arguments):
        command = [sys.executable, "-m", module, *arguments]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        return done.returncode, (done.stdout + done.stderr).splitlines()

    return run


def test_a_program_of_a_user(check):
    """Strictly: every marked line is refused, and no other."""
    code, lines = check("mypy", "--strict", "--follow-imports=silent", str(PROGRAM))
    expected = {n for n, line in enumerate(PROGRAM.read_text().splitlines(), 1) if line.endswith("# error")}
    refused = {int(match[1]) for line in lines if (match := re.match(r".*user\.py:(\d+): error", line))}
    assert code == 1 and refused == expected, "\n".join(lines)


def test_the_stub_of_the_module(check):
    code, lines = check("mypy.stubtest", "--mypy-config-file=mypy.ini", "tilewise._native")
    assert code == 0, "\n".join(lines)


def test_tensors_are_arrays():
    """What the checker cannot be asked in passing: the types of torch and NumPy have what `Array` asks for."""
    wanted = {name for name in dir(_typing.Array) if not name.startswith("_")}
    assert wanted and all(hasattr(kind, name) for kind in (torch.Tensor, numpy.ndarray) for name in wanted)


def test_every_public_function_has_types():
    functions = [getattr(tilewise, name) for name in tilewise.__all__ if inspect.isfunction(getattr(tilewise, name))]
    functions += [getattr(compat, name) for name in compat.__all__ if inspect.isfunction(getattr(compat, name))]
    for function in functions:
        own = {name for name in inspect.getfullargspec(inspect.unwrap(function)).annotations}
        names = {*function.__code__.co_varnames[: function.__code__.co_argcount + function.__code__.co_kwonlyargcount], "return"}
        assert names <= own, function.__name__


@pytest.mark.parametrize(
    "types, table",
    [
        ("AttentionOptions", "ATTENTION"),
        ("DecodeOptions", "DECODE"),
        ("AppendOptions", "APPEND"),
        ("MergeOptions", "MERGE"),
        ("ExplainOptions", "EXPLAIN"),
    ],
)
def test_options_are_those_of_the_functions(types, table):
    assert set(getattr(_typing, types).__annotations__) == set(getattr(_options, table))


def test_varlen_options_are_those_of_the_function():
    starts = {"cu_seqlens_q", "cu_seqlens_k"}
    assert set(_typing.VarlenOptions.__annotations__) == set(_options.ATTENTION) - starts


def test_the_stub_names_what_the_module_has():
    tree = ast.parse((PACKAGE / "_native.pyi").read_text())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    constants = {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}
    assert functions | constants == {name for name in dir(_native) if not name.startswith("__")}
    assert (PACKAGE / "py.typed").exists()


def test_the_stub_is_in_the_wheel():
    wheel = os.environ.get("TILEWISE_WHEEL")
    if wheel is None:
        pytest.skip("TILEWISE_WHEEL names no wheel")
    import zipfile

    assert {"tilewise/_native.pyi", "tilewise/_typing.py", "tilewise/py.typed"} <= set(zipfile.ZipFile(wheel).namelist())
