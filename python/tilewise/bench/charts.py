"""Charts of a run as PNG. matplotlib is imported here alone, and only when a chart is drawn."""

from __future__ import annotations

from .peers import OURS

# Okabe and Ito's palette, which colour-blind readers can tell apart; markers tell the lines apart without colour.
STYLES = {
    OURS: ("#D55E00", "o"),
    "sdpa-flash": ("#0072B2", "s"),
    "sdpa-cudnn": ("#009E73", "^"),
    "sdpa-efficient": ("#CC79A7", "v"),
    "sdpa-math": ("#999999", "x"),
    "fa2": ("#56B4E9", "D"),
    "fa3": ("#000000", "P"),
    "fa4": ("#E69F00", "*"),
    "flashinfer": ("#7A5C00", "h"),
}
OTHER = ("#444444", ".")
# file name: (operation, column, factor, label of the axis, title)
CHARTS = {
    "python_forward.png": ("forward", "tflops", 1, "TFLOP/s", "Attention forward"),
    "python_backward.png": ("backward", "tflops", 1, "TFLOP/s", "Attention backward"),
    "python_ragged.png": ("ragged", "tflops", 1, "TFLOP/s", "Ragged attention forward"),
    "python_decode.png": ("decode", "gbps", 1, "GB/s", "Decode, one query a sequence"),
    "python_memory_forward.png": ("forward", "peak_bytes", 2**-20, "MiB above the inputs", "Peak memory, forward"),
    "python_memory_backward.png": ("backward", "peak_bytes", 2**-20, "MiB above the inputs", "Peak memory, forward and backward"),
}


def short(length):
    return f"{length // 1024}k" if length >= 1024 and length % 1024 == 0 else str(length)


def _panel(axes, rows, column, factor):
    lengths = sorted({row["seqlen"] for row in rows})
    for name in dict.fromkeys(row["peer"] for row in rows):
        points = sorted((row["seqlen"], row[column] * factor) for row in rows if row["peer"] == name)
        color, marker = STYLES.get(name, OTHER)
        ours = name == OURS
        width, order, size = (3.2, 5, 7) if ours else (1.4, 3, 5)
        axes.plot(*zip(*points), color=color, marker=marker, label=name, linewidth=width, zorder=order, markersize=size)
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [short(n) for n in lengths])
    axes.minorticks_off()
    if column == "peak_bytes":
        axes.set_yscale("symlog", linthresh=1)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _figure(plt, about, chart, rows):
    op, column, factor, label, title = chart
    head_dims = sorted({row["head_dim"] for row in rows})
    masks = sorted({row["causal"] for row in rows})
    size = (max(7, 3.6 * len(head_dims) + 1.6), 2.9 * len(masks) + 1.3)
    figure, grid = plt.subplots(len(masks), len(head_dims), figsize=size, squeeze=False, sharex=True, sharey=True)
    for line, causal in zip(grid, masks):
        for axes, d in zip(line, head_dims):
            cell = [row for row in rows if (row["causal"], row["head_dim"]) == (causal, d)]
            if cell:
                _panel(axes, cell, column, factor)
            axes.set_title(f"head_dim {d}" + (", causal" if causal else "" if op == "decode" else ", no mask"), fontsize=10)
        line[0].set_ylabel(label)
    for axes in grid[-1]:
        axes.set_xlabel("keys" if op == "decode" else "longest sequence" if op == "ragged" else "sequence length")
    grid[0][0].set_ylim(bottom=0)  # once all is drawn: it ends the scaling of the shared axis
    handles = {}
    for axes in grid.flat:
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels())))
    figure.suptitle(f"{title}, {rows[0]['dtype']}\n{about['card']}, torch {about['torch']}, {about['date']}", fontsize=11)
    figure.legend(handles.values(), handles.keys(), loc="outside right upper", frameon=False)
    return figure


def draw(folder, about, rows):
    """Draws what the rows have; returns the files. Raises ImportError without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        raise ImportError("charts need matplotlib: pip install matplotlib, then --replot the JSON file") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    files = []
    with plt.rc_context({"figure.constrained_layout.use": True}):
        for name, chart in CHARTS.items():
            shown = [row for row in rows if row["op"] == chart[0] and row[chart[1]] is not None]
            if not shown:
                continue
            figure = _figure(plt, about, chart, shown)
            figure.savefig(folder / name, dpi=130)
            plt.close(figure)
            files.append(folder / name)
    return files
