"""The command line of `python -m tilewise.bench`: options -> cases -> a run -> files. Exit code: 0 our results are
right, 1 one is wrong or missing, 2 bad options."""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import replace
from pathlib import Path

from . import report
from .cases import DTYPE_BYTES, MAX_HEAD_DIM, OPERATIONS, Case, cases_of, default_grid
from .peer_names import PEER_NAMES

EPILOG = """Sizes are the field's: batch * seqlen = tokens, heads * head_dim = hidden. The CPU's defaults are small.
Peers that are not installed, refuse a case, or compute it wrongly are named with the reason.

  python -m tilewise.bench                                   everything that this machine can run
  python -m tilewise.bench --op forward --only 'd128 causal' some of it
  python -m tilewise.bench --op decode --gqa 8 --batch 1 --seqlen 8192
  python -m tilewise.bench --replot tilewise_bench.json      the charts again, from the results of a run
"""


def _whole(least, most=None):
    """A type for argparse: a whole number in a range."""

    def parse(text):
        allowed = f"a whole number of at least {least}" if most is None else f"a whole number from {least} to {most}"
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no number; {allowed} is") from None
        if value < least or (most is not None and value > most):
            raise argparse.ArgumentTypeError(f"{value} is not allowed; {allowed} is")
        return value

    return parse


def _milliseconds(text):
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1e5:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; a number above 0 and up to 100000 is")
    return value


def _window(text):
    match = re.fullmatch(r"(-1|\d+)(?:,(-1|\d+))?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no window; LEFT or LEFT,RIGHT is, in keys, -1 for unlimited")
    return int(match[1]), int(match[2] or match[1])


def _pattern(text):
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m tilewise.bench",
        description="Times attention of Tilewise beside what else is installed, after checking every result.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = made.add_argument
    add("--device", choices=("cuda", "cpu"), help="default: cuda if torch sees a GPU, the current one of torch")
    add("--op", nargs="+", choices=OPERATIONS, default=list(OPERATIONS), help="operations (default: all)")
    add("--head-dim", nargs="+", type=_whole(1, MAX_HEAD_DIM), metavar="N")
    add(
        "--seqlen",
        nargs="+",
        type=_whole(2),
        metavar="N",
        help="lengths; of a decode, keys in the cache; ragged, the longest",
    )
    add("--causal", choices=("no", "yes", "both"), default="both", help="not for decode, whose one query sees all")
    add("--tokens", type=_whole(2), metavar="N", help="batch * seqlen (not decode)")
    add("--hidden", type=_whole(1), metavar="N", help="heads * head_dim")
    add("--batch", nargs="+", type=_whole(1), metavar="N", help="of decode")
    add("--gqa", type=_whole(1), metavar="N", help="query heads of one key head (default 1; decode 4)")
    add(
        "--window",
        type=_window,
        metavar="LEFT[,RIGHT]",
        help="keys that a query sees before and after its own; causal: RIGHT is 0",
    )
    add("--dtype", choices=tuple(DTYPE_BYTES), help="default: bf16; on the CPU fp32")
    add(
        "--peers", nargs="*", choices=PEER_NAMES, help="beside Tilewise (default: all that can be used)", metavar="PEER"
    )
    add("--only", type=_pattern, default="", metavar="REGEX", help="cases whose name matches; --list shows the names")
    add("--passes", type=_whole(1), metavar="N", help="samples of each peer (default 7, with --quick 3)")
    add("--sample-ms", type=_milliseconds, metavar="MS", help="length of a sample (default 5; on the CPU 50)")
    add("--quick", action="store_true", help="fewer sizes and passes")
    add("--list", action="store_true", help="only name the cases")
    add("--out", type=Path, metavar="PREFIX", help="PREFIX.json, PREFIX.csv, PREFIX_*.png (default: tilewise_bench)")
    add("--no-charts", action="store_true", help="only JSON and CSV")
    add(
        "--replot",
        type=Path,
        metavar="FILE.json",
        help="only draw the charts of an earlier run, beside its file or at --out",
    )
    return made


def _grid_of(op, options):
    grid = default_grid(op, options.device, options.quick)
    causal = {"no": (False,), "yes": (True,), "both": (False, True)}[options.causal]
    chosen = {
        "head_dims": options.head_dim and tuple(options.head_dim),
        "seqlens": options.seqlen and tuple(options.seqlen),
        "hidden": options.hidden,
        "gqa": options.gqa,
        "tokens": options.tokens,
        "batches": options.batch and tuple(options.batch),
    }
    return replace(grid, causal=causal, **{name: value for name, value in chosen.items() if value is not None})


def selected_cases(options) -> list[Case]:
    """Raises ValueError for sizes that do not fit together and where nothing is left."""
    cases = []
    for op in dict.fromkeys(options.op):
        cases += cases_of(
            op, _grid_of(op, options), options.dtype, options.window, bool(options.batch or options.seqlen)
        )
    chosen = [case for case in cases if re.search(options.only, case.name)]
    if not chosen:
        raise ValueError(f"--only: no case matches {options.only.pattern!r}; --list without it shows their names")
    return chosen


def _write_charts(results, prefix, say) -> bool:
    from . import charts

    try:
        for path in charts.write(results, prefix):
            say(f"wrote {path}")
    except charts.MatplotlibMissing as missing:
        say(f"no charts: {missing}, then --replot {prefix.with_name(prefix.name + '.json')}")
        return False
    return True


def _replot(options) -> int:
    try:
        results = report.read_json(options.replot)
    except ValueError as error:
        parser().error(f"--replot: {error}")
    prefix = options.out or options.replot.with_suffix("")
    return 0 if _write_charts(results, prefix, print) else 1


def _complete(options):
    """Fills in what depends on torch and the device."""
    try:
        import torch
    except ImportError as error:
        parser().error(f"torch does not import ({error}); the benchmark needs it: pip install torch")
    has_gpu = torch.cuda.is_available()
    options.device = options.device or ("cuda" if has_gpu else "cpu")
    if options.device == "cuda" and not has_gpu and not options.list:
        parser().error("--device: cuda is not here, torch sees no GPU; cpu is")
    options.dtype = options.dtype or ("bf16" if options.device == "cuda" else "fp32")
    options.passes = options.passes or (3 if options.quick else 7)
    options.sample_ms = options.sample_ms or (5 if options.device == "cuda" else 50)
    options.out = options.out or Path("tilewise_bench")


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.replot is not None:
        return _replot(options)
    _complete(options)
    try:
        cases = selected_cases(options)
    except ValueError as error:
        parser().error(str(error))
    if options.list:
        print("\n".join(case.name for case in cases))
        return 0
    if not options.out.absolute().parent.is_dir():
        parser().error(f"--out: the folder of {options.out} is not there")
    from .session import run_cases

    words = sys.argv[1:] if arguments is None else arguments
    results, say = run_cases(cases, options, words)
    if not options.no_charts:
        _write_charts(results, options.out, say)
    bad = report.failures(results["cases"])
    for line in bad:
        say(f"TILEWISE FAILED {line}")
    say(f"{len(cases) - len(bad)} of {len(cases)} cases right")
    return 1 if bad else 0
