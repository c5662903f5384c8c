"""tools/kernel_report.py and tools/record_compile.py: from what ptxas and the launcher print to the table and the budget."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import support  # noqa: F401  makes tools/ importable
import kernel_report
from kernel_report import Build, Usage, check, parse_log, shorten, summary, table

RECORDER = Path(kernel_report.__file__).with_name("record_compile.py")

CLEAN = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN8tilewise4cuda4sm805row_aENS0_6ParamsE' for 'sm_80'
ptxas info    : Function properties for _ZN8tilewise4cuda4sm805row_aENS0_6ParamsE
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 1024 bytes smem, 664 bytes cmem[0]
ptxas info    : Compile time = 2.331 ms
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN8tilewise4cuda4sm805row_aENS0_6ParamsE' for 'sm_90a'
ptxas info    : Function properties for _ZN8tilewise4cuda4sm805row_aENS0_6ParamsE
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 170 registers, used 1 barriers
tilewise-compile: wall_seconds=9.10 cpu_seconds=12.50 peak_kb=400000
"""
SPILLS = """ptxas info    : Compiling entry function 'row_b' for 'sm_80'
ptxas info    : Function properties for row_b
    64 bytes stack frame, 60 bytes spill stores, 56 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 664 bytes cmem[0]
tilewise-compile: wall_seconds=70.00 cpu_seconds=61.00 peak_kb=1600000
"""
CALLS = """ptxas info    : Compiling entry function 'row_c' for 'sm_80'
ptxas info    : Function properties for helper
    32 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Function properties for row_c
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 0 barriers
"""
ROW_A = "_ZN8tilewise4cuda4sm805row_aENS0_6ParamsE"


def build_of(*units, sass=("80",), missing=(), library_bytes=2_000_000):
    return Build("13.0.88", list(sass), list(units), list(missing), library_bytes)


def listed(*names, seconds="0.0"):
    return "".join(f"| `{name}` | 1 | 0 | 0 | {seconds} | 200 |\n" for name in names)


class Logs(unittest.TestCase):
    def test_registers_and_shared_memory_per_target(self):
        unit = parse_log("a", CLEAN)
        self.assertEqual(unit.kernels, {ROW_A: {"80": Usage(168, 0, 0, 1024), "90a": Usage(170, 0, 0, 0)}})
        self.assertEqual((unit.seconds, unit.peak_bytes), (12.5, 400_000 * 1024))

    def test_spills(self):
        self.assertEqual(parse_log("b", SPILLS).kernels, {"row_b": {"80": Usage(255, 64, 116, 0)}})

    def test_the_frame_of_a_called_function_counts(self):
        unit = parse_log("c", CALLS)
        self.assertEqual(unit.kernels, {"row_c": {"80": Usage(40, 32, 0, 0)}})
        self.assertIsNone(unit.seconds)

    def test_names(self):
        self.assertEqual(shorten("tilewise::cuda::sm80::row_a(tilewise::cuda::Params)"), "row_a")
        self.assertEqual(shorten("void tilewise::cuda::append<tilewise::BF16, 4>(tilewise::P)"), "append<BF16, 4>")
        self.assertEqual(shorten("tilewise::(anonymous namespace)::fill(int)"), "fill")


class Budget(unittest.TestCase):
    def failing(self, build, text, allowed=(), most=48):
        return {name: messages for name, messages in check(build, text, dict.fromkeys(allowed, most)).items() if messages}

    def test_a_good_build_passes(self):
        self.assertEqual(self.failing(build_of(parse_log("a", CLEAN)), listed(ROW_A)), {})

    def test_local_memory_fails_unless_allowed(self):
        unit = parse_log("b", SPILLS.replace("61.00", "10.00").replace("1600000", "1000"))
        failing = self.failing(build_of(unit), listed("row_b"))
        self.assertEqual(list(failing), ["local_memory"])
        for word in ("row_b on sm_80", "255 registers", "64 bytes of stack", "116 bytes of spills"):
            self.assertIn(word, failing["local_memory"][0])
        self.assertEqual(list(self.failing(build_of(unit), listed("row_b"), ["row_.*"])), ["local_memory"])
        self.assertEqual(self.failing(build_of(unit), listed("row_b"), ["row_.*"], most=64), {})

    def test_a_slow_and_a_large_unit_fail(self):
        messages = self.failing(build_of(parse_log("b", SPILLS)), listed("row_b"), ["row_b"])["unit_budget"]
        self.assertEqual(messages, ["b: compiled in 61 s; at most 60", "b: compiled in 1.64 GB; at most 1.5"])

    def test_what_was_not_measured_fails(self):
        messages = self.failing(build_of(parse_log("c", CALLS)), listed("row_c"), ["row_c"])["unit_budget"]
        self.assertIn("not measured", messages[0])

    def test_family_counts_two_cores_and_each_architecture(self):
        units = [parse_log(f"a{n}", CLEAN.replace("12.50", "50.00")) for n in range(13)]
        self.assertIn("325 s", self.failing(build_of(*units), listed(ROW_A))["family_budget"][0])
        self.assertNotIn("family_budget", self.failing(build_of(*units, sass=("80", "90a")), listed(ROW_A)))

    def test_families_are_counted_apart(self):
        units = [parse_log(f"{family}_{n}", CLEAN.replace("12.50", "50.00")) for family in ("sm80", "f32") for n in range(12)]
        self.assertNotIn("family_budget", self.failing(build_of(*units), listed(ROW_A)))
        units.append(parse_log("sm80_slow", CLEAN.replace("12.50", "50.00")))
        self.assertIn("sm80_: 325 s", self.failing(build_of(*units), listed(ROW_A))["family_budget"][0])

    def test_a_slow_machine_may_take_longer(self):
        """By as much as the units in the middle take longer than the table says, and twice at most."""
        units = [parse_log(f"a{n}", CLEAN.replace("12.50", "60.00")) for n in range(13)]
        for seconds, is_over in (("60.0", True), ("40.0", False), ("100.0", True), ("1.0", False)):
            table = listed(ROW_A, seconds=seconds)
            self.assertEqual("family_budget" in self.failing(build_of(*units), table), is_over, seconds)
        units += [parse_log(f"b{n}", CLEAN.replace("12.50", "60.00")) for n in range(13)]
        self.assertIn("times 2.00", self.failing(build_of(*units), listed(ROW_A, seconds="1.0"))["family_budget"][0])

    def test_a_family_of_one_architecture_has_a_budget_of_its_own(self):
        units = [parse_log(f"sm90_fwd_{n}", CLEAN.replace("12.50", "50.00")) for n in range(13)]
        self.assertNotIn("family_budget", self.failing(build_of(*units), listed(ROW_A)))
        units.append(parse_log("sm90_fwd_slow", CLEAN.replace("12.50", "100.00")))
        messages = self.failing(build_of(*units, sass=("80", "90a")), listed(ROW_A))["family_budget"]
        self.assertIn("sm90_fwd_: 375 s", messages[0])

    def test_products_that_ptxas_serialised_fail(self):
        warning = ("ptxas info    : (C7512) Potential Performance Loss: wgmma.mma_async instructions are serialized due to "
                   "insufficient register resources for the function 'row_a'\n")
        messages = self.failing(build_of(parse_log("a", warning + CLEAN)), listed(ROW_A))["no_serialised_products"]
        self.assertIn("a: (C7512)", messages[0])

    def test_library_and_objects(self):
        unit = parse_log("a", CLEAN)
        self.assertIn("41.0 MB", self.failing(build_of(unit, library_bytes=41_000_000), listed(ROW_A))["library_size"][0])
        self.assertIn("library_size", self.failing(build_of(unit, library_bytes=None), listed(ROW_A)))
        self.assertIn("b.cu.o", self.failing(build_of(unit, missing=["b.cu.o"]), listed(ROW_A))["compiled"][0])

    def test_the_table_lists_the_kernels(self):
        build = build_of(parse_log("a", CLEAN))
        messages = self.failing(build, listed("row_gone"))["table"]
        self.assertEqual(len(messages), 2)
        self.assertEqual(self.failing(build, table(build)), {})

    def test_table_and_summary(self):
        build = build_of(parse_log("a", CLEAN), sass=("80", "90a"))
        self.assertIn(f"| `{ROW_A}` | 168 / 170 | 0 | 1024 / 0 | 12.5 | 410 |", table(build))
        self.assertEqual(summary(build), "CUDA build: 1 kernels, 12 seconds of compiling for sm_80, sm_90a, slowest unit a "
                                         "(12.5 s), largest 0.41 GB, library 2.0 MB")

    def test_a_build_tree(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            self.assertIsNone(kernel_report.load_build(folder))
            (folder / "a.cu.o").write_text("object")
            (folder / "a.cu.o.log").write_text(CLEAN)
            objects = f"{folder}/host.cpp.o;{folder}/a.cu.o;{folder}/b.cu.o"
            facts = {"nvcc": "13.0", "sass": "80;90a", "ptx": "80", "library": f"{folder}/none.so", "objects": objects}
            (folder / "cuda_build.json").write_text(json.dumps(facts))
            build = kernel_report.load_build(folder)
            self.assertEqual([unit.name for unit in build.units], ["a"])
            self.assertEqual((build.missing, build.library_bytes, build.sass), (["b.cu.o"], None, ["80", "90a"]))


class Recorder(unittest.TestCase):
    """The launcher around a stand-in for nvcc."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.compiler = self.folder / "nvcc"
        self.write_compiler("exit 0")

    def write_compiler(self, end):
        self.compiler.write_text(f"""#!/bin/sh
echo "a.cu(3): warning: unused" >&2
echo "ptxas info    : Used 8 registers" >&2
echo "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" >&2
while [ "$1" != -o ]; do shift; done
echo object >"$2"
{end}
""")
        self.compiler.chmod(0o755)

    def launch(self, *launcher):
        command = [sys.executable, str(RECORDER), *launcher, str(self.compiler), "-c", "a.cu", "-o", "a.cu.o"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CCACHE_")}
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)

    def test_log_and_screen(self):
        run = self.launch()
        self.assertEqual((run.returncode, run.stderr), (0, "a.cu(3): warning: unused\n"))
        log = (self.folder / "a.cu.o.log").read_text()
        self.assertRegex(log, r"ptxas info    : Used 8 registers\n    0 bytes stack frame.*\ntilewise-compile: wall_seconds=")

    def test_a_failure_stays_one_and_leaves_no_log(self):
        self.write_compiler("exit 3")
        self.assertEqual(self.launch().returncode, 3)
        self.assertFalse((self.folder / "a.cu.o.log").exists())

    def test_below_ccache_the_compiler_is_measured(self):
        ccache = self.folder / "ccache"
        ccache.write_text('#!/bin/sh\n[ "$CCACHE_DEPEND" = 1 ] || exit 9\nexec $CCACHE_PREFIX "$@"\n')
        ccache.chmod(0o755)
        run = self.launch(str(ccache))
        self.assertEqual((run.returncode, run.stderr), (0, "a.cu(3): warning: unused\n"))
        self.assertEqual((self.folder / "a.cu.o.log").read_text().count("tilewise-compile:"), 1)


if __name__ == "__main__":
    unittest.main()
