#!/usr/bin/env python3
"""Makes a folder that runs on another Linux machine with an NVIDIA driver: a build tree -> .stage/gpu/.

It holds the library, the command line program, the test and bench programs, and the libraries that they need beyond
glibc and the driver. `run-tests`, `run-sanitizers` and `run-bench` in it need bash and coreutils, and no source tree.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from source_tree import ROOT

LIMIT_BYTES = 64 * 2**20

# glibc comes with the machine, and libcuda with the driver: copies of these would not fit what runs there.
SYSTEM_LIBRARY = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|cuda)|linux-vdso)\.so(\.\d+)*$")

# Tests whose program reads files of the source or build tree, by absolute paths.
TIED_TO_THE_TREE = frozenset(("plan_golden_test", "cli_doctor_test"))
# cpu_bench needs an OpenBLAS of tens of megabytes, and measures nothing of a GPU.
NOT_STAGED_BENCHES = frozenset(("cpu_bench",))


def output_of(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def is_elf(path):
    if not path.is_file() or path.is_symlink():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def has_kernels(path):
    """Whether the program holds a copy of the kernels, as those that link the internal archive may."""
    return ".nv_fatbin" in output_of("readelf", "-S", "-W", path)


def properties_of(test):
    return {entry["name"]: entry["value"] for entry in test.get("properties", [])}


def staged_tests(build_dir):
    """[(test, program, arguments, properties)] of the tests that can run away from the tree."""
    listing = json.loads(output_of("ctest", "--test-dir", build_dir, "--show-only=json-v1"))
    tests = []
    for test in listing["tests"]:
        properties = properties_of(test)
        labels = properties.get("LABELS", [])
        command = test.get("command", [])
        if not command or "model" in labels or test["name"] in TIED_TO_THE_TREE:
            continue
        program, arguments = Path(command[0]), command[1:]
        in_build = program.resolve().is_relative_to(build_dir.resolve())
        if not in_build or not is_elf(program) or any(word.startswith("/") for word in arguments):
            continue
        if has_kernels(program) and "device" not in labels:
            continue
        tests.append((test["name"], program, arguments, properties))
    return tests


def needed_libraries(programs):
    """Paths of the libraries that `programs` load, without those of the system."""
    found = {}
    for program in programs:
        for name, path in re.findall(r"^\s*(\S+) => (/\S+)", output_of("ldd", program), re.MULTILINE):
            if not SYSTEM_LIBRARY.match(name):
                found[name] = Path(path)
    return found


def copy_stripped(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755)
    subprocess.run(["strip", "--strip-unneeded", str(target)], check=True)


def write_test_list(tests, path):
    """A line a test: name, seconds, whether it only repeats the CPU's sweeps, environment, program with arguments."""
    lines = []
    for name, program, arguments, properties in tests:
        labels = properties.get("LABELS", [])
        cpu_only = int("conformance" in labels and "device" not in labels)
        fields = [name, f"{properties.get('TIMEOUT', 600):.0f}", str(cpu_only),
                  " ".join(properties.get("ENVIRONMENT", [])) or "LC_ALL=C",  # read(1) would join empty fields
                  " ".join([f"bin/{program.name}", *arguments])]
        lines.append("\t".join(fields) + "\n")
    path.write_text("".join(lines), encoding="utf-8")


def stage(build_dir, folder):
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "lib").mkdir(parents=True)
    tests = staged_tests(build_dir)
    binaries = build_dir / "bin"
    benches = [path for path in binaries.glob("*_bench") if is_elf(path) and path.name not in NOT_STAGED_BENCHES]
    others = [binaries / name for name in ("tilewise", "generate") if is_elf(binaries / name)]
    programs = {*others, *benches, *(program for _, program, _, _ in tests)}
    for program in programs:
        copy_stripped(program, folder / "bin" / program.name)
    for name, path in needed_libraries(programs).items():
        copy_stripped(path.resolve(), folder / "lib" / name)
    shutil.copytree(ROOT / "bench" / "grids", folder / "grids")
    write_test_list(tests, folder / "tests.tsv")
    for script in ("run-tests", "run-sanitizers", "run-bench"):
        source = ROOT / "tools" / "stage" / f"{script.replace('-', '_')}.sh"
        shutil.copyfile(source, folder / script)
        (folder / script).chmod(0o755)
    return len(tests), len(benches)


def main():
    parser = argparse.ArgumentParser(description="Stages programs for a machine with a GPU.")
    parser.add_argument("--build-dir", type=Path, required=True)
    parser.add_argument("--folder", type=Path, default=ROOT / ".stage" / "gpu")
    options = parser.parse_args()
    description = options.build_dir / "cuda_build.json"
    if not description.is_file():
        print(f"{options.build_dir} has no CUDA backend: the line \"CUDA backend\" of its configuration says why")
        return 1
    num_tests, num_benches = stage(options.build_dir, options.folder)
    files = sorted((path.stat().st_size, path) for path in options.folder.rglob("*") if path.is_file())
    size = sum(bytes_ for bytes_, _ in files)
    facts = json.loads(description.read_text(encoding="utf-8"))
    print(f"{options.folder}: {num_tests} tests, {num_benches} bench programs, {size / 2**20:.1f} MiB, machine code for "
          f"{facts['sass'].replace(';', ' ')}, PTX for {facts['ptx'].replace(';', ' ')}")
    if size > LIMIT_BYTES:
        print(f"the folder may have {LIMIT_BYTES // 2**20} MiB; the largest files:")
        for bytes_, path in files[-8:]:
            print(f"  {bytes_ / 2**20:6.1f} MiB  {path.relative_to(options.folder)}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
