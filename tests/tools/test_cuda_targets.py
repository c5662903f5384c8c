"""cmake/TilewiseCuda*.cmake: which GPUs a build compiles for, what is refused, and what is said about a missing nvcc."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KNOWN = "75;80;86;87;88;89;90;100;103;110;120;121"  # what nvcc 13.0 lists
VARIABLES = ("TILEWISE_CUDA_ARCHS", "FLASH_ATTN_CUDA_ARCHS", "TORCH_CUDA_ARCH_LIST")
FAKE_NVCC = """#!/bin/sh
case $1 in
    --version) echo "Cuda compilation tools, release {release}, V{version}" ;;
    --list-gpu-arch) echo compute_75; echo compute_80; echo compute_90 ;;
    --list-gpu-code) echo sm_80; echo sm_90a ;;
    *) echo "nvcc fatal: {failure}" >&2; exit 1 ;;
esac
"""


def run_cmake(script, environment=None):
    """Runs `script` after the modules; what it printed with message()."""
    variables = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    variables.update(environment or {})
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "script.cmake"
        modules = "".join(f'include("{ROOT}/cmake/{name}.cmake")\n' for name in ("TilewiseCudaTargets", "TilewiseCudaCompiler"))
        file.write_text("cmake_policy(VERSION 3.22)\n" + modules + script, encoding="utf-8")
        run = subprocess.run(["cmake", "-P", str(file)], capture_output=True, text=True, env=variables, check=True)
    return run.stderr.strip()


def parse(text, version="13.0.88", known=KNOWN):
    """(SASS, PTX, problem) of a request."""
    printed = run_cmake(f'tilewise_cuda_parse_archs([==[{text}]==] "{known}" {version} sass ptx problem)\n'
                        'message("${sass}|${ptx}|${problem}")\n')
    return tuple(printed.split("|"))


class Requests(unittest.TestCase):
    def test_notations(self):
        for text, sass in {
            "86": "86",
            "8.6": "86",
            "sm_86": "86",
            "86-real": "86",
            "80;86;89": "80;86;89",
            "80,86, 89": "80;86;89",
            "8.0 8.6  8.9": "80;86;89",
            " 9.0 8.0 8.0 ": "80;90",
            "9.0a;90": "90;90a",
            "10.0f 12.0": "100f;120",
            "Ampere Hopper": "80;86;90",
            "Ada": "89",
        }.items():
            with self.subTest(text=text):
                self.assertEqual(parse(text), (sass, "80", ""))

    def test_ptx(self):
        self.assertEqual(parse("8.0 8.6+PTX"), ("80;86", "80;86", ""))
        self.assertEqual(parse("90;100-virtual"), ("90", "80;100", ""))
        self.assertEqual(parse("compute_90"), ("", "80;90", ""))
        self.assertEqual(parse("Hopper+PTX"), ("90", "80;90", ""))

    def test_refusals_name_the_entry_and_what_is_known(self):
        for text, words in {
            "7.5": ("\"7.5\"", "older than Ampere"),
            "80;70": ("\"70\"", "older than Ampere"),
            "8": ("\"8\"", "older than Ampere"),
            "99": ("\"99\"", "unknown to this nvcc"),
            "13.0": ("\"13.0\"", "unknown to this nvcc"),
            "86a": ("\"86a\"", "suffix a"),
            "90f": ("\"90f\"", "family"),
            "Turing": ("\"turing\"", "no architecture"),
            "8.6x": ("\"8.6x\"", "no architecture"),
        }.items():
            with self.subTest(text=text):
                _, _, problem = parse(text)
                for word in (*words, "allowed with nvcc 13.0.88 are 80 86"):
                    self.assertIn(word, problem)

    def test_family_targets_are_new(self):
        self.assertIn("12.9", parse("100f", version="12.8.1")[2])
        self.assertEqual(parse("100f", version="12.9.0"), ("100f", "80", ""))

    def test_default(self):
        script = 'tilewise_cuda_default_archs("{}" {} archs)\nmessage("${{archs}}")\n'
        self.assertEqual(run_cmake(script.format(KNOWN, "13.0")), "80;90;100f;120f")
        self.assertEqual(run_cmake(script.format(KNOWN, "12.8")), "80;90;100;120")
        self.assertEqual(run_cmake(script.format("80;86;90", "12.4")), "80;90")

    def test_sources_in_order(self):
        script = "tilewise_cuda_requested_archs(text origin)\nmessage(\"${text}|${origin}\")\n"
        torch = {"TORCH_CUDA_ARCH_LIST": "8.0 8.6+PTX"}
        flash = torch | {"FLASH_ATTN_CUDA_ARCHS": "80;90"}
        ours = flash | {"TILEWISE_CUDA_ARCHS": "89"}
        self.assertEqual(run_cmake(script), "|")
        self.assertEqual(run_cmake(script, {"TILEWISE_CUDA_ARCHS": " ; "}), "|")
        self.assertEqual(run_cmake(script, torch), "8.0 8.6+PTX|TORCH_CUDA_ARCH_LIST (environment)")
        self.assertEqual(run_cmake(script, flash), "80;90|FLASH_ATTN_CUDA_ARCHS (environment)")
        self.assertEqual(run_cmake(script, ours), "89|TILEWISE_CUDA_ARCHS (environment)")
        self.assertEqual(run_cmake("set(TILEWISE_CUDA_ARCHS 90)\n" + script, ours), "90|TILEWISE_CUDA_ARCHS (CMake variable)")

    def test_flags_share_a_front_end_run(self):
        printed = run_cmake('tilewise_cuda_target_flags("80;90a" "80;86" flags)\nmessage("${flags}")\n')
        self.assertEqual(printed.split(";"), [
            "--generate-code=arch=compute_80,code=[compute_80,sm_80]",
            "--generate-code=arch=compute_90a,code=[sm_90a]",
            "--generate-code=arch=compute_86,code=[compute_86]",
        ])


class Compiler(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def fake(self, version, failure="none"):
        nvcc = self.folder / "nvcc"
        nvcc.write_text(FAKE_NVCC.format(release=version.rsplit(".", 1)[0], version=version, failure=failure))
        nvcc.chmod(0o755)
        return nvcc

    def query(self, nvcc):
        printed = run_cmake(f'tilewise_query_nvcc("{nvcc}" version known problem)\nmessage("${{version}}|${{known}}|${{problem}}")\n')
        return tuple(printed.split("|"))

    def test_version_and_targets(self):
        self.assertEqual(self.query(self.fake("12.4.131")), ("12.4.131", "75;80;90", ""))

    def test_too_old(self):
        _, _, problem = self.query(self.fake("11.8.89"))
        for word in ("11.8.89", "too old", "Install the CUDA toolkit 12.0", "cuda-nvcc-13-0", "CUDACXX"):
            self.assertIn(word, problem)

    def test_not_a_compiler(self):
        self.assertIn("not NVIDIA's compiler", self.query("/bin/false")[2])

    def test_found_by_home(self):
        (self.folder / "bin").mkdir()
        self.fake("13.0.1").rename(self.folder / "bin" / "nvcc")
        cmake = Path(shutil.which("cmake")).parent
        script = 'set(CMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH OFF)\nset(CMAKE_FIND_USE_CMAKE_SYSTEM_PATH OFF)\ntilewise_find_nvcc(nvcc)\nmessage("${nvcc}")\n'
        printed = run_cmake(script, {"PATH": f"{cmake}:/usr/bin:/bin", "CUDA_HOME": str(self.folder), "CUDACXX": ""})
        self.assertEqual(printed, str(self.folder / "bin" / "nvcc"))

    def test_named_by_cudacxx(self):
        nvcc = self.fake("13.0.1")
        self.assertEqual(run_cmake('tilewise_find_nvcc(nvcc)\nmessage("${nvcc}")\n', {"CUDACXX": str(nvcc)}), str(nvcc))

    def test_probe_tells_what_the_compiler_said(self):
        nvcc = self.fake("13.0.1", failure="unsupported GNU version")
        printed = run_cmake(f'tilewise_probe_nvcc("{nvcc}" "--a;--b" "{self.folder}" problem)\nmessage("${{problem}}")\n')
        for word in ("--a --b", "unsupported GNU version", "CUDAHOSTCXX", "Install the CUDA toolkit"):
            self.assertIn(word, printed)


if __name__ == "__main__":
    unittest.main()
