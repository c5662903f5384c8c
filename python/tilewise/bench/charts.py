"""Results as pictures, by matplotlib: PREFIX_forward.png and so on (TFLOP/s over length), PREFIX_decode.png (GB/s
over keys), PREFIX_memory.png.

A panel is a head_dim and a mask; a line is a peer, ours the thick one. Colours are Okabe and Ito's, which people of
every colour vision tell apart; each peer also has a marker of its own.
"""

from __future__ import annotations

from pathlib import Path

from .peer_names import OURS

# Peer -> colour and marker, the same in every picture.
STYLES = {
    OURS: ("#D55E00", "o"),
    "sdpa-cudnn": ("#0072B2", "s"),
    "fa3": ("#009E73", "^"),
    "fa4": ("#E69F00", "D"),
    "sdpa-flash": ("#56B4E9", "v"),
    "flash_attn": ("#332288", "P"),
    "flashinfer": ("#000000", "X"),
    "sdpa-efficient": ("#CC79A7", "<"),
    "sdpa-math": ("#888888", "x"),
}
_OTHER = ("#666666", "*")
_INK, _SOFT = "#222222", "#666666"
_PANEL = (3.7, 2.75)  # inches
_EDGE_TOP, _EDGE_BOTTOM, _EDGE_LEFT, _EDGE_RIGHT = 1.25, 1.15, 0.85, 0.3  # inches
_LEAST_WIDTH = 7.5
_DPI = 150
_TITLES = {"forward": "Forward", "backward": "Backward", "ragged": "Ragged batches, forward", "decode": "Decode"}


class MatplotlibMissing(Exception):
    """matplotlib cannot be imported."""


def _matplotlib():
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MatplotlibMissing(
            f"charts need matplotlib, which does not import ({error}); pip install matplotlib"
        ) from None
    return Figure, FigureCanvasAgg


def length_text(length: int) -> str:
    return f"{length // 1024}k" if length >= 1024 and length % 1024 == 0 else str(length)


def series(cases: list[dict], value: str) -> dict[str, list[tuple[int, float]]]:
    """Peer -> (length, value) of the cases in which it was right and has the value, by length."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for case in sorted(cases, key=lambda case: case["seqlen"]):
        for peer, result in case["results"].items():
            if result["status"] == "ok" and result.get(value) is not None:
                lines.setdefault(peer, []).append((case["seqlen"], result[value]))
    return lines


def _draw(axes, cases, value, scale, is_halo=False):
    """Lines of all peers. As a halo ours is broad and below the others, so that lines which lie on each other all
    show."""
    own_style = (
        {"linewidth": 8, "markersize": 11, "zorder": 2}
        if is_halo
        else {"linewidth": 3.4, "markersize": 7.5, "zorder": 4}
    )
    for peer, points in series(cases, value).items():
        colour, marker = STYLES.get(peer, _OTHER)
        lengths, heights = zip(*points)
        style = own_style if peer == OURS else {"linewidth": 1.7, "markersize": 5.5, "zorder": 3}
        axes.plot(
            lengths,
            [height * scale for height in heights],
            label=peer,
            color=colour,
            marker=marker,
            markeredgecolor="white" if marker != "x" else colour,
            markeredgewidth=0.8,
            **style,
        )
    lengths = sorted({case["seqlen"] for case in cases})
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [length_text(length) for length in lengths])
    axes.xaxis.minorticks_off()
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#AAAAAA")
    axes.tick_params(color="#AAAAAA", labelcolor=_INK, labelsize=9.5)


def _grid(rows, columns):
    figure_class, canvas = _matplotlib()
    width = _EDGE_LEFT + _EDGE_RIGHT + columns * _PANEL[0]
    height = _EDGE_TOP + _EDGE_BOTTOM + rows * _PANEL[1]
    figure = figure_class(figsize=(max(width, _LEAST_WIDTH), height), dpi=_DPI, facecolor="white")
    canvas(figure)
    panels = figure.subplots(rows, columns, sharex="col", sharey=True, squeeze=False)
    return figure, panels


def _finish(figure, titles, labels, peers):
    """Titles, axis labels and the legend, which stands below the panels."""
    title, *subtitles = titles
    width, height = figure.get_size_inches()
    left = _EDGE_LEFT / width
    figure.subplots_adjust(
        left=left,
        right=1 - _EDGE_RIGHT / width,
        top=1 - _EDGE_TOP / height,
        bottom=_EDGE_BOTTOM / height,
        wspace=0.09,
        hspace=0.24,
    )
    figure.text(left, 1 - 0.3 / height, title, fontsize=14, fontweight="bold", color=_INK, va="center")
    for n, subtitle in enumerate(subtitles):
        figure.text(left, 1 - (0.56 + 0.2 * n) / height, subtitle, fontsize=9.5, color=_SOFT, va="center")
    x_label, y_label = labels
    middle = (left + 1 - _EDGE_RIGHT / width) / 2
    figure.text(middle, (_EDGE_BOTTOM - 0.43) / height, x_label, fontsize=10.5, color=_INK, ha="center", va="center")
    centre = (1 - _EDGE_TOP / height + _EDGE_BOTTOM / height) / 2
    figure.text(0.22 / width, centre, y_label, fontsize=10.5, color=_INK, rotation=90, ha="center", va="center")
    handles = {}
    for axes in figure.axes:
        handles |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels())}
    ordered = sorted(handles, key=lambda peer: list(STYLES).index(peer) if peer in STYLES else len(STYLES))
    texts = [peers.get(peer, {}).get("label", peer) for peer in ordered]
    legend = figure.legend(
        [handles[peer] for peer in ordered],
        texts,
        loc="lower center",
        bbox_to_anchor=(middle, 0.08 / height),
        ncols=min(len(ordered), max(2, int(width / 2.6))),
        frameon=False,
        fontsize=9.5,
        handlelength=2.4,
        columnspacing=1.6,
    )
    for text, peer in zip(legend.get_texts(), ordered):
        text.set(color=_INK, fontweight="bold" if peer == OURS else "normal")


def _where(results):
    about = results["about"]
    driver = f"driver {about['driver']}" if about.get("driver") else None
    return " · ".join(filter(None, (about["device"], driver, f"torch {about['torch']}", about["date"])))


def _sizes(cases):
    first = cases[0]
    heads = first["heads"] * first["head_dim"]
    group = first["heads"] // first["heads_kv"]
    texts = [first["dtype"], f"hidden {heads}"]
    if group > 1:
        texts.append(f"{group} query heads a key head")
    if first["op"] != "decode":
        tokens = sum(first["lengths"]) if first["lengths"] else first["batch"] * first["seqlen"]
        texts.insert(1, f"{length_text(tokens)} tokens")
    if first["window"]:
        texts.append(f"window {first['window'][0]}, {first['window'][1]}")
    return ", ".join(texts)


def _values(cases, name):
    return sorted({case[name] for case in cases})


def _highest(cases, value):
    return max(height for points in series(cases, value).values() for _, height in points)


def _rates(results, op, cases):
    """TFLOP/s over length: a row of panels for each mask, a column for each head_dim."""
    masks, dims = _values(cases, "causal"), _values(cases, "head_dim")
    figure, panels = _grid(len(masks), len(dims))
    top = _highest(cases, "tflops")
    unit, scale = ("TFLOP/s", 1) if top >= 2 else ("GFLOP/s", 1000)
    for row, causal in zip(panels, masks):
        for axes, head_dim in zip(row, dims):
            _draw(
                axes,
                [case for case in cases if (case["causal"], case["head_dim"]) == (causal, head_dim)],
                "tflops",
                scale,
            )
            axes.set_title(f"head_dim {head_dim}, {'causal' if causal else 'no mask'}", fontsize=10.5, color=_INK)
    panels[0, 0].set_ylim(0, 1.08 * top * scale)
    x_label = "longest sequence" if op == "ragged" else "sequence length"
    titles = (f"{_TITLES[op]}: {unit}, higher is better", _where(results), _sizes(cases))
    _finish(figure, titles, (x_label, unit), results["peers"])
    return figure


def _bandwidth(results, cases):
    """GB/s of a decode over the number of keys: a column of panels for each batch, a row for each head_dim."""
    batches, dims = _values(cases, "batch"), _values(cases, "head_dim")
    figure, panels = _grid(len(dims), len(batches))
    for row, head_dim in zip(panels, dims):
        for axes, batch in zip(row, batches):
            chosen = [case for case in cases if (case["batch"], case["head_dim"]) == (batch, head_dim)]
            if not chosen:
                axes.set_visible(False)
                continue
            _draw(axes, chosen, "gb_per_s", 1)
            axes.set_title(f"batch {batch}, head_dim {head_dim}", fontsize=10.5, color=_INK)
    panels[0, 0].set_ylim(0, 1.08 * _highest(cases, "gb_per_s"))
    titles = (f"{_TITLES['decode']}: GB/s of keys and values, higher is better", _where(results), _sizes(cases))
    _finish(figure, titles, ("keys of each sequence", "GB/s"), results["peers"])
    return figure


def _memory(results, cases):
    """MiB over length: a row of panels for each operation, a column for each head_dim; causal where there is causal."""
    causal = any(case["causal"] for case in cases)
    cases = [case for case in cases if case["causal"] == causal]
    ops = [op for op in ("forward", "backward") if op in _values(cases, "op")]
    dims = _values(cases, "head_dim")
    figure, panels = _grid(len(ops), len(dims))
    for row, op in zip(panels, ops):
        for axes, head_dim in zip(row, dims):
            _draw(
                axes,
                [case for case in cases if (case["op"], case["head_dim"]) == (op, head_dim)],
                "peak_bytes",
                2**-20,
                is_halo=True,
            )
            what = "forward + backward" if op == "backward" else "forward"
            axes.set_title(
                f"{what}, head_dim {head_dim}, {'causal' if causal else 'no mask'}", fontsize=10.5, color=_INK
            )
            axes.set_yscale("log")
            axes.yaxis.minorticks_off()
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    titles = ("Memory above the inputs: MiB, lower is better", _where(results), _sizes(cases))
    _finish(figure, titles, ("sequence length", "MiB (logarithmic)"), results["peers"])
    return figure


def figures(results: dict) -> dict:
    """Name -> matplotlib figure, of what the results have figures for."""
    timed = [case for case in results["cases"] if series([case], "median_us")]
    made = {}
    for op in ("forward", "backward", "ragged"):
        cases = [case for case in timed if case["op"] == op]
        if cases:
            made[op] = _rates(results, op, cases)
    decodes = [case for case in timed if case["op"] == "decode"]
    if decodes:
        made["decode"] = _bandwidth(results, decodes)
    weighed = [case for case in timed if case["op"] in ("forward", "backward") and series([case], "peak_bytes")]
    if weighed:
        made["memory"] = _memory(results, weighed)
    return made


def write(results: dict, prefix: Path) -> list[Path]:
    """Writes PREFIX_name.png for each figure. Raises MatplotlibMissing."""
    paths = []
    for name, figure in figures(results).items():
        path = prefix.with_name(f"{prefix.name}_{name}.png")
        figure.savefig(path)
        paths.append(path)
    return paths
