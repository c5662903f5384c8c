"""python -m tilewise.bench: Tilewise beside torch's scaled_dot_product_attention and, where they can be imported, flash_attn,
FlashAttention-3, FlashAttention-4 and FlashInfer. Outputs are checked before anything is timed; the exit code is 1 if Tilewise's are wrong
or missing."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from pathlib import Path

try:
    import torch
except ImportError:
    sys.exit("tilewise.bench needs torch: pip install torch")

from . import charts, report
from .cases import DTYPES, MAX_HEAD_DIM, OPS, cases_of
from .measure import Judge, measure
from .peers import OURS, available


def _number(name, highest=None):
    def parse(text):
        if not text.strip().isdecimal() or int(text) < 1 or (highest and int(text) > highest):
            allowed = f"1 to {highest}" if highest else "1 or more"
            raise argparse.ArgumentTypeError(f"{name} is {text!r}; allowed: {allowed}")
        return int(text)

    return parse


def _list(parse):
    return lambda text: [parse(word) for word in text.split(",")]


def _op(text):
    if text not in OPS:
        raise argparse.ArgumentTypeError(f"operation {text!r}; allowed: {', '.join(OPS)}")
    return text


def _pattern(text):
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None


def _parser():
    parser = argparse.ArgumentParser(prog="python -m tilewise.bench", description=__doc__)
    add = parser.add_argument
    add("--ops", type=_list(_op), default=list(OPS), help=f"of {','.join(OPS)} (default: all)")
    add("--head-dims", type=_list(_number("head_dim", MAX_HEAD_DIM)), help="1 to 256 (64,128,256; CPU: 64)")
    add("--seqlens", type=_list(_number("seqlen")), help="lengths (512 to 16384; CPU: 128,256,512)")
    add("--causal", choices=("both", "yes", "no"), default="both")
    add("--tokens", type=_number("tokens"), help="batch = tokens / seqlen (16384; CPU: 512)")
    add("--hidden", type=_number("hidden"), help="heads = hidden / head_dim (2048; CPU: 256)")
    add("--heads-kv", type=_number("heads_kv"), help="heads of keys and values (the heads of q; decode: a quarter of them)")
    add("--window", type=_number("window"), help="keys seen to the left, and without causal to the right")
    add("--dtype", choices=DTYPES, help="bf16; CPU: fp32")
    add("--device", choices=("cuda", "cpu"), help="cuda where there is a GPU")
    add("--only", type=_pattern, default=re.compile(""), metavar="REGEX", help="cases whose name matches")
    add("--passes", type=_number("passes"), help="interleaved passes (5; --quick: 3)")
    add("--pass-us", type=_number("pass_us"), default=4000, help="microseconds of one pass of one peer")
    add("--quick", action="store_true", help="two lengths, one head_dim, three passes")
    add("--list", action="store_true", help="print the cases and stop")
    add("--out", type=Path, metavar="FOLDER", help="write python.json, python.csv and charts there")
    add("--replot", type=Path, metavar="FILE.json", help="draw the charts of a former run, beside it or in --out")
    return parser


def _defaults(options):
    cpu = options.device == "cpu"
    lengths = [128, 256, 512] if cpu else [512, 1024, 2048, 4096, 8192, 16384]
    head_dims = [64] if cpu else [64, 128, 256]
    if options.quick:
        lengths, head_dims = ([128, 256] if cpu else [1024, 4096]), ([64] if cpu else [128])
    values = {
        "seqlens": lengths,
        "head_dims": head_dims,
        "tokens": 512 if cpu else 16384,
        "hidden": 256 if cpu else 2048,
        "dtype": "fp32" if cpu else "bf16",
        "passes": 3 if options.quick else 5,
    }
    for name, value in values.items():
        if getattr(options, name) is None:
            setattr(options, name, value)


def parse(arguments):
    """Options with every default filled in; ends the program with exit code 2 on a bad one."""
    parser = _parser()
    options = parser.parse_args(arguments)
    options.device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if options.device == "cuda" and not torch.cuda.is_available() and not (options.list or options.replot):
        parser.error("argument --device: torch sees no GPU; allowed here: cpu")
    if options.replot and not options.replot.is_file():
        parser.error(f"argument --replot: there is no file {options.replot}")
    _defaults(options)
    options.cases = [case for case in cases_of(options) if options.only.search(case.name)]
    if not options.cases:
        parser.error(f"argument --only: {options.only.pattern!r} matches no case; see --list")
    for case in options.cases:
        if case.heads % case.heads_kv:
            parser.error(f"argument --heads-kv: {case.heads_kv} does not divide the {case.heads} heads of {case.name}")
    return options


def _progress(cases):
    """(cases, print): a bar on a terminal that has tqdm, plain lines elsewhere."""
    if sys.stdout.isatty():
        try:
            from tqdm import tqdm
        except ImportError:
            return cases, print
        bar = tqdm(cases, unit="case")
        return bar, tqdm.write
    return cases, lambda line: print(line, flush=True)


def _draw(folder, about, rows):
    try:
        for file in charts.draw(folder, about, rows):
            print(f"wrote {file}")
    except ImportError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def run(options, peers, absent, arguments):
    """Measures, prints and writes; returns the exit code."""
    about = report.environment(options.device, peers, absent, arguments)
    print(f"{about['card']}, torch {about['torch']}, {about['date']}; {report.METHOD}")
    for name, reason in absent.items():
        print(f"without {name}: {reason}")
    rows, judge = [], Judge()
    cases, say = _progress(options.cases)
    for case in cases:
        found = measure(case, peers, options, judge)
        for line in report.lines_of(case.name, found):
            say(line)
        rows += [{"case": case.name, **dataclasses.asdict(case), **row} for row in found]
    if options.out:
        report.write(options.out, about, rows)
        print(f"wrote {options.out / report.JSON_NAME} and {options.out / report.CSV_NAME}")
        _draw(options.out, about, rows)
    bad = [row for row in rows if row["peer"] == OURS and row["status"] != "ok"]
    for row in bad:
        print(f"{OURS} is {row['status']}: {row['case']}: {row['reason']}", file=sys.stderr)
    return 1 if bad else 0


def main(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parse(arguments)
    if options.list:
        print("\n".join(case.name for case in options.cases))
        return 0
    if options.replot:
        former = json.loads(options.replot.read_text())
        return _draw(options.out or options.replot.parent, former, former["rows"])
    return run(options, *available(), arguments)


if __name__ == "__main__":
    sys.exit(main())
