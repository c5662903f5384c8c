#!/usr/bin/env python3
"""An installed Tilewise is found and used: build tree -> install, move the prefix, build tests/api/consumer against it, run.

The prefix is moved because packagers do that: a path of the build or install machine left in the package shows here.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path


def run(*command, **options):
    print("+", " ".join(str(word) for word in command), flush=True)
    subprocess.run([str(word) for word in command], check=True, **options)


def find_foreign_paths(prefix, paths):
    """Lines of the package's CMake files that name one of `paths`."""
    for file in prefix.rglob("*.cmake"):
        for number, line in enumerate(file.read_text().splitlines(), 1):
            for path in paths:
                if str(path) in line:
                    yield f"{file.name}:{number}: names {path}: {line.strip()}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build-dir", type=Path, required=True)
    parser.add_argument("--source-dir", type=Path, required=True, help="of the consumer")
    parser.add_argument("--generator", required=True)
    parser.add_argument("--cmake", default="cmake")
    parser.add_argument("--define", action="append", default=[], help="NAME=VALUE for the consumer's configuration")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        installed, prefix, build = (Path(folder) / name for name in ("installed", "moved", "build"))
        run(arguments.cmake, "--install", arguments.build_dir, "--prefix", installed)
        os.rename(installed, prefix)
        foreign = list(find_foreign_paths(prefix, [installed, arguments.build_dir, arguments.source_dir.parents[2]]))
        if foreign:
            print(*foreign, sep="\n")
            return 1
        defines = [f"-D{text}" for text in (f"CMAKE_PREFIX_PATH={prefix}", *arguments.define)]
        run(arguments.cmake, "-S", arguments.source_dir, "-B", build, "-G", arguments.generator, *defines)
        run(arguments.cmake, "--build", build)
        for name in ("consumer_cpp", "consumer_c"):
            run(build / name)
    print("the installed package was found, built against and run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
