"""Figures for print: PNG and PDF, from a summary of runs."""

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ella.intervals import Estimate
from ella.report import statistics
from ella.report.palette import colours
from ella.report.summary import PROFILE_THRESHOLDS, SUCCESS, Group, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "pdf")
COLUMNS = 3
PANEL = (3.6, 2.7)
"""Inches."""
STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#555555",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "text.parse_math": False,
    "pdf.fonttype": 42,
    "savefig.dpi": 160,
}
BAND_NAMES = {
    "mean": "mean ± standard deviation over seeds",
    "iqm": "interquartile mean over seeds, 95 % bootstrap interval",
}
RATIO_MARKERS = {
    "at least": (">", "▸"),
    "at most": ("<", "◂"),
    "uncertain": ("x", "\N{MULTIPLICATION SIGN}"),
}
"""By what a ratio bounds: as Matplotlib names it, and as text."""
RATIO_TICKS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 20, 50)
ELLA_PANELS = {
    "decomposition_size": "low-level instructions\nper instruction",
    "relevance_accuracy": "accuracy of relevance",
    "relevance_precision": "precision of relevance",
    "relevance_recall": "recall of relevance",
}
"""Measurements of ELLA's decomposition and what their axes are called."""


LEGEND_LINE, LEGEND_CHARACTER, LEGEND_ROW = 0.6, 0.085, 0.2
"""Inches of a legend's entry: the sample with its margins, one character of text at most, and the
height of a line. A figure has room for one."""


def write_figures(summary: Summary, folder: Path) -> list[Path]:
    """Draw all figures the summary has data for, and remove those of an earlier report that it has
    none for; returns the files."""
    import matplotlib as mpl

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    with mpl.rc_context(STYLE):
        for name, figure in draw(summary):
            for ending in FORMATS:
                path = folder / f"{name}.{ending}"
                if figure is not None:
                    # No dates inside, so that the same data give the same bytes.
                    metadata = {"CreationDate": None} if ending == "pdf" else {"Software": None}
                    figure.savefig(path, metadata=metadata)
                    paths.append(path)
                elif path.is_file():
                    path.unlink()
    return paths


def draw(summary: Summary) -> "Iterator[tuple[str, Figure | None]]":
    """(name, figure) of all figures, in matplotlib's current style; None for those the summary has
    no data for."""
    has_ratios = any(ratio is not None for s in summary.standings for ratio in s.ratios)
    has_ella = any(name in group.measures for group in summary.groups for name in ELLA_PANELS)
    yield "learning-curves", _curves(summary, "mean")
    yield "learning-curves-iqm", _curves(summary, "iqm")
    yield "area-under-curve", _areas(summary)
    yield "frames-ratio", _ratios(summary) if has_ratios else None
    yield "probability-of-improvement", _improvement(summary) if summary.comparisons else None
    yield "performance-profiles", _profiles(summary) if summary.profiles else None
    yield "ella", _ella(summary) if has_ella else None


def band(curves: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Middle, low and high line [T] of curves [seeds, T]; `kind` is one of `BAND_NAMES`."""
    if kind == "iqm":
        return statistics.curve_interval(curves, statistics.interquartile_mean)
    known = ~np.isnan(curves)
    count = known.sum(axis=0)
    safe = np.where(count > 0, count, 1)
    middle = np.where(known, curves, 0).sum(axis=0) / safe
    spread = np.sqrt((np.where(known, curves - middle, 0) ** 2).sum(axis=0) / safe)
    middle = np.where(count > 0, middle, np.nan)
    return middle, middle - spread, middle + spread


def _grid(
    panels: int, columns: int = COLUMNS, *, height: float = PANEL[1]
) -> "tuple[Figure, list[Axes]]":
    """A figure of panels, each `height` inches high."""
    from matplotlib.figure import Figure

    columns = min(columns, panels)
    rows = -(-panels // columns)
    # One panel alone needs the width for the title and the legend.
    width = max(columns * PANEL[0], 5.0)
    figure = Figure(figsize=(width, rows * height + 0.7), layout="constrained")
    axes = [figure.add_subplot(rows, columns, index + 1) for index in range(panels)]
    return figure, axes


def _legend(figure: "Figure", summary: Summary, labels: list[str], title: str) -> None:
    """One line per method above all panels."""
    from matplotlib.lines import Line2D

    paint = colours(summary.labels)
    handles = [Line2D([], [], color=paint[label][0], linewidth=3) for label in labels]
    wrapped = [_wrapped(label, figure.get_figwidth()) for label in labels]
    longest = max(len(line) for label in wrapped for line in label.split("\n"))
    entry = LEGEND_LINE + longest * LEGEND_CHARACTER
    columns = max(1, min(len(labels), int(figure.get_figwidth() / entry)))
    title = _wrapped(title, figure.get_figwidth())
    rows = [wrapped[start : start + columns] for start in range(0, len(wrapped), columns)]
    lines = sum(1 + max(label.count("\n") for label in row) for row in rows) + title.count("\n")
    figure.set_figheight(figure.get_figheight() + LEGEND_ROW * (lines - 1))
    figure.legend(handles, wrapped, loc="outside upper center", ncols=columns, title=title)


def _wrapped(label: str, width: float) -> str:
    """Text in lines that fit into `width` inches beside the legend's sample."""
    return textwrap.fill(label, max(1, int((width - LEGEND_LINE) / LEGEND_CHARACTER)))


def _draw_band(axes: "Axes", group: Group, name: str, kind: str, colour: str) -> None:
    middle, low, high = band(group.measures[name], kind)
    axes.fill_between(group.frames / 1e6, low, high, color=colour, alpha=0.2, linewidth=0)
    alone = np.count_nonzero(~np.isnan(middle)) == 1
    axes.plot(group.frames / 1e6, middle, color=colour, marker="o" if alone else "")


def _over_frames(axes: "Axes", summary: Summary, task: str) -> None:
    axes.set_xlim(0, max(group.frames[-1] for group in summary.of_task(task)) / 1e6)
    axes.set_xlabel("frames of each seed (millions)")


def _curves(summary: Summary, kind: str) -> "Figure":
    figure, panels = _grid(len(summary.tasks))
    paint = colours(summary.labels)
    for axes, task in zip(panels, summary.tasks, strict=True):
        for group in summary.of_task(task):
            _draw_band(axes, group, SUCCESS, kind, paint[group.label][0])
        axes.set_title(f"{task} ({_seed_counts(summary, task)})")
        axes.set_ylim(-0.02, 1.02)
        axes.yaxis.set_major_formatter(_percent())
        axes.set_ylabel("success rate")
        _over_frames(axes, summary, task)
    _legend(figure, summary, summary.labels, BAND_NAMES[kind])
    return figure


def _areas(summary: Summary) -> "Figure":
    most = max(len(summary.of_task(task)) for task in summary.tasks)
    figure, panels = _grid(len(summary.tasks), height=_rows_height(most))
    paint = colours(summary.labels)
    for axes, task in zip(panels, summary.tasks, strict=True):
        standings = [s for s in summary.standings if s.group.task == task]
        for height, standing in enumerate(standings):
            _whisker(axes, standing.area, height, paint[standing.group.label][0])
        _names(axes, [standing.group.label for standing in standings])
        axes.set_title(task)
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_formatter(_percent())
        axes.set_xlabel(f"mean success over {summary.budget(task) / 1e6:.3g} M frames")
    figure.suptitle("area under the success curve, 95 % bootstrap intervals", fontsize=9)
    return figure


def _ratios(summary: Summary) -> "Figure":
    tasks = [
        task
        for task in summary.tasks
        if any(any(s.ratios) for s in summary.standings if s.group.task == task)
    ]
    figure, panels = _grid(len(tasks))
    paint = colours(summary.labels)
    labels: list[str] = []
    for axes, task in zip(panels, tasks, strict=True):
        standings = [s for s in summary.standings if s.group.task == task and any(s.ratios)]
        labels += [s.group.label for s in standings]
        for index, standing in enumerate(standings):
            offset = (index - (len(standings) - 1) / 2) * 0.6 / max(len(standings), 1)
            for place, ratio in enumerate(standing.ratios):
                if ratio is not None:
                    marker, _ = RATIO_MARKERS.get(ratio.bound, ("o", ""))
                    colour = paint[standing.group.label][0]
                    _whisker(axes, ratio.estimate, place + offset, colour, marker)
        axes.axvline(1, color="#555555", linewidth=1, linestyle="--")
        _names(axes, [f"{100 * threshold:.0f} % success" for threshold in statistics.THRESHOLDS])
        axes.set_xscale("log")
        ends = [
            e for s in standings for r in s.ratios if r for e in (r.estimate.low, r.estimate.high)
        ]
        low, high = min(*ends, 0.9), max(*ends, 1.1)
        axes.set_xlim(low / 1.05, high * 1.05)
        axes.set_xticks([tick for tick in RATIO_TICKS if low <= tick <= high])
        axes.xaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        axes.set_title(task)
        label = f"frames of {summary.baseline} ÷ frames of the method"
        axes.set_xlabel(textwrap.fill(label, 48))
    shown = [label for label in summary.labels if label in labels]
    heading = f"how much faster than {summary.baseline}, 95 % intervals"
    bounds = {r.bound for s in summary.standings for r in s.ratios if r}
    notes = [f"{sign} {bound}" for bound, (_, sign) in RATIO_MARKERS.items() if bound in bounds]
    if notes:
        heading += f" ({', '.join(notes)}: some seeds never got there)"
    _legend(figure, summary, shown, heading)
    return figure


def _improvement(summary: Summary) -> "Figure":
    figure, (axes,) = _grid(1, height=_rows_height(len(summary.comparisons)))
    paint = colours(summary.labels)
    for height, comparison in enumerate(summary.comparisons):
        _whisker(axes, comparison.better_area, height, paint[comparison.label][0])
    axes.axvline(0.5, color="#555555", linewidth=1, linestyle="--")
    counts = [len(comparison.tasks) for comparison in summary.comparisons]
    _names(
        axes,
        [
            f"{comparison.label}\n({count} task{'s' if count > 1 else ''})"
            for comparison, count in zip(summary.comparisons, counts, strict=True)
        ],
    )
    axes.set_xlim(-0.02, 1.02)
    axes.xaxis.set_major_formatter(_percent())
    label = f"probability that a seed's area exceeds one of {summary.baseline}'s"
    axes.set_xlabel(textwrap.fill(label, 60))
    axes.set_title("probability of improvement")
    return figure


def _profiles(summary: Summary) -> "Figure":
    figure, (axes,) = _grid(1)
    paint = colours(summary.labels)
    for label, (share, low, high) in summary.profiles.items():
        colour = paint[label][0]
        axes.fill_between(
            PROFILE_THRESHOLDS, low, high, color=colour, alpha=0.2, linewidth=0, step="post"
        )
        axes.step(PROFILE_THRESHOLDS, share, color=colour, where="post")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(_percent())
    axes.set_xlim(0, 1)
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel("final success rate τ")
    axes.set_ylabel("runs with more than τ")
    tasks = summary.profile_tasks
    title = tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks"
    _legend(
        figure, summary, list(summary.profiles), f"performance profile over {title}, 95 % intervals"
    )
    return figure


def _ella(summary: Summary) -> "Figure":
    names = [n for n in ELLA_PANELS if any(n in group.measures for group in summary.groups)]
    tasks = [t for t in summary.tasks if any(names[0] in g.measures for g in summary.of_task(t))]
    figure, panels = _grid(len(tasks) * len(names), columns=len(names))
    paint = colours(summary.labels)
    labels = []
    for index, axes in enumerate(panels):
        task, name = tasks[index // len(names)], names[index % len(names)]
        for group in summary.of_task(task):
            if name in group.measures:
                _draw_band(axes, group, name, "mean", paint[group.label][0])
                labels.append(group.label)
        axes.set_title(task)
        axes.set_ylabel(ELLA_PANELS[name])
        if name == "decomposition_size":
            axes.set_ylim(bottom=0)
        else:
            axes.set_ylim(-0.02, 1.02)
            axes.yaxis.set_major_formatter(_percent())
        _over_frames(axes, summary, task)
    shown = [label for label in summary.labels if label in labels]
    _legend(figure, summary, shown, f"what ELLA holds relevant; {BAND_NAMES['mean']}")
    return figure


def _whisker(
    axes: "Axes", estimate: Estimate, height: float, colour: str, marker: str = "o"
) -> None:
    axes.plot([estimate.low, estimate.high], [height] * 2, color=colour, linewidth=5, alpha=0.35)
    axes.plot([estimate.value], [height], marker=marker, color=colour, markersize=6)


def _names(axes: "Axes", names: list[str]) -> None:
    """Rows of a dot plot, the first on top."""
    lines = ["\n".join(textwrap.fill(line, 28) for line in name.split("\n")) for name in names]
    axes.set_yticks(range(len(names)), lines)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)


def _rows_height(rows: int) -> float:
    """Inches of a dot plot."""
    return 0.7 + 0.35 * rows


def _percent() -> Any:
    from matplotlib.ticker import PercentFormatter

    return PercentFormatter(1, decimals=0, symbol=" %")


def _seed_counts(summary: Summary, task: str) -> str:
    counts = sorted({len(group.ends) for group in summary.of_task(task)})
    text = "-".join(map(str, counts[:1] + counts[1:][-1:]))
    return f"{text} seed{'' if counts == [1] else 's'}"
