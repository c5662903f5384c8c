#!/usr/bin/env python3
"""Checks who includes whom: the tree -> one line a forbidden #include, exit code 0 or 1.

The tables below are the architecture. A layer is a set of paths; a file belongs to the first layer whose pattern it
matches, and may include its own layer and those that its row names. Generated headers have no file here, so an include
is judged by its path as written, and resolved against the includer's folder only where such a file exists.
"""

import posixpath
import re
import sys

from source_tree import load_tree

KERNEL_PIECES = ("attend", "tile", "ptx", "math", "params")

# layer, pattern of its files, layers it may include (itself apart)
LAYERS = (
    ("public", r"include/tilewise/", ()),
    ("math", r"src/math/", ()),
    ("core", r"src/core/", ("math",)),
    ("cpu", r"src/cpu/", ("core", "math")),
    ("params", r"src/cuda/common/params\.hpp$", ("math",)),
    ("cuda_common", r"src/cuda/common/", ("core", "math", "params")),
    ("ptx", r"src/cuda/ptx/", ()),
    ("tile", r"src/cuda/tile/", ("math", "ptx")),
    ("attend", r"src/cuda/attend/", ("tile", "ptx", "math", "params")),
    ("cuda_shared", r"src/cuda/shared/", KERNEL_PIECES + ("core", "cuda_common")),
    ("sm80_traits", r"src/cuda/sm80/(\w*traits\.hpp|\w+_params\.hpp|\w*kernels\.inc)$", ("math", "params")),
    ("sm90_traits", r"src/cuda/sm90/(\w*traits\.hpp|\w+_params\.hpp|\w*kernels\.inc)$", ("math", "params")),
    ("sm80_backend", r"src/cuda/sm80/(\w*backend\.[ch]pp|\w+_plan\.hpp)$",
     ("core", "cuda_common", "cuda_shared", "math", "params", "sm80_traits")),
    ("sm90_backend", r"src/cuda/sm90/(\w*backend\.[ch]pp|\w+_plan\.hpp)$",
     ("core", "cuda_common", "cuda_shared", "math", "params", "sm90_traits")),
    ("sm80", r"src/cuda/sm80/", KERNEL_PIECES + ("sm80_traits",)),
    ("sm90", r"src/cuda/sm90/", KERNEL_PIECES + ("sm90_traits",)),
    ("api", r"src/api/", ("core", "public")),
    ("conformance", r"src/conformance/", ("public",)),
    ("cli", r"src/cli/", ("public", "conformance")),
    ("python", r"python/", ("public",)),
    ("examples", r"examples/", ("public",)),
    ("bench", r"bench/", ("public",)),
)

# A library of others, and the layers that may see it. Tests may see all of them.
LIBRARIES = (
    ("GoogleTest", r"(gtest|gmock)/", ()),
    ("Google Benchmark", r"benchmark/", ("bench",)),
    ("OpenBLAS", r"(openblas/.*|x86_64-linux-gnu/.*)?(cblas|lapacke|openblas\w*)\.h$", ("bench",)),
    ("CLI11", r"CLI/", ("cli", "bench", "examples")),
    ("nlohmann-json", r"nlohmann/", ("core", "conformance", "cli", "bench")),
    ("toml++", r"toml\+\+/", ("cli", "bench")),
    ("fmt", r"fmt/", ("core", "cpu", "cuda_common", "cuda_shared", "sm80_backend", "sm90_backend", "api", "conformance", "cli",
                      "bench")),
    ("Python and torch", r"(Python\.h$|torch/|ATen/|c10/|pybind11/|nanobind/)", ("python",)),
    (
        "CUDA",
        r"(cuda|cuda_\w+|cooperative_groups|nv\w+|curand\w*|mma)(\.h|\.hpp)?$|(cuda|cub|thrust|cooperative_groups)/",
        ("params", "cuda_common", "ptx", "tile", "attend", "cuda_shared", "sm80_traits", "sm90_traits", "sm80_backend",
         "sm90_backend", "sm80", "sm90", "bench"),
    ),
)

# math is compiled by run-time compilers too; beyond this list they lack the header, or it means something else there.
MATH_HEADERS = frozenset(("cmath", "cstddef", "cstdint", "limits", "type_traits"))

INCLUDE = re.compile(r'#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
# Where a path in an include may start; includes of our own files name the folder below one of these.
INCLUDE_ROOTS = ("src/", "include/", "")


def layer_of(path):
    return next((name for name, pattern, _ in LAYERS if re.match(pattern, path)), None)


def includes_of(source):
    """(line, path as written, whether it is in quotes) of every #include that names its file."""
    for token in source.tokens:
        if token.kind == "directive":
            match = INCLUDE.match(token.text)
            if match:
                yield token.line, match.group(1) or match.group(2), match.group(1) is not None


def target_layer(source, written, is_quoted, known_paths):
    """The layer that an include reaches, or None for a file that is not ours."""
    if is_quoted or ".." in written:
        beside = posixpath.normpath(posixpath.join(posixpath.dirname(source.path), written))
        if beside in known_paths:
            return layer_of(beside)
    return next((layer for root in INCLUDE_ROOTS if (layer := layer_of(root + written)) is not None), None)


def forbidden_layer(source, known_paths):
    """Includes of our own files that the table of layers does not allow."""
    layer = layer_of(source.path)
    if layer is None:
        return
    allowed = (layer,) + next(row[2] for row in LAYERS if row[0] == layer)
    for line, written, is_quoted in includes_of(source):
        target = target_layer(source, written, is_quoted, known_paths)
        if target is not None and target not in allowed:
            yield line, f"{layer} includes {target} ({written})", "itself" + "".join(f", {x}" for x in allowed[1:])


def forbidden_library(source, known_paths):
    """Includes of others' libraries in layers that must not depend on them."""
    layer = layer_of(source.path)
    if layer is None:
        return
    for line, written, is_quoted in includes_of(source):
        if target_layer(source, written, is_quoted, known_paths) is not None:
            continue
        for name, pattern, layers in LIBRARIES:
            if re.match(pattern, written) and layer not in layers:
                where = "tests" + "".join(f", {x}" for x in layers)
                yield line, f"{layer} includes {name} ({written})", f"that library only in {where}"


def forbidden_math_header(source, known_paths):
    """Standard headers in src/math that a run-time compiler lacks."""
    if layer_of(source.path) != "math":
        return
    for line, written, is_quoted in includes_of(source):
        if not is_quoted and written not in MATH_HEADERS:
            yield line, f"math includes <{written}>", ", ".join(f"<{x}>" for x in sorted(MATH_HEADERS))


RULES = (forbidden_layer, forbidden_library, forbidden_math_header)


def check(sources):
    """{rule name: [message]} for every rule, also those that found nothing."""
    known_paths = {source.path for source in sources}
    found = {}
    for rule in RULES:
        name = rule.__name__
        found[name] = [
            f"{source.path}:{line}: {name}: {what}; allowed: {allowed}"
            for source in sources
            if source.is_cpp
            for line, what, allowed in rule(source, known_paths)
        ]
    return found


def main():
    sources = load_tree()
    messages = [message for found in check(sources).values() for message in found]
    for message in messages:
        print(message)
    files = sum(source.is_cpp for source in sources)
    print(f"check_includes: {len(RULES)} rules, {files} files, {len(messages)} violations")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
