"""`python -m tilewise`: what its help lists."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tilewise

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(tilewise.__path__[0]).parent)}


def run(*arguments):
    command = [sys.executable, "-m", "tilewise", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_the_commands_of_the_program_and_of_the_package(flag):
    done = run(flag)
    entries = re.findall(r"^(  ([a-z]+) {2,})\S", done.stdout, re.MULTILINE)
    commands = [command for _, command in entries]
    assert done.returncode == 0 and done.stderr == ""
    assert {"info", "doctor", "plan", "compat"} <= set(commands) and len(commands) == len(set(commands))
    assert len({len(indent) for indent, _ in entries}) == 1, "one column of descriptions"


@pytest.mark.parametrize("command", ["info", "doctor", "plan", "run", "verify", "bench", "compat"])
def test_every_listed_command_has_a_help(command):
    done = run(command, "--help")
    assert done.returncode == 0 and "usage" in done.stdout.lower()


def test_an_unknown_command_is_refused():
    done = run("nonsense")
    assert done.returncode == 2 and "--help" in done.stderr
