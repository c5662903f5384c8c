"""`python -m tilewise.bench`: every operation from the command line to its files, what it refuses, and that a wrong
result is found out."""

import csv
import json
import subprocess
import sys

import pytest
import tilewise
import torch
from bench_inputs import DEVICE, DTYPE, arguments, case_of, run, spoiled
from tilewise.bench import cases, checks, command, report, session
from tilewise.bench.errors import Refused
from tilewise.bench.inputs import make_inputs
from tilewise.bench.peer_names import OURS, PEER_NAMES
from tilewise.bench.peers import Peer, find_peers, ours
from tilewise.bench.tolerances import allowed

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("op", cases.OPERATIONS)
def test_a_run_and_its_files(op, tmp_path, capsys):
    prefix = tmp_path / "small"
    assert run(prefix, *arguments(op)) == 0
    text = capsys.readouterr().out
    results = json.loads((tmp_path / "small.json").read_text())
    assert results["about"]["device"] and results["about"]["torch"] == torch.__version__ and results["about"]["date"]
    assert results["command"][:3] == ["python", "-m", "tilewise.bench"] and "--hidden" in results["command"]
    assert len(results["cases"]) == (2 if op == "decode" else 4)
    for case in results["cases"]:
        mine = case["results"][OURS]
        assert mine["status"] == "ok" and 0 < mine["p10_us"] <= mine["median_us"] <= mine["p90_us"]
        assert mine["tflops"] == pytest.approx(case["flops"] / mine["median_us"] * 1e-6)
        assert case["kernel"] and case["name"] in text
        assert (mine["peak_bytes"] is None) == (DEVICE == "cpu")
        on_gpu = "graph" if op in ("decode", "ragged") else "events"
        assert mine["method"] == ("host clock" if DEVICE == "cpu" else on_gpu), mine.get("note")
        if op == "decode":
            assert mine["gb_per_s"] == pytest.approx(case["kv_bytes"] / mine["median_us"] * 1e-3)
        assert case["results"]["sdpa-math"]["status"] == "ok" or op == "ragged"
        for name, result in case["results"].items():
            assert result["status"] == "ok" or (result["reason"] and f"{name} does not serve it" in text)
    with (tmp_path / "small.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == sum(len(case["results"]) for case in results["cases"])
    assert {row["peer"] for row in rows} >= {OURS, "sdpa-math"} and all(row["op"] == op for row in rows)
    charts = {op, "memory"} if DEVICE == "cuda" and op in ("forward", "backward") else {op}
    assert {path.name for path in tmp_path.glob("*.png")} == {f"small_{chart}.png" for chart in charts}
    assert all(path.read_bytes().startswith(PNG) for path in tmp_path.glob("*.png"))


def test_the_module_runs(tmp_path):
    """In a process of its own, where other output of torch would show too."""
    words = [*arguments("forward"), "--only", "causal s64 b1", "--no-charts", "--out", str(tmp_path / "x")]
    done = subprocess.run([sys.executable, "-m", "tilewise.bench", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[1/1] forward" in done.stdout and "1 of 1 cases right" in done.stdout
    assert f"  {OURS}: Tilewise, {tilewise.__version__}\n" in done.stdout
    assert all(f"\n  {name}: " in done.stdout for name in PEER_NAMES), "every peer is named, or why it is not there"


def test_grouped_heads_a_window_and_another_type(tmp_path):
    words = ["--gqa", "2", "--window", "7", "--dtype", "bf16"]
    for op in cases.OPERATIONS:
        assert run(tmp_path / op, *arguments(op, *words)) == 0
        for case in json.loads((tmp_path / f"{op}.json").read_text())["cases"]:
            assert case["heads"] == 2 * case["heads_kv"]
            assert case["window"] == [7, 0 if case["causal"] or op == "decode" else 7]
            assert case["results"][OURS]["error"] < 2**-6
            if op != "ragged":
                assert case["results"]["sdpa-math"]["status"] == "ok"


@pytest.mark.parametrize("op", ["forward", "backward", "decode", "ragged"])
def test_a_wrong_peer_is_flagged_and_not_timed(op, tmp_path, capsys, monkeypatch):
    wrong = spoiled("wrong", lambda o: o.mul_(1.2))
    monkeypatch.setattr(session, "find_peers", lambda names, device: ([ours(device), wrong], {}))
    assert run(tmp_path / "x", *arguments(op, "--no-charts")) == 0, "ours is right"
    for case in json.loads((tmp_path / "x.json").read_text())["cases"]:
        assert case["results"][OURS]["status"] == "ok"
        assert case["results"]["wrong"]["status"] == "wrong" and "median_us" not in case["results"]["wrong"]
    assert "wrong IS WRONG: o is off by" in capsys.readouterr().out


def test_one_wrong_row_outside_of_the_sample_is_flagged(monkeypatch, tmp_path):
    """The sample has the first and the last sequence. The comparison with ours finds the others, and the reference says
    whose fault it is."""

    def spoil(o):
        o[1, 20, 1] += 0.5

    wrong = spoiled("wrong", spoil)
    monkeypatch.setattr(session, "find_peers", lambda names, device: ([ours(device), wrong], {}))
    words = ["--seqlen", "33", "--tokens", "99", "--no-charts"]
    assert run(tmp_path / "x", *arguments("forward", *words)) == 0
    for case in json.loads((tmp_path / "x.json").read_text())["cases"]:
        assert case["batch"] == 3 and case["results"][OURS]["status"] == "ok"
        assert "sequence 1, key head 1" in case["results"]["wrong"]["reason"]


def test_a_wrong_gradient_is_flagged(monkeypatch, tmp_path):
    class Halved(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad):
            return grad * 0.5

    right = ours(DEVICE)

    def bind(case, inputs):
        attend = right.bind(case, inputs)
        return lambda q, k, v: attend(q, Halved.apply(k), v)

    wrong = Peer("wrong", "wrong", "made up", bind)
    monkeypatch.setattr(session, "find_peers", lambda names, device: ([right, wrong], {}))
    assert run(tmp_path / "x", *arguments("backward", "--no-charts")) == 0
    for case in json.loads((tmp_path / "x.json").read_text())["cases"]:
        assert case["results"]["wrong"]["reason"].startswith("grad_k is off by")


@pytest.mark.parametrize("spoil", [lambda o: o.mul_(0.9), lambda o: o[..., 0].fill_(float("nan"))])
def test_the_exit_code_says_that_ours_is_wrong(spoil, tmp_path, capsys, monkeypatch):
    right = Peer("right", "right", "made up", ours(DEVICE).bind)
    monkeypatch.setattr(session, "find_peers", lambda names, device: ([spoiled(OURS, spoil), right], {}))
    assert run(tmp_path / "x", *arguments("forward", "--no-charts")) == 1
    text = capsys.readouterr().out
    assert "TILEWISE FAILED forward" in text and "0 of 4 cases right" in text
    results = json.loads((tmp_path / "x.json").read_text())
    assert {case["results"]["right"]["status"] for case in results["cases"]} == {"ok"}


def test_a_peer_that_refuses_gets_its_reason(tmp_path, capsys, monkeypatch):
    def bind(case, inputs):
        if case.causal:
            raise Refused("no causal mask here")
        raise RuntimeError("broken\nin several lines")

    peer = Peer("picky", "picky", "made up", bind)
    monkeypatch.setattr(session, "find_peers", lambda names, device: ([ours(device), peer], {"gone": "not installed"}))
    assert run(tmp_path / "x", *arguments("forward", "--no-charts")) == 0
    text = capsys.readouterr().out
    assert "picky does not serve it: no causal mask here" in text
    assert "picky does not serve it: RuntimeError: broken\n" in text and "gone: skipped: not installed" in text


@pytest.mark.parametrize("op", cases.OPERATIONS)
@pytest.mark.parametrize("mask", [{}, {"causal": True}, {"window": (5, 3)}])
def test_the_reference_is_that_of_float64(op, mask):
    """checks.exact against this package's own double-precision kernel, where that exists: on the CPU. The scale, 1/4,
    is exact in float32 too."""
    if op == "decode":
        mask = {"window": (5, 0)} if "window" in mask else {}
    case = case_of(op, head_dim=16, lengths=(24, 7) if op == "ragged" else None, **mask)
    inputs = make_inputs(case, "cpu")
    wide = [x.detach().double().requires_grad_(op == "backward") for x in inputs.sets[0]]
    o = ours("cpu").bind(case, inputs)(*wide)
    outputs = {"o": o.detach()}
    if op == "backward":
        gradients = torch.autograd.grad(o, wide, inputs.grad_o.double())
        outputs |= dict(zip(("grad_q", "grad_k", "grad_v"), gradients))
    for place in checks.sampled_places(case, "cpu"):
        error, fault = checks.fault_of(case, outputs, checks.exact(case, inputs, place), place)
        assert fault is None and error < 1e-12


def test_tolerances_are_for_the_worst_row():
    exact = torch.ones(100, 16)
    for dtype in cases.DTYPE_BYTES:
        found = exact.clone()
        found[7] *= 1 + 1.1 * allowed(dtype, "o")
        assert allowed(dtype, "o") < checks.row_errors(found, exact).max() < allowed(dtype, "grad_q")
    found = exact.clone()
    found[3, 4] = float("inf")
    assert checks.row_errors(found, exact)[3] == float("inf")


def test_flops_are_the_field_s():
    def flops(op, **fields):
        return cases.Case(op, "bf16", 128, 16, 16, 4, 4096, **fields).flops

    full = 4 * 4096 * 4096 * 128 * 16 * 4
    assert flops("forward") == full and flops("forward", causal=True) == full / 2
    assert flops("backward") == 2.5 * full and flops("backward", causal=True) == 1.25 * full
    assert flops("decode") == full / 4096
    ragged = cases.Case("ragged", "bf16", 64, 2, 2, 3, 10, lengths=(10, 3, 7))
    assert ragged.flops == 4 * (100 + 9 + 49) * 64 * 2
    one = cases.Case("forward", "bf16", 1, 1, 1, 1, 6, causal=True, window=(2, 0))
    assert one.flops == 4 * (1 + 2 + 3 * 4)
    assert cases.visible_pairs(2, 5, False, (1, 1)) == 3 + 2


def test_bytes_of_a_decode():
    case = cases.Case("decode", "bf16", 128, 32, 8, 16, 1000)
    assert case.kv_bytes == 2 * 16 * 1000 * 8 * 128 * 2
    assert cases.Case("decode", "fp32", 128, 32, 8, 16, 1000, window=(99, 0)).kv_bytes == 2 * 16 * 100 * 8 * 128 * 4


def test_the_grid_is_the_field_s():
    grid = cases.default_grid("forward", "cuda", quick=False)
    made = cases.cases_of("forward", grid, "bf16", None)
    assert len(made) == 36
    assert all(case.batch * case.seqlen == 16384 and case.heads * case.head_dim == 2048 for case in made)
    lengths = cases.ragged_lengths(512, 16384)
    assert sum(lengths) == 16384 and max(lengths) == 512 and lengths == cases.ragged_lengths(512, 16384)


@pytest.mark.parametrize(
    "words, told",
    [
        (["--op", "sideways"], "'sideways'"),
        (["--head-dim", "257"], "257 is not allowed; a whole number from 1 to 256 is"),
        (["--passes", "0"], "0 is not allowed; a whole number of at least 1 is"),
        (["--passes", "few"], "'few' is no number"),
        (["--seqlen", "1"], "1 is not allowed"),
        (["--sample-ms", "0"], "'0' is not allowed; a number above 0"),
        (["--window", "3,x"], "'3,x' is no window"),
        (["--only", "("], "'(' is no regular expression"),
        (["--only", "nothing like it"], "--only: no case matches 'nothing like it'"),
        (["--hidden", "32", "--head-dim", "64"], "--hidden: 32 has no room for 1 heads of 64; at least 64 is needed"),
        (["--peers", "somebody"], "'somebody'"),
        (["--out", "no/such/folder/x"], "--out: the folder of no/such/folder/x is not there"),
        (["--replot", "nowhere.json"], "--replot: nowhere.json: cannot be read"),
    ],
)
def test_bad_options_are_refused(words, told, capsys):
    with pytest.raises(SystemExit) as stop:
        command.main(["--device", DEVICE, *words])
    assert stop.value.code == 2 and told in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_a_gpu_that_is_not_here_is_refused(capsys):
    with pytest.raises(SystemExit):
        command.main(["--device", "cuda"])
    assert "--device: cuda is not here" in capsys.readouterr().err


def test_list_names_the_cases(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command.main([*arguments("decode"), "--list"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"decode {DTYPE} d32 kv{n} b2 h2/1" for n in (40, 80)]
    assert not list(tmp_path.iterdir())


def test_peers_are_found_in_order():
    found, absent = find_peers(None, DEVICE)
    assert found[0].name == OURS and found[-1].name == "sdpa-math" and all(absent.values())
    only, absent = find_peers(["sdpa-math"], DEVICE)
    assert [peer.name for peer in only] == [OURS, "sdpa-math"] and absent == {}


def test_other_files_are_no_results(tmp_path):
    for text, told in (("{", "is no JSON"), ('{"cells": []}', "is no result of tilewise.bench")):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(ValueError, match=told):
            report.read_json(tmp_path / "x.json")


def test_the_package_does_not_import_it():
    code = "import sys, tilewise; assert not any(name.startswith('tilewise.bench') for name in sys.modules)"
    assert tilewise.__version__ and subprocess.run([sys.executable, "-c", code]).returncode == 0
