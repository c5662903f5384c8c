#!/usr/bin/env python3
"""The table of docs/user-reports.md and the tests agree: document, test program, Python tests -> exit code 0 if every report's tests exist
under the names that the table gives, every test is in the table, and every other cell says why it has none.
"""

import argparse
import ast
import re
import subprocess
import sys
from pathlib import Path

ROW = re.compile(r"^\| (R\d{3}) \| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$")
THREAD = re.compile(r"[\w.-]+/[\w.-]+#\d+")
TEST = {"C++": re.compile(r"`(R\d{3}_\w+)`"), "Python": re.compile(r"`(test_R\d{3}_\w+)`")}
PREFIX = {"C++": "", "Python": "test_"}
REASONS = {"C++": ("GPU", "Python", "8-bit", "install", "speed"), "Python": ("GPU", "C++", "8-bit", "install", "speed")}


def rows_of(document):
    """Yields (report, thread, what happened, C++ tests or reason, Python tests or reason) of each row of the table."""
    lines = [line for line in document.splitlines() if line.startswith("| R")]
    for line in lines:
        match = ROW.match(line)
        yield match.groups() if match else (line, "", "", "", "")


def faults_of_cell(report, language, outcome):
    tests, reasons = TEST[language].findall(outcome), REASONS[language]
    if not tests and not re.match("(" + "|".join(map(re.escape, reasons)) + r")(: \S|$)", outcome):
        return [f"'{outcome}' names no {language} test and is no reason; a reason begins with one of {', '.join(reasons)}"]
    return [f"{name} is a test of another report" for name in tests if not name.startswith(f"{PREFIX[language]}{report}_")]


def faults_of_row(report, thread, what, *outcomes):
    if not thread:
        return ["not a row of report, thread, what happened, C++ test or reason, Python test or reason"]
    faults = [] if THREAD.fullmatch(thread) else [f"{thread} is no thread; owner/repository#number is"]
    return faults + [fault for cell in zip(TEST, outcomes) for fault in faults_of_cell(report, *cell)]


def tests_of(program):
    listing = subprocess.run([program, "--gtest_list_tests"], check=True, capture_output=True, text=True).stdout
    return {line.strip().split()[0] for line in listing.splitlines() if line.startswith("  ")}


def python_tests_of(folder):
    """Names of the test functions of test_reports_*.py, which are read and not run: that would need torch."""
    trees = [ast.parse(path.read_text()) for path in sorted(folder.glob("test_reports_*.py"))]
    return {node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def main():
    parser = argparse.ArgumentParser(description="Compares docs/user-reports.md with the tests that exist.")
    parser.add_argument("--document", type=Path, required=True)
    parser.add_argument("--program", type=Path, required=True, help="reports_test")
    parser.add_argument("--python-tests", type=Path, required=True, help="the folder of test_reports_*.py")
    arguments = parser.parse_args()

    rows = list(rows_of(arguments.document.read_text()))
    faults = [f"{row[0]}: {fault}" for row in rows for fault in faults_of_row(*row)]
    reports = [row[0] for row in rows]
    faults += [f"{report}: out of order or twice" for before, report in zip(reports, reports[1:]) if before >= report]
    counts = []
    for column, (language, existing) in enumerate(
        {"C++": tests_of(arguments.program), "Python": python_tests_of(arguments.python_tests)}.items(), start=3
    ):
        named = [name for row in rows for name in TEST[language].findall(row[column])]
        counts.append(f"{len(named)} {language} tests")
        faults += [f"{name}: in the table, but there is no such {language} test" for name in named if name not in existing]
        faults += [f"{name}: a {language} test that the table does not name" for name in sorted(existing - set(named))]
    if not rows:
        faults.append(f"{arguments.document}: no row of a report")
    print(*(faults or [f"{len(rows)} reports, {', '.join(counts)}"]), sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
