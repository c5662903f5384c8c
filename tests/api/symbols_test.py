#!/usr/bin/env python3
"""What the shared library shows and needs: libtilewise.so -> exit code 0 if it exports the functions of the C header and nothing else, and
links the C++ and C runtimes and nothing else.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ALLOWED_LIBRARIES = re.compile(r"(libstdc\+\+|libm|libgcc_s|libc|libpthread|libdl|ld-linux[-\w]*)\.so(\.\d+)*$")


def output_of(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def main():
    parser = argparse.ArgumentParser(description="Checks the symbols and needed libraries of libtilewise.so.")
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--header", type=Path, required=True, help="tilewise.h")
    parser.add_argument("--any-libraries", action="store_true", help="a sanitizer adds its own")
    arguments = parser.parse_args()

    exported = {line.split()[-1].split("@")[0] for line in output_of("nm", "-D", "--defined-only", arguments.library).splitlines()}
    declared = set(re.findall(r"^TILEWISE_API .*?\b(tilewise_\w+)\(", arguments.header.read_text(), re.MULTILINE))
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", output_of("readelf", "-d", arguments.library))

    faults = [f"{name}: exported, but not in {arguments.header.name}" for name in sorted(exported - declared)]
    faults += [f"{name}: in {arguments.header.name}, but not exported" for name in sorted(declared - exported)]
    if not arguments.any_libraries:
        faults += [f"{name}: needed, but only the C and C++ runtimes are allowed" for name in needed if not ALLOWED_LIBRARIES.match(name)]
    if not declared:
        faults.append(f"{arguments.header}: declares no function")
    print(*(faults or [f"{len(exported)} functions exported, {len(needed)} libraries needed"]), sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
