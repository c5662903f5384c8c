#!/usr/bin/env python3
"""Results of compare.py as Markdown tables: JSON files -> standard output.

A cell reads ours / FlashAttention-2 = ratio (cuDNN): TFLOP/s, or microseconds of a decode, where the ratio is the peer's time over ours.
"""

import argparse
import json
import math
from pathlib import Path

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)


def text_of(cell):
    values, ratio = cell["values"], cell["ratios"]["fa2"]
    digits = 1 if cell["op"] == "decode" and values["tilewise"][0] < 100 else 0
    ours, fa2, cudnn = (f"{values[name][0]:.{digits}f}" for name in ("tilewise", "fa2", "cudnn"))
    if cell["op"] == "decode":
        return f"{ours} / {fa2} = **{ratio:.2f}** ({cudnn}: {cell['ratios']['cudnn']:.2f})"
    return f"{ours} / {fa2} = **{ratio:.2f}** ({cudnn})"


def training_table(cells):
    yield "| d | mask | " + " | ".join(str(n) if n < 1024 else f"{n // 1024}k" for n in LENGTHS) + " |"
    yield "|---" * (2 + len(LENGTHS)) + "|"
    for d in sorted({cell["head_dim"] for cell in cells}):
        for causal in (False, True):
            row = {cell["seqlen"]: text_of(cell) for cell in cells if cell["head_dim"] == d and cell["causal"] == causal}
            yield f"| {d} | {'causal' if causal else 'none'} | " + " | ".join(row.get(n, "") for n in LENGTHS) + " |"


def decode_table(cells):
    heads = sorted({cell["heads"] for cell in cells})
    yield "| batch | keys | " + " | ".join(f"{h} heads on 8" for h in heads) + " |"
    yield "|---" * (2 + len(heads)) + "|"
    for batch, seqlen in dict.fromkeys((cell["batch"], cell["seqlen"]) for cell in cells):
        row = {c["heads"]: text_of(c) for c in cells if (c["batch"], c["seqlen"]) == (batch, seqlen)}
        yield f"| {batch} | {seqlen} | " + " | ".join(row.get(h, "") for h in heads) + " |"


def summary(cells, peer):
    ratios = [cell["ratios"][peer] for cell in cells]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return f"geometric mean {mean:.3f}, lowest {min(ratios):.2f}, {sum(r >= 0.995 for r in ratios)} of {len(ratios)} cells at 1.00 or more"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    for path in parser.parse_args().files:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        for op in dict.fromkeys(cell["op"] for cell in cells):
            own = [cell for cell in cells if cell["op"] == op]
            print(f"## {op.capitalize()}\n")
            print("\n".join((decode_table if op == "decode" else training_table)(own)))
            print(f"\nAgainst FlashAttention-2: {summary(own, 'fa2')}. Against cuDNN: {summary(own, 'cudnn')}.\n")


if __name__ == "__main__":
    main()
