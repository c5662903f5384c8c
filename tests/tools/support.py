"""Shared by the tests of the checkers: makes tools/ importable and turns snippets into outlines and violations."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from cpp_scan.outline import build_outline  # noqa: E402
from cpp_scan.tokens import tokenize  # noqa: E402
from source_tree import SourceFile  # noqa: E402


def outline(text):
    return build_outline(tokenize(text))


def functions(text):
    """[(name, parameters)] of the definitions that are not nested."""
    return [(f.name, f.parameters) for f in outline(text).functions if f.is_definition and not f.is_nested]


def declarations(text):
    return [(f.name, f.parameters) for f in outline(text).functions if not f.is_definition]


def fields(text):
    return {s.name: s.fields for s in outline(text).structs}


def violations(rule, path, text):
    """The lines that `rule` reports for a file of this path and text."""
    return [line for line, _, _ in rule(SourceFile(path, text))]
