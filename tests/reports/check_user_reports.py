#!/usr/bin/env python3
"""The table of docs/user-reports.md and the tests agree: document, test program -> exit code 0 if every report's tests exist under the names
that the table gives, every test is in the table, and every other row says why it has none.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROW = re.compile(r"^\| (R\d{3}) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$")
THREAD = re.compile(r"[\w.-]+/[\w.-]+#\d+")
TEST = re.compile(r"`(R\d{3}_\w+)`")
REASONS = ("GPU", "Python", "8-bit", "install", "speed")


def rows_of(document):
    """Yields (report, thread, what happened, tests or reason) of each row of the table."""
    lines = [line for line in document.splitlines() if line.startswith("| R")]
    for line in lines:
        match = ROW.match(line)
        yield match.groups() if match else (line, "", "", "")


def faults_of_row(report, thread, what, outcome):
    if not thread:
        return ["not a row of report, thread, what happened, test or reason"]
    faults = [] if THREAD.fullmatch(thread) else [f"{thread} is no thread; owner/repository#number is"]
    tests = TEST.findall(outcome)
    if not tests and not re.match("(" + "|".join(REASONS) + r")(: \w|$)", outcome):
        faults.append(f"'{outcome}' names no test and is no reason; a reason begins with one of {', '.join(REASONS)}")
    return faults + [f"{name} is a test of another report" for name in tests if not name.startswith(report + "_")]


def tests_of(program):
    listing = subprocess.run([program, "--gtest_list_tests"], check=True, capture_output=True, text=True).stdout
    return {line.strip().split()[0] for line in listing.splitlines() if line.startswith("  ")}


def main():
    parser = argparse.ArgumentParser(description="Compares docs/user-reports.md with the tests that exist.")
    parser.add_argument("--document", type=Path, required=True)
    parser.add_argument("--program", type=Path, required=True, help="reports_test")
    arguments = parser.parse_args()

    rows = list(rows_of(arguments.document.read_text()))
    existing = tests_of(arguments.program)
    named = [name for row in rows for name in TEST.findall(row[3])]
    faults = [f"{row[0]}: {fault}" for row in rows for fault in faults_of_row(*row)]
    reports = [row[0] for row in rows]
    faults += [f"{report}: out of order or twice" for before, report in zip(reports, reports[1:]) if before >= report]
    faults += [f"{name}: in the table, but there is no such test" for name in named if name not in existing]
    faults += [f"{name}: a test that the table does not name" for name in sorted(existing - set(named))]
    if not rows:
        faults.append(f"{arguments.document}: no row of a report")
    print(*(faults or [f"{len(rows)} reports, {len(named)} tests"]), sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
