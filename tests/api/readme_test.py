#!/usr/bin/env python3
"""The C++ example of the README is the one that is compiled: its first ```cpp block = the marked lines of examples/cpp/attention.cpp."""

import argparse
import difflib
import re
import sys
from pathlib import Path


def main():
    parser = argparse.ArgumentParser(description="Compares the README's example with the compiled one.")
    parser.add_argument("--root", type=Path, required=True)
    root = parser.parse_args().root

    readme = re.search(r"^```cpp\n(.*?)^```$", (root / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    example = re.search(r"^// \[readme\]\n(.*?)^// \[/readme\]$", (root / "examples/cpp/attention.cpp").read_text(), re.MULTILINE | re.DOTALL)
    if readme is None or example is None:
        print("README.md needs a ```cpp block, and examples/cpp/attention.cpp lines between // [readme] and // [/readme]")
        return 1
    difference = list(difflib.unified_diff(readme.group(1).splitlines(), example.group(1).splitlines(), "README.md",
                                           "examples/cpp/attention.cpp", lineterm=""))
    print(*(difference or ["the README shows the compiled example"]), sep="\n")
    return 1 if difference else 0


if __name__ == "__main__":
    sys.exit(main())
