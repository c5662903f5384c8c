"""cmake/TilewiseCudaRows.cmake: each row of a kernels.inc becomes a source, and a line that is no row is an error."""

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """cmake_minimum_required(VERSION 3.22)
project(rows LANGUAGES NONE)
include("{root}/cmake/TilewiseCudaRows.cmake")
add_custom_target(all_rows)
tilewise_add_cuda_rows(all_rows "{folder}/sm80" "--generate-code=arch=compute_90a,code=[sm_90a]" {option})
get_target_property(sources all_rows SOURCES)
message("${{sources}}")
"""
FORWARD = "// @NAME@: Traits<@ARGS@>\n"


class Rows(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "sm80").mkdir()
        self.write("forward_row.cu.in", FORWARD)

    def write(self, name, text):
        (self.folder / "sm80" / name).write_text(text)

    def configure(self, option=""):
        """(generated sources by name, what CMake printed)."""
        (self.folder / "CMakeLists.txt").write_text(SCRIPT.format(root=ROOT, folder=self.folder, option=option))
        command = ["cmake", "-S", str(self.folder), "-B", str(self.folder / "build")]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        generated = {path.name: path.read_text() for path in (self.folder / "build").glob("sm80/*.cu")}
        return generated, run.stderr

    def test_a_source_for_each_row(self):
        self.write("kernels.inc", """// TILEWISE_SM80_FORWARD(name, ...)
TILEWISE_SM80_FORWARD(sm80_fwd_a, Bf16, 128, 64)
  TILEWISE_SM80_FORWARD(sm80_fwd_b, Half<1>, (2))  // why
TILEWISE_SM80_DECODE(sm80_decode_a, Bf16, 64)
""")
        generated, printed = self.configure()
        self.assertEqual(generated, {"sm80_fwd_a.cu": "// sm80_fwd_a: Traits<Bf16, 128, 64>\n",
                                     "sm80_fwd_b.cu": "// sm80_fwd_b: Traits<Half<1>, (2)>\n"})
        self.assertEqual(printed.count(".cu"), 2)

    def test_pairs_share_a_source(self):
        self.write("kernels.inc", """TILEWISE_SM80_FORWARD(sm80_fwd_bf16_a, BF16, 64)
TILEWISE_SM80_FORWARD(sm80_fwd_bf16_b, BF16, 96)
TILEWISE_SM80_FORWARD(sm80_fwd_f16_a, F16, 64)
""")
        generated, printed = self.configure("PAIRED")
        pair = "// sm80_fwd_bf16_a: Traits<BF16, 64>\n// sm80_fwd_f16_a: Traits<F16, 64>\n"
        self.assertEqual(generated, {"sm80_fwd_a.cu": pair, "sm80_fwd_b.cu": "// sm80_fwd_bf16_b: Traits<BF16, 96>\n"})
        self.assertEqual(printed.count(".cu"), 2)

    def test_no_list_no_rows(self):
        generated, printed = self.configure()
        self.assertEqual((generated, printed.strip()), ({}, "sources-NOTFOUND"))

    def test_a_line_that_is_no_row(self):
        for line in ("TILEWISE_SM80_FORWARD(sm80_fwd_a, Bf16,", "TILEWISE_SM80_FORWARD(Name, Bf16)", "TILEWISE_SM80_FORWARD(a)"):
            with self.subTest(line=line):
                self.write("kernels.inc", line + "\n")
                self.assertIn("is no row", " ".join(self.configure()[1].split()))

    def test_two_rows_of_one_name(self):
        self.write("kernels.inc", "TILEWISE_SM80_FORWARD(a_row, X)\nTILEWISE_SM80_DECODE(a_row, Y)\n")
        self.assertIn("two rows are named a_row", " ".join(self.configure()[1].split()))


if __name__ == "__main__":
    unittest.main()
