#!/usr/bin/env python3
"""Runs all tests and counts cases: source rules, tests of the tools, kernels, built tests, Python -> "N passed, N failed".

A GoogleTest program counts as its cases, a script as one. The exit code is 0 only if nothing failed and every suite,
and every GoogleTest program, ran at least one case: a suite that silently shrank to nothing is a failure.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

import check_includes
import check_rules
import kernel_report
import python_env
from source_tree import ROOT, load_tree

SILENCE_SECONDS = 30  # after so long without output, say what is still running
KEPT_OUTPUT_BYTES = 10_000_000  # of each test, for the counts; ctest keeps 1 KB unless told


@dataclass
class Count:
    passed: int = 0
    failed: int = 0

    def __iadd__(self, other):
        self.passed += other.passed
        self.failed += other.failed
        return self


def say(text=""):
    print(text, flush=True)


def run_source_rules():
    """One case for each rule of the checkers."""
    count, sources = Count(), load_tree()
    for checker in (check_includes, check_rules):
        for name, messages in checker.check(sources).items():
            for message in messages:
                say(message)
            count += Count(failed=1) if messages else Count(passed=1)
            say(f"  {'FAILED' if messages else 'passed'}  {checker.__name__}.{name}")
    return count


def run_kernel_report(build_dir):
    """One case for each budget of the CUDA kernels; none if the build has no CUDA backend."""
    failures = [bool(messages) for messages in kernel_report.run(build_dir, say).values()]
    return Count(len(failures) - sum(failures), sum(failures))


def run_checker_tests():
    suite = unittest.defaultTestLoader.discover(str(ROOT / "tests" / "tools"))
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=1).run(suite)
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    return Count(result.testsRun - failed, failed)


def count_script(output, succeeded):
    """A script may count its cases, as unittest does or in a last line `N passed, N failed`; else it is one case."""
    unittest_run = re.search(r"^Ran (\d+) tests? in ", output, re.MULTILINE)
    own_count = re.search(r"^(\d+) passed, (\d+) failed\s*\Z", output, re.MULTILINE)
    passed, failed = 0, 0 if succeeded else 1
    if unittest_run:
        failures = sum(int(n) for n in re.findall(r"(?:failures|errors|unexpected successes)=(\d+)", output))
        skipped = sum(int(n) for n in re.findall(r"skipped=(\d+)", output))
        failed = max(failed, failures)
        passed = max(0, int(unittest_run.group(1)) - failures - skipped)
    elif own_count:
        passed, failed = int(own_count.group(1)), max(failed, int(own_count.group(2)))
    elif succeeded:
        passed = 1
    return Count(passed, failed)


def count_output(output, succeeded):
    """The cases in the output of one ctest test."""
    ran = [int(n) for n in re.findall(r"^\[=+\] (\d+) tests? from .* ran\.", output, re.MULTILINE)]
    is_gtest = re.search(r"^\[=+\] Running \d+ tests? from", output, re.MULTILINE) is not None
    if not is_gtest:
        return count_script(output, succeeded)
    passed = len(re.findall(r"^\[       OK \] ", output, re.MULTILINE))
    if not ran:  # the program died in the middle of a case
        return Count(passed, 1)
    failed = sum(int(n) for n in re.findall(r"^\[  FAILED  \] (\d+) tests?, listed below", output, re.MULTILINE))
    if sum(ran) == 0 or (failed == 0 and not succeeded):  # nothing ran, or it failed outside of a case
        failed += 1
    return Count(passed, failed)


class RunningTests:
    """Follows ctest's lines to tell, after a long silence, which tests it waits for."""

    def __init__(self):
        self.started = {}
        self.last_output = time.monotonic()

    def note(self, line):
        self.last_output = time.monotonic()
        start = re.match(r"\s+Start\s+(\d+): (\S+)", line)
        end = re.match(r"\s*\d+/\d+ Test\s+#(\d+):", line)
        if start:
            self.started[start.group(1)] = (start.group(2), time.monotonic())
        elif end:
            self.started.pop(end.group(1), None)

    def watch(self, done):
        while not done.wait(1):
            now = time.monotonic()
            if now - self.last_output >= SILENCE_SECONDS:
                self.last_output = now
                names = [f"{name} ({now - since:.0f} s)" for name, since in list(self.started.values())]
                say("      still running: " + ", ".join(names))


def stream(command):
    """Runs `command`, passes its lines on as they come, and returns when it ended."""
    running, done = RunningTests(), threading.Event()
    watcher = threading.Thread(target=running.watch, args=(done,), daemon=True)
    watcher.start()
    try:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
        with subprocess.Popen(command, **pipes) as process:
            for line in process.stdout:
                running.note(line)
                say(line.rstrip("\n"))
    finally:
        done.set()
        watcher.join()


def run_built_tests(build_dir, jobs, name_filter):
    if not (build_dir / "CTestTestfile.cmake").is_file():
        say(f"{build_dir} holds no configured build; run `make build` first")
        return Count(failed=1)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = ["ctest", "--test-dir", str(build_dir), "--parallel", str(jobs), "--no-tests=error"]
        command += ["--output-on-failure", "--output-junit", str(report)]
        command += ["--test-output-size-passed", str(KEPT_OUTPUT_BYTES)]
        command += ["--test-output-size-failed", str(KEPT_OUTPUT_BYTES)]
        if name_filter:
            command += ["--tests-regex", name_filter]
        stream(command)
        count = Count()
        if not report.is_file():
            return Count(failed=1)
        say()
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            one = count_output(case.findtext("system-out") or "", case.get("status") == "run")
            # Nothing passed and nothing failed: every case was skipped, for want of a GPU.
            verdict = "FAILED" if one.failed else "passed" if one.passed else "skipped"
            say(f"  {verdict}  {case.get('name')}: {one.passed} passed, {one.failed} failed")
            count += one
    return count


def build_wheel(build_dir, folder, jobs):
    """The wheel of the package that lies in `build_dir`, or None."""
    command = [sys.executable, str(ROOT / "tools" / "build_wheel.py"), "--reuse", str(build_dir), "--out", str(folder)]
    done = subprocess.run([*command, "--jobs", str(jobs)], capture_output=True, text=True)
    if done.returncode != 0:
        say(done.stdout + done.stderr)
    return next(iter(folder.glob("*.whl")), None) if done.returncode == 0 else None


def run_python_tests(build_dir, jobs):
    """tests/python in an environment of its own, on the package of the build tree; one more case: that it makes a wheel."""
    python = python_env.prepare("test")
    with tempfile.TemporaryDirectory() as folder:
        wheel = build_wheel(build_dir, Path(folder), jobs)
        say(f"  {'passed' if wheel else 'FAILED'}  wheel {wheel.name if wheel else ''}")
        report = Path(folder) / "report.xml"
        environment = {**os.environ, "PYTHONPATH": str((build_dir / "python").resolve()), "PYTHONDONTWRITEBYTECODE": "1"}
        if wheel:
            environment["TILEWISE_WHEEL"] = str(wheel)
        command = [str(python), "-m", "pytest", "--durations=5", "-rs", f"--junit-xml={report}"]
        subprocess.run(command, cwd=ROOT, env=environment)
        count = Count(1, 0) if wheel else Count(0, 1)
        if not report.is_file():
            return Count(0, 1)
        suite = next(ElementTree.parse(report).getroot().iter("testsuite"))
    failed = int(suite.get("failures")) + int(suite.get("errors"))
    count += Count(int(suite.get("tests")) - failed - int(suite.get("skipped")), failed)
    return count


def parse_arguments():
    parser = argparse.ArgumentParser(description="Runs the tests of Tilewise.")
    parser.add_argument("--build-dir", type=Path, required=True, help="a configured and built tree")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="tests that run at once")
    parser.add_argument("--only", choices=("rules", "checkers", "kernels", "built", "python"), help="one suite instead of all")
    parser.add_argument("--filter", help="only built tests whose name matches this regular expression")
    return parser.parse_args()


def main():
    options = parse_arguments()
    suites = {
        "rules": ("source rules", run_source_rules),
        "checkers": ("tests of the checkers", run_checker_tests),
        "kernels": ("resources and build budget of the CUDA kernels", lambda: run_kernel_report(options.build_dir)),
        "built": ("built tests", lambda: run_built_tests(options.build_dir, options.jobs, options.filter)),
        "python": ("Python package", lambda: run_python_tests(options.build_dir, options.jobs)),
    }
    if options.only != "python" and not (options.build_dir / "python").is_dir():
        del suites["python"]
    if options.only != "kernels" and not (options.build_dir / "cuda_build.json").is_file():
        del suites["kernels"]
    total, empty = Count(), []
    for key, (title, run) in suites.items():
        if options.only not in (None, key):
            continue
        say(f"== {title}")
        start = time.monotonic()
        count = run()
        say(f"== {title}: {count.passed} passed, {count.failed} failed in {time.monotonic() - start:.1f} s\n")
        total += count
        if count.passed + count.failed == 0:
            empty.append(title)
    for title in empty:
        say(f"the suite \"{title}\" ran no test")
    say(f"{total.passed} passed, {total.failed} failed")
    return 1 if total.failed or empty else 0


if __name__ == "__main__":
    sys.exit(main())
