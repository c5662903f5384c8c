"""What the tests of the program share: running it, tensor files packed and unpacked by hand, and attention in plain Python.

Only the standard library. The file formats are read here by this file's own understanding of them, not by the program's.
"""

import ast
import json
import math
import os
import random
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = []  # the path of the program, once it is known


def run(*arguments, environment=None):
    variables = {name: value for name, value in os.environ.items() if not name.startswith("TILEWISE_")}
    variables.update(environment or {})
    return subprocess.run([*PROGRAM, *map(str, arguments)], capture_output=True, text=True, env=variables, timeout=300)


def product(shape):
    return math.prod(shape)


def npy_bytes(values, shape, descr="<f4", code="f", fortran=False):
    axes = "(" + "".join(f"{n}, " for n in shape) + ")"
    header = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {axes}, }}".encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + struct.pack(f"<{len(values)}{code}", *values)


def read_npy(path, code="f"):
    raw = Path(path).read_bytes()
    (length,) = struct.unpack("<H", raw[8:10])
    header = ast.literal_eval(raw[10 : 10 + length].decode())
    data = raw[10 + length :]
    return header, list(struct.unpack(f"<{product(header['shape'])}{code}", data))


def safetensors_bytes(tensors):
    """tensors: {name: (dtype, shape, bytes)}"""
    header, data = {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def read_safetensors(path):
    raw = Path(path).read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    data = raw[8 + length :]
    return {name: (e["dtype"], e["shape"], data[slice(*e["data_offsets"])]) for name, e in header.items()}


def attention(q, k, v, shape, *, causal=False, bias=None):
    """Plain attention on flat lists: shape is (b, sq, sk, h, hk, d, dv); returns o (b, sq, h, dv) and lse (b, h, sq)."""
    b, sq, sk, h, hk, d, dv = shape
    out, lse = [0.0] * (b * sq * h * dv), [0.0] * (b * h * sq)
    for n, a, i in ((n, a, i) for n in range(b) for a in range(h) for i in range(sq)):
        g = a * hk // h
        row = q[((n * sq + i) * h + a) * d :][:d]
        scores = {}
        for j in range(sk):
            if causal and j > i + sk - sq:
                continue
            key = k[((n * sk + j) * hk + g) * d :][:d]
            scores[j] = sum(x * y for x, y in zip(row, key)) / math.sqrt(d)
            if bias is not None:
                scores[j] += bias[i * sk + j]
        if not scores:
            lse[(n * h + a) * sq + i] = -math.inf
            continue
        top = max(scores.values())
        total = sum(math.exp(s - top) for s in scores.values())
        lse[(n * h + a) * sq + i] = top + math.log(total)
        for j, score in scores.items():
            weight = math.exp(score - top) / total
            for c in range(dv):
                out[((n * sq + i) * h + a) * dv + c] += weight * v[((n * sk + j) * hk + g) * dv + c]
    return out, lse


class Case(unittest.TestCase):
    def setUp(self):
        self.folder_object = tempfile.TemporaryDirectory()
        self.folder = Path(self.folder_object.name)
        self.random = random.Random(7)

    def tearDown(self):
        self.folder_object.cleanup()

    def good(self, *arguments, **options):
        result = run(*arguments, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def bad(self, exit_code, *arguments, words=(), **options):
        result = run(*arguments, **options)
        self.assertEqual(result.returncode, exit_code, result.stdout + result.stderr)
        self.assertTrue(result.stderr.startswith("tilewise: "), result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)
        return result

    def normal(self, *shape):
        return [struct.unpack("<f", struct.pack("<f", self.random.gauss(0, 1)))[0] for _ in range(product(shape))]

    def near(self, actual, expected, tolerance):
        self.assertEqual(len(actual), len(expected))
        for x, y in zip(actual, expected):
            if x != y:  # infinities are equal
                self.assertLess(abs(x - y), tolerance * (1 + abs(y)))

    def place(self, name, content):
        path = self.folder / name
        path.write_bytes(content)
        return path
