"""`python -m tilewise.bench`: its figures, its files, its verdicts and what it refuses, on small sizes."""

import csv
import json
import sys
import types
from pathlib import Path

import pytest
import tilewise
from tilewise.bench import charts, checks, peers
from tilewise.bench.__main__ import main, parse, run
from tilewise.bench.cases import OPS, Case, bytes_of, flops_of, inputs_of
from tilewise.bench.measure import Judge, measure

SMALL = ["--device=cpu", "--head-dims=16", "--seqlens=16,32", "--tokens=64", "--hidden=32", "--passes=2", "--pass-us=100"]


def ours():
    return peers.available()[0][0]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    assert main([*SMALL, "--out", str(folder)]) == 0
    return folder, json.loads((folder / "python.json").read_text())


def test_every_operation_has_rows_of_every_peer(results):
    rows = results[1]["rows"]
    names = {peer.name for peer in peers.available()[0]}
    for op in OPS:
        assert {row["peer"] for row in rows if row["op"] == op} == names
    mine = [row for row in rows if row["peer"] == "tilewise"]
    assert len(mine) == 2 * (2 + 2 + 1 + 2) and all(row["status"] == "ok" and row["us"] > 0 for row in mine)
    assert all(row["status"] == "ok" for row in rows if row["peer"] == "sdpa-math" and row["op"] != "ragged")
    assert all(row["reason"] for row in rows if row["status"] != "ok")
    assert all((row["gbps"] is not None) == (row["op"] == "decode") for row in mine)


def test_the_files_say_what_was_measured(results):
    folder, about = results
    assert {"card", "driver", "torch", "date", "command", "versions", "absent", "method"} <= set(about)
    assert about["versions"]["tilewise"] == tilewise.__version__ and "--seqlens=16,32" in about["command"]
    with open(folder / "python.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert [(row["case"], row["peer"]) for row in table] == [(row["case"], row["peer"]) for row in about["rows"]]


def test_charts(results):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    drawn = {file.name for file in results[0].glob("*.png")}
    assert drawn == {"python_forward.png", "python_backward.png", "python_ragged.png", "python_decode.png"}
    assert all((results[0] / name).read_bytes().startswith(b"\x89PNG") for name in drawn)


def test_replot_draws_memory_where_it_was_measured(results, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    about = {**results[1], "rows": [{**row, "peak_bytes": 2**20} for row in results[1]["rows"]]}
    (tmp_path / "run.json").write_text(json.dumps(about))
    assert main(["--replot", str(tmp_path / "run.json")]) == 0
    assert {file.name for file in tmp_path.glob("*.png")} == set(charts.CHARTS)


def test_without_matplotlib_the_tables_are_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main([*SMALL, "--only=forward d16 full s16 ", "--out", str(tmp_path)]) == 0
    assert "pip install matplotlib" in capsys.readouterr().err
    assert {file.name for file in tmp_path.iterdir()} == {"python.json", "python.csv"}


def wrong(q, k, v, case, cu_seqlens):
    return 1.01 * ours().attend(q, k, v, case, cu_seqlens)


def refusing(q, k, v, case, cu_seqlens):
    raise RuntimeError("not on a Tuesday")


@pytest.mark.parametrize("op", OPS)
def test_a_wrong_and_a_refusing_peer_get_a_line_that_says_why(op, capsys):
    options = parse([*SMALL, f"--ops={op}", "--causal=no", "--seqlens=16"])
    others = [peers.Peer("wrong", wrong), peers.Peer("refusing", refusing)]
    assert run(options, [ours(), *others], {}, []) == 0
    text = capsys.readouterr().out
    assert "wrong           wrong: differs from the float32 reference by" in text
    assert "refusing        refused: not on a Tuesday" in text


def test_a_peer_wrong_at_full_size_alone():
    def attend(q, k, v, case, cu_seqlens):
        return ours().attend(q, k, v, case, cu_seqlens) * (1 if case.seqlen < 161 else 1.01)

    options = parse(["--device=cpu", "--passes=1", "--only=forward d64 full s256"])
    rows = measure(options.cases[0], [ours(), peers.Peer("late", attend)], options, Judge())
    assert [row["status"] for row in rows] == ["ok", "wrong"] and "differs from ours" in rows[1]["reason"]


@pytest.mark.parametrize("attend, status", [(wrong, "wrong"), (refusing, "refused")])
def test_the_exit_code_is_1_if_ours_is_wrong_or_missing(attend, status, capsys):
    options = parse([*SMALL, "--ops=forward", "--causal=no", "--seqlens=16"])
    assert run(options, [peers.Peer(peers.OURS, attend)], {}, []) == 1
    assert f"tilewise is {status}" in capsys.readouterr().err


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("causal", [False, True])
def test_ours_and_the_reference_agree_on_fewer_key_heads_and_windows(op, window, causal):
    case = Case(op, 16, 40, 2, 4, 2, causal and op != "decode", window, "fp32")
    inputs = inputs_of(case)
    found = checks.results_of(ours(), case, inputs)
    assert checks.difference(found, checks.reference_results(case, inputs)) < checks.tolerance_of(case)


def test_flops_and_bytes():
    forward = Case("forward", 64, 100, 2, 4, 2)
    assert flops_of(forward) == 4 * 2 * 4 * 100 * 100 * 64
    assert flops_of(Case("forward", 64, 100, 2, 4, 2, causal=True)) == flops_of(forward) / 2
    assert flops_of(Case("backward", 64, 100, 2, 4, 2)) == flops_of(forward) * 2.5
    assert flops_of(Case("decode", 64, 100, 2, 4, 2)) == flops_of(forward) / 100
    assert bytes_of(Case("decode", 64, 100, 2, 4, 2, dtype="bf16")) == 2 * 2 * 100 * 2 * 64 * 2
    ragged = Case("ragged", 64, 100, 3, 4, 4)
    assert flops_of(ragged) == 4 * 4 * 64 * sum(n * n for n in ragged.lengths) and ragged.lengths[0] == 100
    # Rows 0 to 3 see 1, 2, 2, 2 keys; without causal 2, 3, 3, 2.
    assert flops_of(Case("forward", 1, 4, 1, 1, 1, causal=True, window=1)) == 4 * 7
    assert flops_of(Case("forward", 1, 4, 1, 1, 1, window=1)) == 4 * 10


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--ops=sideways"], "'sideways'; allowed: forward, backward, decode, ragged"),
        (["--head-dims=0"], "head_dim is '0'; allowed: 1 to 256"),
        (["--head-dims=64,257"], "head_dim is '257'; allowed: 1 to 256"),
        (["--passes=0"], "passes is '0'; allowed: 1 or more"),
        (["--only=("], "no regular expression"),
        (["--only=nothing like this"], "matches no case"),
        (["--heads-kv=3"], "3 does not divide the 4 heads"),
        (["--replot=nowhere.json"], "there is no file nowhere.json"),
    ],
)
def test_refusals(arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--device=cpu", *arguments])
    assert stopped.value.code == 2 and message in capsys.readouterr().err


def test_list_prints_the_cases_and_measures_nothing(capsys):
    assert main(["--device=cpu", "--list", "--ops=forward", "--quick"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and all(line.startswith("forward d64 ") for line in lines)


def test_the_drop_in_does_not_pose_as_flash_attn(monkeypatch):
    module = types.ModuleType("flash_attn")
    module.__file__ = str(Path(tilewise.__file__).resolve())
    monkeypatch.setitem(sys.modules, "flash_attn", module)
    found, absent = peers.available()
    assert "fa2" not in {peer.name for peer in found} and "own drop-in" in absent["fa2"]
