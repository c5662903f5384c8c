#!/usr/bin/env python3
"""Checks the rules of size and shape that CONTRIBUTING.md states: the tree -> one line a violation, exit code 0 or 1.

Each rule is a function that takes a SourceFile and yields (line, what is wrong, what is allowed). A rule would rather
miss an exotic case than report a line that is right: a checker that cries wolf is switched off.
"""

import ast
import re
import sys

from source_tree import load_tree

SOFT_FILE_LINES = 300
HARD_FILE_LINES = 500
FUNCTION_LINES = 60
KERNEL_LINES = 150
MAX_PARAMETERS = 6
MAX_TEMPLATE_PARAMETERS = 4
MAX_FIELDS = 12

LIBRARY_FOLDERS = ("src/math", "src/core", "src/cpu", "src/api", "src/cuda")
ALLOWED_ENVIRONMENT = ("TILEWISE_LOG", "TILEWISE_FORCE_KERNEL", "TILEWISE_NUM_THREADS")

# Writing to the user's streams or ending the user's program is not for a library to do.
OUTPUT_CALLS = frozenset(
    "printf fprintf vprintf vfprintf puts fputs putchar perror abort exit _Exit quick_exit".split()
)
OUTPUT_STREAMS = frozenset(("cout", "cerr", "clog"))

ARCHITECTURE_MACRO = re.compile(
    r"\b(__CUDA_ARCH\w*|__AVX\w*|__SSE\w*|__FMA__|__F16C__|__BMI2?__|__x86_64__|__i386__|__amd64__|__aarch64__"
    r"|__arm\w*__|__ARM_\w+|_M_X64|_M_AMD64|_M_ARM64)\b"
)
UNFINISHED_MARKER = re.compile(r"\b(" + "|".join(("TO" "DO", "FIX" "ME", "XX" "X", "HA" "CK")) + r")\b")
MACHINE_PATH = re.compile(r"(?<![\w.$}:/~-])/(?:home|root|tmp|work|Users)/")

# A line of a comment that only code looks like. Prose and formulas must not match.
CODE_COMMENT = re.compile(
    r"^(?:"
    r"return\b[^.]*;"
    r"|(?:if|for|while|switch)\s*\(.*\)\s*\{"
    r"|(?:[\w:]+(?:\.|->))*[\w:]+\([^()]*(?:\([^()]*\)[^()]*)*\);"
    r"|(?:const |constexpr |static |auto |int |int\d+_t |u?int\d*_t |size_t |float |double |bool |std::)[^.]*=.*;"
    r"|#\s*(?:include\s*[<\"]|ifdef\b|ifndef\b|endif\b|define\s+\w).*"
    r"|\}\s*(?:else\b.*)?\{?;?"
    r")$"
)


def file_size(source):
    if source.is_code and len(source.lines) > HARD_FILE_LINES:
        yield HARD_FILE_LINES, f"{len(source.lines)} lines", f"at most {HARD_FILE_LINES}; split the file"


def header_comment(source):
    """The first thing in a file, after a `#!` line or `#pragma once`, says what the file is for."""
    if not source.is_code or not source.text.strip():
        return
    for line in source.lines:
        text = line.strip()
        if not text or text.startswith(("#!", "#pragma once")):
            continue
        starts = ("//", "/*") if source.is_cpp else ('"""', 'r"""', "#") if source.is_python else ("#",)
        if not text.startswith(starts):
            yield 1, "no header comment", "a comment that says what the file computes, before any code"
        return


def function_length(source):
    if source.is_cpp:
        limit = KERNEL_LINES if source.suffix in (".cu", ".cuh") else FUNCTION_LINES
        spans = [(f.name, f.line, f.end_line) for f in source.outline.functions if f.is_definition and not f.is_nested]
    elif source.is_python:
        limit, spans = FUNCTION_LINES, [(f.name, python_code_line(f), f.end_lineno) for f in python_functions(source)]
    else:
        return
    for name, line, end_line in spans:
        length = end_line - line + 1
        if length > limit:
            yield line, f"{name} has {length} lines", f"at most {limit}"


def function_parameters(source):
    if source.is_cpp:
        counts = [(f.name, f.line, f.parameters) for f in source.outline.functions]
    elif source.is_python and not source.is_under("python/tilewise/drop_ins"):  # those signatures are other libraries'
        counts = [(f.name, f.lineno, python_parameter_count(f)) for f in python_functions(source)]
    else:
        return
    for name, line, count in counts:
        if count > MAX_PARAMETERS:
            yield line, f"{name} takes {count} parameters", f"at most {MAX_PARAMETERS}; pass a struct"


def template_parameters(source):
    if source.is_cpp:
        for line, count in source.outline.templates:
            if count > MAX_TEMPLATE_PARAMETERS:
                yield line, f"{count} template parameters", f"at most {MAX_TEMPLATE_PARAMETERS}; pass a traits type"


def struct_fields(source):
    if source.is_cpp:
        for struct in source.outline.structs:
            if struct.fields > MAX_FIELDS:
                allowed = f"at most {MAX_FIELDS}; group those that belong together"
                yield struct.line, f"{struct.name} has {struct.fields} direct fields", allowed


def inline_assembly(source):
    if source.is_cpp and not source.is_under("src/cuda/ptx"):
        for token in source.tokens:
            if token.kind == "id" and token.text in ("asm", "__asm__", "__asm"):
                yield token.line, f"{token.text} in {source.path}", "inline assembly only under src/cuda/ptx"


def architecture_ifdef(source):
    """`defined(__CUDA_ARCH__)` in src/math asks "host or device?", not "which one?", and is the one exception."""
    if not source.is_cpp or source.is_under("src/cuda/ptx", "src/cpu/simd"):
        return
    for token in source.tokens:
        if token.kind != "directive" or not re.match(r"#\s*(if|ifdef|ifndef|elif)\b", token.text):
            continue
        text = token.text
        if source.is_under("src/math"):
            text = re.sub(r"defined\s*\(\s*__CUDA_ARCH__\s*\)", "", text)
        match = ARCHITECTURE_MACRO.search(text)
        if match:
            allowed = "a choice by architecture only under src/cuda/ptx and src/cpu/simd"
            yield token.line, f"#if on {match.group()}", allowed


def unfinished_marker(source):
    for line, text in source.comments:
        for offset, part in enumerate(text.split("\n")):
            match = UNFINISHED_MARKER.search(part)
            if match:
                yield line + offset, f"{match.group()} in a comment", "finished code; open work belongs in an issue"


def commented_out_code(source):
    """Looks at plain comments after the file header; a comment with an introducing colon shows an example."""
    if not source.is_cpp:
        return
    for block in comment_blocks(source)[1:]:
        if any(text.endswith(":") for _, text in block):
            continue
        for line, text in block:
            if CODE_COMMENT.match(text):
                yield line, f"the comment `{text}` is code", "delete it; the history keeps what it was"
                break


def machine_path(source):
    if source.is_under("tests/tools"):
        return  # the checkers' own test cases
    for number, line in enumerate(source.lines, 1):
        match = MACHINE_PATH.search(line)
        if match:
            yield number, f"a path under {match.group()}", "paths relative to the repository, or $TMPDIR"


def library_output(source):
    if not source.is_cpp or not source.is_under(*LIBRARY_FOLDERS):
        return
    tokens = [t for t in source.tokens if t.kind not in ("comment", "directive")]
    for index, token in enumerate(tokens):
        before = tokens[index - 1].text if index else ""
        after = tokens[index + 1].text if index + 1 < len(tokens) else ""
        owner = tokens[index - 2].text if before == "::" and index > 1 else ""
        is_free_call = after == "(" and before not in (".", "->") and (before != "::" or owner in ("std", "fmt", ""))
        if token.kind == "id" and (
            (token.text in OUTPUT_CALLS and is_free_call)
            or (token.text in OUTPUT_STREAMS and owner == "std")
            or (token.text in ("print", "println") and owner in ("std", "fmt"))
        ):
            yield token.line, f"{token.text} in the library", "a Status; the library never prints, aborts or exits"


def environment_read(source):
    """Tests and benchmarks may look at what others read: the test runner's folders, the settings of a peer."""
    if not source.is_cpp or source.is_under("tests", "bench"):
        return
    tokens = [t for t in source.tokens if t.kind not in ("comment", "directive")]
    for index, token in enumerate(tokens):
        if token.kind == "id" and token.text in ("getenv", "secure_getenv"):
            argument = tokens[index + 2].text.strip('"') if index + 2 < len(tokens) else ""
            if argument not in ALLOWED_ENVIRONMENT:
                yield token.line, f"{token.text}({argument})", "only " + ", ".join(ALLOWED_ENVIRONMENT)


def skipped_test(source):
    """Tests on a GPU may skip where there is none: they are in a folder of their own, and a skipped case counts as nothing."""
    if not source.is_cpp:
        return
    for token in source.tokens:
        is_skip = token.text == "GTEST_SKIP" and not source.path.startswith("tests/device/")
        if token.kind == "id" and (is_skip or re.match(r"DISABLED_\w", token.text)):
            yield token.line, f"{token.text}", "a test that runs everywhere, or none (tests/device may skip without a GPU)"


RULES = (
    file_size,
    header_comment,
    function_length,
    function_parameters,
    template_parameters,
    struct_fields,
    inline_assembly,
    architecture_ifdef,
    unfinished_marker,
    commented_out_code,
    machine_path,
    library_output,
    environment_read,
    skipped_test,
)


def python_functions(source):
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [node for node in ast.walk(ast.parse(source.text)) if isinstance(node, kinds)]


def python_code_line(function):
    """Where a function's code begins: a docstring may say all that a user must know."""
    if ast.get_docstring(function) is None or len(function.body) == 1:
        return function.lineno
    return function.body[1].lineno


def python_parameter_count(function):
    """Without those that a call must name: they read like the fields of a struct."""
    arguments = function.args
    names = [a.arg for a in arguments.posonlyargs + arguments.args]
    return len([name for name in names if name not in ("self", "cls")])


def comment_blocks(source):
    """Runs of neighbouring `//` lines, and block comments, each as [(line, text)]. Doc comments are left out."""
    blocks, last_line = [], None
    for line, text in source.comments:
        if text.startswith("//"):
            content = text[2:].strip() if not text.startswith(("///", "//!")) else ""
            if last_line is not None and line == last_line + 1:
                blocks[-1].append((line, content))
            else:
                blocks.append([(line, content)])
            last_line = line
        else:
            parts = [] if text.startswith(("/**", "/*!")) else text[2:].removesuffix("*/").split("\n")
            blocks.append([(line + i, part.strip().removeprefix("*").strip()) for i, part in enumerate(parts)])
            last_line = None
    return blocks


def check(sources):
    """{rule name: [message]} for every rule, also those that found nothing."""
    found = {}
    for rule in RULES:
        name = rule.__name__
        found[name] = [
            f"{source.path}:{line}: {name}: {what}; {allowed}"
            for source in sources
            for line, what, allowed in rule(source)
        ]
    return found


def main():
    sources = load_tree()
    long_files = [s for s in sources if s.is_code and SOFT_FILE_LINES < len(s.lines) <= HARD_FILE_LINES]
    for source in long_files:
        print(f"note: {source.path} has {len(source.lines)} lines; over {SOFT_FILE_LINES}, consider a split")
    messages = [message for found in check(sources).values() for message in found]
    for message in messages:
        print(message)
    print(f"check_rules: {len(RULES)} rules, {len(sources)} files, {len(messages)} violations")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
