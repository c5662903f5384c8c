"""The files of this repository as the checkers see them: root -> SourceFile objects with text, comments and outline.

Git decides what belongs to the tree (tracked, or new and not ignored); without git a walk that skips build trees does.
"""

import io
import subprocess
import tokenize as python_tokenize
from functools import cached_property
from pathlib import Path

from cpp_scan.outline import build_outline
from cpp_scan.tokens import tokenize

ROOT = Path(__file__).resolve().parent.parent

CPP_SUFFIXES = frozenset((".h", ".hpp", ".c", ".cpp", ".inc", ".cu", ".cuh"))
SCRIPT_SUFFIXES = frozenset((".py", ".sh", ".cmake", ".toml"))
SCRIPT_NAMES = frozenset(("CMakeLists.txt", "Makefile", "run"))
TEXT_SUFFIXES = frozenset((".md", ".txt", ".json", ".in", ".yml", ".yaml"))
_SKIPPED_FOLDERS = frozenset((".git", "build", "models", "install", "__pycache__", ".venv"))


class SourceFile:
    """One text file. `path` is relative to the root, with forward slashes; everything derived is computed on demand."""

    def __init__(self, path, text):
        self.path = path
        self.text = text
        name = path.rsplit("/", 1)[-1]
        self.suffix = "." + name.rsplit(".", 1)[-1] if "." in name else ""
        self.is_cpp = self.suffix in CPP_SUFFIXES
        self.is_python = self.suffix == ".py"
        self.is_code = self.is_cpp or self.suffix in SCRIPT_SUFFIXES or name in SCRIPT_NAMES

    def is_under(self, *folders):
        return any(self.path.startswith(folder + "/") for folder in folders)

    @cached_property
    def lines(self):
        return self.text.splitlines()

    @cached_property
    def tokens(self):
        return tokenize(self.text)

    @cached_property
    def outline(self):
        return build_outline(self.tokens)

    @cached_property
    def comments(self):
        """(first line, text) of every comment, whatever the language of the file."""
        if self.is_cpp:
            return [(t.line, t.text) for t in self.tokens if t.kind == "comment"]
        if self.is_python:
            return list(_python_comments(self.text))
        if self.is_code:
            return [(n, line) for n, line in enumerate(self.lines, 1) if line.lstrip().startswith("#")]
        return []


def _python_comments(text):
    for token in python_tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == python_tokenize.COMMENT:
            yield token.start[0], token.string


def list_paths(root=ROOT):
    """Relative paths of all files of the tree, sorted."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, capture_output=True, check=True).stdout.decode()
        paths = {path for path in listing.split("\0") if path and (root / path).is_file()}
    except (OSError, subprocess.CalledProcessError):
        files = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
        paths = {path.as_posix() for path in files if not _SKIPPED_FOLDERS & set(path.parts)}
    return sorted(paths)


def load_tree(root=ROOT):
    """Every text file of the tree that the rules may look at."""
    sources = []
    for path in list_paths(root):
        suffix, name = Path(path).suffix, Path(path).name
        if suffix in CPP_SUFFIXES | SCRIPT_SUFFIXES | TEXT_SUFFIXES or name in SCRIPT_NAMES:
            sources.append(SourceFile(path, (root / path).read_text(encoding="utf-8")))
    return sources
