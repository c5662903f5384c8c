#!/usr/bin/env python3
"""Runs the program `tilewise` for real: every command, its JSON, its exit codes, and what it says to bad input.

usage: cli_test.py PROGRAM [unittest options]
"""

import json
import math
import re
import struct
import subprocess
import sys
import time
import unittest
from pathlib import Path

import cli_support
from cli_support import ROOT, Case, attention, npy_bytes, read_npy, read_safetensors, run, safetensors_bytes

RECORDED = ("recorded:h200", "recorded:a100", "recorded:rtx4090", "recorded:t4", "recorded:cpu-avx2")


class Program(Case):
    def test_version(self):
        self.assertRegex(self.good("--version"), r"^tilewise \d+\.\d+\.\d+\n$")

    def test_help_lists_commands(self):
        text = self.good("--help")
        for command in ("info", "doctor", "plan", "run", "verify", "bench"):
            self.assertIn(command, text)
            self.assertIn("--help", self.good(command, "--help"))

    def test_bad_usage(self):
        self.bad(2)
        self.bad(2, "fly")
        self.bad(2, "plan", "--no-such-flag")
        self.bad(2, "plan", "--batch", "two", words=["batch"])

    def test_closed_output_is_a_failure(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([*cli_support.PROGRAM, "info"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(result.returncode, 1)
        self.assertIn("stdout", result.stderr)


class Info(Case):
    def test_json(self):
        info = json.loads(self.good("info", "--json"))
        names = [device["device"] for device in info["devices"]]
        self.assertIn("cpu", names)
        for name in RECORDED:
            self.assertIn(name, names)
        kernels = {kernel["name"]: kernel for kernel in info["kernels"]}
        self.assertTrue(any(kernel["op"] == "backward" for kernel in kernels.values()))
        for kernel in kernels.values():
            self.assertEqual(kernel["runs_here"], kernel["reason"] == "", kernel)
        self.assertTrue(all(k["runs_here"] for k in kernels.values() if k["device"] == "cpu" and k["isa"] == "scalar"))

    def test_text_lists_every_kernel(self):
        text = self.good("info")
        for kernel in json.loads(self.good("info", "--json"))["kernels"]:
            self.assertIn(kernel["name"], text)

    def test_readme_holds_the_support_table(self):
        readme = (ROOT / "README.md").read_text()
        inside = re.search(r"<!-- support-table -->(.*)<!-- /support-table -->", readme, re.DOTALL)
        self.assertIsNotNone(inside, "README.md: the markers of the support table are missing")
        rows, shown = (text.strip().splitlines() for text in (self.good("info", "--markdown"), inside.group(1)))
        # The README shows a build with every backend; one without CUDA has all but the rows of GPUs.
        if not any("| cuda |" in row for row in rows):
            shown = [row for row in shown if "| cuda |" not in row]
        self.assertEqual(shown, rows, "README.md: paste `tilewise info --markdown` of a build with CUDA")


class Plan(Case):
    def test_text_names_problem_kernel_and_refusals(self):
        text = self.good("plan", "--op", "forward", "--seqlen-q", 512, "--dtype", "bf16", "--causal")
        for word in ("forward", "(1, 512, 8, 64)", "kernel cpu_", "workspace", "refused"):
            self.assertIn(word, text)

    def test_json_of_every_operation(self):
        problems = {
            "forward": ["--window", "127,0", "--softcap", "30", "--alibi", "bh", "--bias", "1hqk", "--sink", "--heads-kv", "2"],
            "backward": ["--deterministic", "--head-dim-v", "128", "--bias", "1hqk", "--grad-bias", "--ragged", "100,0,3"],
            "decode": ["--new-tokens", "1", "--page-size", "16", "--rotary-dim", "64", "--causal", "--seqlen-k", "300"],
            "append": ["--new-tokens", "4", "--seqlen-k", "300"],
            "combine": ["--splits", "3"],
        }
        for op, flags in problems.items():
            answer = json.loads(self.good("plan", "--op", op, "--json", *flags))
            self.assertEqual(answer["status"], "ok")
            self.assertEqual(answer["plan"]["op"], op)
            self.assertTrue(answer["plan"]["steps"])

    def test_sizes_without_memory(self):
        self.good("plan", "--batch", 64, "--seqlen-q", 1 << 20, "--heads", 128, "--head-dim", 256)

    def test_device_without_kernels_lists_reasons(self):
        kernels = json.loads(self.good("info", "--json"))["kernels"]
        if any(kernel["device"] == "cuda" for kernel in kernels):
            self.good("plan", "--device", "h200")
            return
        result = self.bad(1, "plan", "--device", "h200")
        self.assertIn("no kernel", result.stdout)
        answer = json.loads(self.bad(1, "plan", "--device", "h200", "--json").stdout)
        self.assertEqual(answer["status"], "unsupported")
        self.assertIsNone(answer["plan"])
        self.assertTrue(answer["message"])

    def test_pinned_kernel(self):
        answer = json.loads(self.good("plan", "--kernel", "cpu_reference_forward", "--json"))
        self.assertEqual(answer["plan"]["steps"][-1]["kernel"], "cpu_reference_forward")
        self.bad(2, "plan", "--kernel", "cpu_reference_forward", "--op", "backward", words=["cpu_reference_forward"])
        self.bad(1, "plan", "--kernel", "cpu_tiled_forward_bf16_scalar", words=["cpu_tiled_forward_bf16_scalar", "f32"])

    def test_bad_problems_name_the_argument(self):
        self.bad(2, "plan", "--device", "h2000", words=["device", "h2000", "recorded:h200", "cpu"])
        self.bad(2, "plan", "--op", "sideways", words=["op", "sideways", "backward"])
        self.bad(2, "plan", "--dtype", "f8", words=["dtype", "f8", "bf16"])
        self.bad(2, "plan", "--window", "5", words=["window"])
        self.bad(2, "plan", "--bias", "bhkq", words=["bias", "bhkq"])
        self.bad(2, "plan", "--heads", 3, "--heads-kv", 2, words=["3", "2"])
        self.bad(2, "plan", "--head-dim", 300, words=["head_dim", "300"])
        self.bad(2, "plan", "--dropout", "1.5", words=["dropout_p", "1.5"])
        self.bad(2, "plan", "--scale", "-1", words=["softmax_scale", "-1"])
        self.bad(2, "plan", "--ragged", "3,-1", words=["-1"])
        self.bad(2, "plan", "--ragged", "3,4", "--ragged-k", "5", words=["ragged-k"])
        self.bad(2, "plan", "--op", "decode", "--new-tokens", 9, "--seqlen-k", 5, words=["new-tokens", "9", "5"])


class Run(Case):
    SHAPE = (2, 7, 9, 4, 2, 8, 6)  # b, sq, sk, h, hk, d, dv

    def make(self):
        b, sq, sk, h, hk, d, dv = self.SHAPE
        shapes = {"q": (b, sq, h, d), "k": (b, sk, hk, d), "v": (b, sk, hk, dv)}
        return {name: (shape, self.normal(*shape)) for name, shape in shapes.items()}

    def files(self, tensors):
        flags = []
        for name, (shape, values) in tensors.items():
            flags += [f"--{name}", self.place(f"{name}.npy", npy_bytes(values, shape))]
        return flags

    def test_npy(self):
        tensors = self.make()
        out, lse = self.folder / "out.npy", self.folder / "lse.npy"
        text = self.good("run", *self.files(tensors), "--out", out, "--lse", lse, "--causal")
        self.assertIn("cpu_", text)
        expected_out, expected_lse = attention(*(values for _, values in tensors.values()), self.SHAPE, causal=True)
        header, actual = read_npy(out)
        self.assertEqual((header["descr"], header["shape"], header["fortran_order"]), ("<f4", (2, 7, 4, 6), False))
        self.near(actual, expected_out, 1e-5)
        header, actual = read_npy(lse)
        self.assertEqual(header["shape"], (2, 4, 7))
        self.near(actual, expected_lse, 1e-5)
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["k.npy", "lse.npy", "out.npy", "q.npy", "v.npy"])

    def test_safetensors_in_one_file(self):
        tensors = self.make()
        content = {name: ("F32", list(shape), struct.pack(f"<{len(values)}f", *values)) for name, (shape, values) in tensors.items()}
        bias = self.normal(7, 9)
        content["bias"] = ("F32", [1, 1, 7, 9], struct.pack("<63f", *bias))
        content["unrelated"] = ("U8", [3], b"abc")
        source = self.place("in.safetensors", safetensors_bytes(content))
        out = self.folder / "out.safetensors"
        self.good("run", "--input", source, "--out", out)
        result = read_safetensors(out)
        expected_out, expected_lse = attention(*(values for _, values in tensors.values()), self.SHAPE, bias=bias)
        self.assertEqual(result["out"][:2], ("F32", [2, 7, 4, 6]))
        self.near(struct.unpack("<336f", result["out"][2]), expected_out, 1e-5)
        self.assertEqual(result["lse"][:2], ("F32", [2, 4, 7]))
        self.near(struct.unpack("<56f", result["lse"][2]), expected_lse, 1e-5)

    def test_named_tensor_fortran_order_and_wide_lengths(self):
        """q of a .safetensors file by another name, k in Fortran order, 64-bit seqused_k; keys behind it do not count."""
        tensors = self.make()
        b, sq, sk, h, hk, d, dv = self.SHAPE
        shape, q = tensors["q"]
        names = self.place("m.safetensors", safetensors_bytes({"layer.0.q": ("F32", list(shape), struct.pack(f"<{len(q)}f", *q))}))
        k = tensors["k"][1]
        columns = [k[((n * sk + j) * hk + g) * d + c] for c in range(d) for g in range(hk) for j in range(sk) for n in range(b)]
        flags = self.files(tensors)
        flags[1] = f"{names}:layer.0.q"
        flags[3] = self.place("kf.npy", npy_bytes(columns, (b, sk, hk, d), fortran=True))
        used = self.place("used.npy", npy_bytes([5, 5], (2,), descr="<i8", code="q"))
        self.good("run", *flags, "--seqused-k", used, "--out", self.folder / "o.npy")
        short = (b, sq, 5, h, hk, d, dv)
        cut = {name: [x for n in range(b) for x in tensors[name][1][n * sk * hk * c :][: 5 * hk * c]] for name, c in (("k", d), ("v", dv))}
        self.near(read_npy(self.folder / "o.npy")[1], attention(q, cut["k"], cut["v"], short)[0], 1e-5)

    def test_rows_of_no_sequence(self):
        """Packed rows behind the last sequence: 0 in o, -inf in lse."""
        q = self.normal(5, 1, 4)
        flags = [x for name in "qkv" for x in (f"--{name}", self.place(f"{name}.npy", npy_bytes(q, (5, 1, 4))))]
        starts = self.place("starts.npy", npy_bytes([0, 2, 3], (3,), descr="<i4", code="i"))
        out, lse = self.folder / "o.npy", self.folder / "lse.npy"
        self.good("run", *flags, "--cu-seqlens-q", starts, "--cu-seqlens-k", starts, "--out", out, "--lse", lse)
        first, _ = attention(q[:8], q[:8], q[:8], (1, 2, 2, 1, 1, 4, 4))
        self.near(read_npy(out)[1], first + q[8:12] + [0.0] * 8, 1e-5)
        self.assertEqual(read_npy(lse)[1][3:], [-math.inf] * 2)

    def test_bf16(self):
        def bits(values):
            return [struct.unpack("<I", struct.pack("<f", x))[0] >> 16 for x in values]

        def floats(raw):
            return [struct.unpack("<f", struct.pack("<I", x << 16))[0] for x in raw]

        tensors = {name: (shape, bits(values)) for name, (shape, values) in self.make().items()}
        flags = []
        for name, (shape, raw) in tensors.items():
            flags += [f"--{name}", self.place(f"{name}.npy", npy_bytes(raw, shape, descr="<V2", code="H"))]
        self.good("run", *flags, "--out", self.folder / "o.npy")
        header, raw = read_npy(self.folder / "o.npy", "H")
        self.assertEqual(header["descr"], "<V2")
        self.near(floats(raw), attention(*(floats(raw) for _, raw in tensors.values()), self.SHAPE)[0], 2e-2)

    def test_nothing_is_overwritten(self):
        flags = self.files(self.make())
        out = self.place("out.npy", b"precious")
        self.bad(1, "run", *flags, "--out", out, words=["out.npy", "--force"])
        self.assertEqual(out.read_bytes(), b"precious")
        self.good("run", *flags, "--out", out, "--force")
        self.assertNotEqual(out.read_bytes(), b"precious")
        self.bad(1, "run", *flags, "--out", self.folder / "absent" / "out.npy", words=["absent"])

    def test_damaged_files(self):
        flags = self.files(self.make())
        out = self.folder / "out.npy"
        whole = Path(flags[1]).read_bytes()
        for size in (0, 5, 9, 40, len(whole) - 1):
            self.place("q.npy", whole[:size])
            self.bad(1, "run", *flags, "--out", out, words=["q: ", "q.npy: "])
        self.place("q.npy", whole.replace(b"<f4", b">f4"))
        self.bad(1, "run", *flags, "--out", out, words=["big-endian", ">f4"])
        self.bad(1, "run", "--input", self.place("x.safetensors", b"\xff" * 40), "--out", out, words=["header length"])
        self.assertFalse(out.exists())

    def test_bad_arguments(self):
        flags = self.files(self.make())
        out = self.folder / "out.npy"
        self.bad(2, "run", *flags, words=["--out"])
        self.bad(2, "run", *flags[2:], "--out", out, words=["q: ", "--input"])
        self.bad(2, "run", *flags, "--out", self.folder / "out.txt", words=["out.txt", ".npy", ".safetensors"])
        self.bad(1, "run", *flags[:5], self.folder / "none.npy", "--out", out, words=["v: ", "none.npy"])
        self.bad(2, "run", "--input", flags[1], "--out", out, words=["input: ", "q.npy"])
        self.place("k.npy", npy_bytes(self.normal(2, 9, 3, 8), (2, 9, 3, 8)))
        self.bad(2, "run", *flags, "--out", out, words=["3"])
        self.place("k.npy", npy_bytes(self.normal(2, 9, 2, 7), (2, 9, 2, 7)))
        self.bad(2, "run", *flags, "--out", out, words=["7", "8"])
        self.place("q.npy", npy_bytes(self.normal(2, 9), (2, 9)))
        self.bad(2, "run", *flags, "--out", out, words=["q: ", "(2, 9)"])
        self.assertFalse(out.exists())


class Verify(Case):
    def test_one_kernel(self):
        answer = json.loads(self.good("verify", "--kernel", "cpu_combine", "--json"))
        self.assertEqual([kernel["kernel"] for kernel in answer["kernels"]], ["cpu_combine"])
        self.assertGreater(answer["kernels"][0]["passed"], 0)
        self.assertEqual(answer["failures"], [])

    def test_unknown_names(self):
        self.bad(2, "verify", "--kernel", "no_such_kernel", words=["kernel", "no_such_kernel", "cpu_"])
        self.bad(2, "verify", "--case", "no such case", words=["case", "no such case"])


class Bench(Case):
    GRID = """
    [defaults]
    heads = 2
    head-dim = 32
    [[grid]]
    name = "small"
    op = ["forward", "backward"]
    seqlen-q = 100
    dtype = ["f32", "bf16"]
    causal = [false, true]
    [[grid]]
    name = "cache"
    op = "decode"
    batch = 3
    seqlen_k = 200
    page-size = 16
    new-tokens = 1
    """

    def test_grid(self):
        grid = self.place("grid.toml", self.GRID.encode())
        table, report = self.folder / "b.csv", self.folder / "b.json"
        text = self.good("bench", grid, "--seconds", "0.01", "--csv", table, "--json", report)
        self.assertEqual(len(text.splitlines()), 1 + 9)
        lines = table.read_text().splitlines()
        self.assertEqual(len(lines), 1 + 9)
        self.assertIn("TFLOP/s", lines[0])
        rows = json.loads(report.read_text())["rows"]
        self.assertEqual([row["grid"] for row in rows], ["small"] * 8 + ["cache"])
        for row in rows:
            self.assertTrue(row["check"]["done"] and row["check"]["passed"], row)
            self.assertLessEqual(row["seconds"]["p10"], row["seconds"]["median"])
            self.assertGreaterEqual(row["repeats"], 5)
        # 2 heads, 100 x 100 pairs or the causal half, 2 (32 + 32) FLOPs each
        self.assertEqual([rows[0]["flops"], rows[1]["flops"]], [2 * 100 * 100 * 128, 2 * 5050 * 128])
        self.bad(1, "bench", grid, "--csv", table, words=["b.csv", "--force"])

    def test_every_kernel(self):
        grid = self.place("grid.toml", b'[[grid]]\nseqlen-q = 40\nhead-dim = 16\n')
        report = self.folder / "b.json"
        self.good("bench", grid, "--seconds", "0", "--all-kernels", "--json", report)
        kernels = {row["kernel"] for row in json.loads(report.read_text())["rows"]}
        here = {k["name"] for k in json.loads(self.good("info", "--json"))["kernels"] if k["runs_here"] and k["op"] == "forward" and "f32" in k["dtypes"]}
        self.assertEqual(kernels, {name for name in here if "reference" not in name})

    def test_built_in_grids_parse(self):
        for grid in sorted((ROOT / "bench" / "grids").glob("*.toml")):
            self.bad(1, "bench", grid.stem, "--csv", self.place("old.csv", b""), words=["old.csv"])
            broken = self.place("broken.toml", grid.read_bytes() + b"\nno-such-flag = 1\n")
            self.bad(2, "bench", broken, words=["broken.toml", "no-such-flag"])

    def test_bad_grids(self):
        self.bad(2, "bench", "nowhere.toml", words=["nowhere.toml", "quick"])
        for text, words in {
            "a = [": ["line 1"],
            "a = 1": ["a", "[[grid]]"],
            "[[grid]]\nbatch = []": ["batch", "empty"],
            "[[grid]]\nbatch = 'x'": ["batch"],
            "[[grid]]\nop = 'sideways'": ["sideways"],
        }.items():
            self.bad(2, "bench", self.place("g.toml", text.encode()), words=words)


class Doctor(Case):
    def test_finds_and_tests(self):
        start = time.monotonic()
        result = run("doctor", "--json")
        seconds = time.monotonic() - start
        answer = json.loads(result.stdout)
        self.assertEqual(result.returncode, {"good": 0, "warnings": 1, "broken": 2}[answer["status"]])
        self.assertNotEqual(answer["status"], "broken", result.stdout)
        topics = [finding["topic"] for finding in answer["findings"]]
        for topic in ("library", "cpu", "plan cpu", "test cpu"):
            self.assertIn(topic, topics)
        # A driver that does not start (under AddressSanitizer it never does) lists no GPU: then that must be the warning.
        failures = [finding for finding in answer["findings"] if finding["topic"] == "driver" and finding["level"] == "warning"]
        self.assertTrue("gpu" in topics or failures, result.stdout)
        for finding in answer["findings"]:
            if finding["level"] in ("warning", "broken"):
                self.assertTrue(finding["action"], finding)
        self.assertLess(seconds, 10)  # a busy test machine; alone it takes well under a second

    def test_environment(self):
        broken = run("doctor", environment={"TILEWISE_FORCE_KERNEL": "no_such_kernel"})
        self.assertEqual(broken.returncode, 2, broken.stdout)
        self.assertIn("no_such_kernel", broken.stdout)
        typo = run("doctor", environment={"TILEWISE_THREADS": "3"})
        self.assertGreaterEqual(typo.returncode, 1, typo.stdout)
        self.assertIn("TILEWISE_THREADS", typo.stdout)


def main():
    cli_support.PROGRAM.append(str(Path(sys.argv.pop(1)).resolve()))
    unittest.main(verbosity=1)


if __name__ == "__main__":
    main()
