"""Charts, progress and the facts about the machine of `python -m tilewise.bench`, from results that are made up."""

import io
import json
import sys

import pytest
from tilewise.bench import charts, command, machine, report, timing
from tilewise.bench.peer_names import OURS, PEER_NAMES
from tilewise.bench.progress import Progress


def result(factor):
    rates = {"tflops": 90 * factor, "gb_per_s": 800 * factor}
    return {"status": "ok", "median_us": 100 / factor, **rates, "peak_bytes": 2**27}


def case_with(op, **fields):
    case = {"op": op, "name": op, "dtype": "bf16", "head_dim": 64, "causal": False, "heads": 8, "heads_kv": 8}
    case |= {"batch": 4, "seqlen": 1024, "window": None, "lengths": None, **fields}
    case["results"] = {OURS: result(4), "sdpa-math": result(1 + case["seqlen"] / 4096)}
    return case


@pytest.fixture
def results():
    made = [
        case_with(op, head_dim=head_dim, causal=causal, seqlen=seqlen)
        for op in ("forward", "backward", "ragged")
        for head_dim in (64, 128)
        for causal in (False, True)
        for seqlen in (512, 2048)
    ]
    made += [case_with("decode", batch=batch, seqlen=seqlen) for batch in (1, 16) for seqlen in (1024, 4096)]
    about = {"device": "Made up", "driver": "1.2", "torch": "2.11.0", "date": "2026-01-02"}
    peers = {OURS: {"label": "Tilewise", "version": "0"}, "sdpa-math": {"label": "math (torch SDPA)", "version": "0"}}
    return {"tool": "tilewise.bench", "schema": report.SCHEMA, "about": about, "peers": peers, "cases": made}


def test_charts_again_from_a_file(results, tmp_path, capsys):
    path = tmp_path / "made.up.json"
    path.write_text(json.dumps(results))
    assert command.main(["--replot", str(path)]) == 0
    names = {f"made.up_{name}.png" for name in ("forward", "backward", "ragged", "decode", "memory")}
    assert {found.name for found in tmp_path.glob("*.png")} == names
    told = capsys.readouterr().out
    assert all(f"wrote {tmp_path / name}" in told for name in names)
    assert command.main(["--replot", str(path), "--out", str(tmp_path / "other")]) == 0
    assert (tmp_path / "other_memory.png").exists()


def test_what_a_chart_shows(results):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    figure = charts.figures(results)["forward"]
    panels = [axes for axes in figure.axes if axes.lines]
    assert [axes.get_title() for axes in panels] == [
        "head_dim 64, no mask",
        "head_dim 128, no mask",
        "head_dim 64, causal",
        "head_dim 128, causal",
    ]
    for axes in panels:
        lines = {line.get_label(): line for line in axes.lines}
        assert list(lines[OURS].get_ydata()) == [360, 360] and list(lines[OURS].get_xdata()) == [512, 2048]
        assert lines[OURS].get_linewidth() > lines["sdpa-math"].get_linewidth()
        low, high = axes.get_ylim()
        assert low == 0 and high > 360, "no line leaves its panel"
    texts = " ".join(text.get_text() for text in figure.texts)
    assert "Made up" in texts and "2026-01-02" in texts and "TFLOP/s" in texts and "4k tokens" not in texts
    assert {text.get_text() for text in figure.legends[0].get_texts()} == {"Tilewise", "math (torch SDPA)"}


def test_wrong_and_missing_results_are_not_drawn(results):
    for case in results["cases"]:
        case["results"]["sdpa-math"] = {"status": "wrong", "reason": "made up", "error": 1.0}
        case["results"][OURS]["peak_bytes"] = None
    assert set(charts.series(results["cases"], "tflops")) == {OURS}
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    assert set(charts.figures(results)) == {"forward", "backward", "ragged", "decode"}


def test_without_matplotlib_it_says_so(results, tmp_path, capsys, monkeypatch):
    for name in ("matplotlib", "matplotlib.figure", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(sys.modules, name, None)
    path = tmp_path / "x.json"
    path.write_text(json.dumps(results))
    assert command.main(["--replot", str(path)]) == 1
    assert "no charts: charts need matplotlib" in capsys.readouterr().out and not list(tmp_path.glob("*.png"))


def test_every_peer_has_a_colour_and_a_marker_of_its_own():
    styles = [charts.STYLES[name] for name in (OURS, *PEER_NAMES)]
    assert len({colour for colour, _ in styles}) == len({marker for _, marker in styles}) == len(styles)


def test_lines_and_summary(results):
    ours, other = case_with("forward"), case_with("decode")
    other["results"]["sdpa-math"] = {"status": "refused", "reason": "no memory"}
    assert report.case_lines(ours) == ["forward: tilewise 25.0 us, 360 TFLOP/s; sdpa-math 80.0 us (3.20x)"]
    refused = "    sdpa-math does not serve it: no memory"
    assert report.case_lines(other) == ["decode: tilewise 25.0 us, 3200 GB/s", refused]
    lines = report.summary_lines([ours, other])
    assert lines == ["forward: tilewise 3.20x as fast as sdpa-math (geometric mean of 1; 3.20 to 3.20)"]
    assert report.failures([ours, other, {"name": "lost", "results": {}}]) == ["lost: no result"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_on_a_terminal_and_plain_lines_without_tqdm(monkeypatch):
    pytest.importorskip("tqdm", reason="tqdm is not installed")
    for missing in (False, True):
        if missing:
            monkeypatch.setitem(sys.modules, "tqdm", None)
        out, err = Terminal(), Terminal()
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        progress = Progress(2)
        progress.start("first case")
        progress.finish(["first case: 1 us", "    a note"])
        progress.close()
        assert ("first case" in err.getvalue() and "0/2" in err.getvalue()) != missing
        assert ("[1/2] first case: 1 us" in out.getvalue()) == missing and "    a note\n" in out.getvalue()


def test_samples_are_interleaved():
    """Each pass samples each function once, and no function is always the first."""
    calls = []
    steps = {name: timing.Step(lambda n, name=name: calls.append(name)) for name in "abc"}
    found = timing.measure(steps, 3, 1e-9, "cpu")
    timed = calls[-9:]
    assert ["".join(timed[n : n + 3]) for n in (0, 3, 6)] == ["abc", "bca", "cab"]
    assert all(found[name].method == "host clock" and found[name].calls == 1 for name in "abc")


def test_a_step_of_several_calls_is_divided():
    slow = timing.Step(lambda n: sum(range(20000)), calls=10)
    fast = timing.Step(lambda n: sum(range(20000)))
    found = timing.measure({"ten": slow, "one": fast}, 5, 2e-3, "cpu")
    assert 5 < found["one"].median / found["ten"].median < 20


def test_clocks_are_summed_up():
    rows = [["1500", " 600.5", " 60"], ["1700", " 700", " 64"], ["[N/A]", " 1", " 1"], ["1600", " 650", " 62"], []]
    found = machine.summary_of(rows)
    assert found["sm_mhz"] == {"median": 1600, "lowest": 1500, "highest": 1700}
    assert found["temperature_c"]["highest"] == 64
    assert machine.summary_of([["no", "nvidia-smi", "here"]]) is None
    assert machine.Clocks("cpu").stop() is None
