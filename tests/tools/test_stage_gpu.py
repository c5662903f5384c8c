"""tools/stage_gpu.py and the scripts that it puts into a staged folder, with stand-ins for the programs."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import support  # noqa: F401  makes tools/ importable
import stage_gpu

SCRIPTS = Path(stage_gpu.__file__).with_name("stage")
GTEST = """[==========] Running 3 tests from 1 test suite.
[       OK ] A.x (0 ms)
[       OK ] A.y (0 ms)
[{verdict}] A.z (0 ms)
[==========] 3 tests from 1 test suite ran. (0 ms total)
[{verdict}] 1 test, listed below:
"""
SILENT = """[==========] Running 1 test from 1 test suite.
[       OK ] A.x (0 ms)
[==========] 1 test from 1 test suite ran. (0 ms total)
"""
VERIFY = """kernel    passed  failed  refused  error / allowed  largest in
kernel_a      10       0        2            0.500  case
kernel_b       7       {failed}        0            0.700  case
"""


class StagedFolder(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "bin").mkdir()
        for script in ("tests", "sanitizers", "bench"):
            shutil.copy(SCRIPTS / f"run_{script}.sh", self.folder / f"run-{script}")
        self.lines = []
        self.program("tilewise", f'[ "$1" = verify ] && cat <<X\n{VERIFY.format(failed=0)}X\n[ "$1" != doctor ]')

    def program(self, name, script):
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def add(self, name, script, limit=60, cpu_only=0, environment="LC_ALL=C"):
        self.program(name, script)
        self.lines.append(f"{name}\t{limit}\t{cpu_only}\t{environment}\tbin/{name} argument\n")

    def run_script(self, script, *options):
        (self.folder / "tests.tsv").write_text("".join(self.lines))
        run = subprocess.run([str(self.folder / script), *options], capture_output=True, text=True, check=False)
        return run.returncode, run.stdout

    def last(self, *options):
        code, output = self.run_script("run-tests", *options)
        return code, output.splitlines()[-1], output

    def test_counts_verify_programs_and_scripts(self):
        self.add("gtest", f"cat <<X\n{GTEST.format(verdict='  SKIPPED ')}X")
        self.add("plain", '[ "$1" = argument ] && [ "$A" = 3 ]', environment="A=3 B=4")
        self.add("sweep", "exit 1", cpu_only=1)
        code, last, output = self.last()
        self.assertEqual((code, last), (0, "20 passed, 0 failed"))
        self.assertIn("verify: 17 passed, 0 failed", output)
        self.assertIn("gtest: 2 passed, 0 failed, 1 skipped", output)
        self.assertIn("\n1 skipped\n", output)

    def test_all_and_filter(self):
        self.add("sweep", "exit 0", cpu_only=1)
        self.add("other", "exit 0")
        self.assertEqual(self.last("--all", "--jobs", "3")[:2], (0, "19 passed, 0 failed"))
        self.assertEqual(self.last("--filter", "^oth")[:2], (0, "1 passed, 0 failed"))
        self.assertEqual(self.last("--filter", "nothing")[:2], (1, "0 passed, 1 failed"))
        self.assertEqual(self.run_script("run-tests", "--unknown")[0], 2)

    def test_jobs_share_out_the_kernels(self):
        self.program("tilewise", """case $1 in
info) for k in a b c; do printf '"name": "kernel_%s",\n"device": "cuda",\n' $k; done; printf '"name": "x",\n"device": "cpu",\n';;
verify) echo "$*" >>calls; echo "$5" | tr ',' '\n' | while read -r k; do echo "${k#=} 10 1 0"; done; exit 1;;
esac""")
        code, last, output = self.last("--jobs", "2")
        self.assertEqual((code, last), (1, "30 passed, 3 failed"))
        self.assertIn("verify0: 20 passed, 2 failed", output)
        calls = sorted((self.folder / "calls").read_text().splitlines())
        self.assertEqual(calls, ["verify --device cuda:0 --kernel =kernel_a,=kernel_c", "verify --device cuda:0 --kernel =kernel_b"])

    def test_failures_are_counted_and_shown(self):
        self.add("gtest", f"cat <<X\n{GTEST.format(verdict='  FAILED  ')}X\nexit 1")
        self.add("crash", "echo about to crash; kill -SEGV $$")
        self.add("silent", f"cat <<X\n{SILENT}X\nexit 1")
        code, last, output = self.last()
        self.assertEqual((code, last), (1, "20 passed, 3 failed"))
        self.assertIn("about to crash", output)

    def test_verify_fails(self):
        self.program("tilewise", f'[ "$1" = verify ] && cat <<X\n{VERIFY.format(failed=4)}X\nexit 1')
        self.assertEqual(self.last()[:2], (1, "17 passed, 4 failed"))
        self.program("tilewise", "echo no device; exit 1")
        self.assertEqual(self.last()[:2], (1, "0 passed, 1 failed"))

    def test_a_test_that_hangs(self):
        self.add("hang", "exec sleep 30", limit=1)
        code, last, output = self.last("--filter", "hang")
        self.assertEqual((code, last), (1, "0 passed, 1 failed"))
        self.assertIn("stopped after 1 s", output)

    def sanitize(self, *options):
        """With stand-ins: kernel_b serves nothing, and the sanitizer finds something in kernel_c."""
        self.program("tilewise", '''if [ "$1" = info ]; then
for k in a b c d; do printf '      "name": "kernel_%s",\n      "device": "cuda",\n' $k; done
printf '      "name": "cpu_x",\n      "device": "cpu",\n'
else echo "kernel passed failed refused"; echo kernel_a 3 0 0; echo kernel_b 0 0 3; echo kernel_c 3 0 0; echo kernel_d 2 1 0; fi''')
        self.program("sanitizer", 'echo "$*" >>calls\nshift 4\n"$@"\ncase "$*" in *kernel_c*) echo "========= Error: x"; exit 9;; esac')
        command = [str(self.folder / "run-sanitizers"), *options]
        environment = {**os.environ, "COMPUTE_SANITIZER": str(self.folder / "bin" / "sanitizer")}
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return run.returncode, run.stdout

    def test_sanitizers(self):
        code, output = self.sanitize("--tools", "memcheck racecheck", "--group", "3", "--jobs", "2", "--cases", "=causal")
        self.assertEqual((code, output.splitlines()[-1]), (1, "2 passed, 6 failed"))
        self.assertIn("  passed  memcheck kernel_a: 3 cases\n", output)
        self.assertIn("  failed  racecheck kernel_b: serves none of the cases\n", output)
        self.assertIn("  failed  racecheck kernel_c: 1 reports, see logs/sanitizers/racecheck.kernel_c.log\n      ========= Error: x\n",
                      output)
        self.assertIn("  failed  memcheck kernel_d: 1 cases are wrong\n", output)
        calls = (self.folder / "calls").read_text().splitlines()
        self.assertEqual(len(calls), 2 * (1 + 3 + 1))  # a group that is not clean runs again one by one
        self.assertIn("--tool memcheck --error-exitcode 9 bin/tilewise verify --device cuda:0 "
                      "--kernel =kernel_a,=kernel_b,=kernel_c --case =causal", calls)

    def test_sanitizers_case_by_case(self):
        code, output = self.sanitize("--tools", "racecheck", "--alone", "--cases", "=causal,=dim_64")
        self.assertEqual((code, output.splitlines()[-1]), (1, "1 passed, 3 failed"))
        self.assertIn("  passed  racecheck kernel_a: 3 cases\n", output)
        self.assertIn("  failed  racecheck kernel_b: serves none of the cases\n", output)
        self.assertIn("  failed  racecheck kernel_c: 1 reports, see logs/sanitizers/racecheck.kernel_c.causal.log\n", output)
        calls = (self.folder / "calls").read_text().splitlines()
        self.assertEqual(sum("=kernel_a --case" in call for call in calls), 2)
        self.assertEqual(sum("=kernel_c --case" in call for call in calls), 1)  # one report is enough

    def test_sanitizers_of_some_kernels(self):
        self.assertEqual(self.sanitize("--kernels", "_a$", "--tools", "initcheck"),
                         (0, "  passed  initcheck kernel_a: 3 cases\n1 passed, 0 failed\n"))
        self.assertEqual(self.sanitize("--kernels", "nothing")[1].splitlines()[-1], "0 passed, 1 failed")
        self.assertEqual(self.sanitize("--unknown")[0], 2)

    def test_bench(self):
        self.program("tilewise", 'echo "$@"')
        self.program("gpu_bench", "echo measured; exit 1")
        code, output = self.run_script("run-bench", "--grid", "quick", "--grid", "grids/long.toml", "--seconds", "2")
        self.assertEqual((code, output.splitlines()[-1]), (1, "2 passed, 1 failed"))
        self.assertIn("bench grids/long.toml --device cuda:0 --csv results/long.csv --force --seconds 2", output)
        self.assertEqual((self.folder / "results" / "gpu_bench.txt").read_text(), "measured\n")


class Staging(unittest.TestCase):
    def test_system_libraries(self):
        for name in ("libc.so.6", "libm.so.6", "libcuda.so.1", "ld-linux-x86-64.so.2", "libpthread.so.0"):
            self.assertTrue(stage_gpu.SYSTEM_LIBRARY.match(name), name)
        for name in ("libcudart.so.13", "libstdc++.so.6", "libgcc_s.so.1", "libtilewise.so.0", "libcurl.so.4"):
            self.assertFalse(stage_gpu.SYSTEM_LIBRARY.match(name), name)

    def test_list_of_tests(self):
        tests = [("a", Path("/b/bin/a_test"), ["--x"], {"LABELS": ["conformance"], "ENVIRONMENT": ["A=1", "B=2"], "TIMEOUT": 9.0}),
                 ("b", Path("/b/bin/b_test"), [], {"LABELS": ["conformance", "device"]})]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "tests.tsv"
            stage_gpu.write_test_list(tests, path)
            self.assertEqual(path.read_text(), "a\t9\t1\tA=1 B=2\tbin/a_test --x\nb\t600\t0\tLC_ALL=C\tbin/b_test\n")


if __name__ == "__main__":
    unittest.main()
