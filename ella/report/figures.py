"""Figures for print: PNG and PDF, from a summary of runs."""

import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ella.intervals import Interval
from ella.methods.method import Column, Panels
from ella.report import statistics
from ella.report.figure_files import FORMATS
from ella.report.groups import Group
from ella.report.method_styles import panels_by_method, panels_in_use
from ella.report.palette import colours
from ella.report.series import SUCCESS
from ella.report.summary import PROFILE_THRESHOLDS, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
MEAN_BAND = "mean ± standard deviation over seeds"
RATIO_MARKERS = {
    "at least": (">", "▸"),
    "at most": ("<", "◂"),
    "uncertain": ("x", "\N{MULTIPLICATION SIGN}"),
}
"""By what a ratio bounds: as Matplotlib names it, and as text."""
WHISKER_ENDS = (1e-6, 1e6)
"""Farther than any axis goes: one seed alone has an endless interval."""
RATIO_TICKS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 20, 50)
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
    has_ratios = any(ratio is not None for result in summary.results for ratio in result.ratios)
    yield "learning-curves", _curves(summary, "mean")
    yield "learning-curves-iqm", _curves(summary, "iqm")
    yield "area-under-curve", _areas(summary)
    yield "frames-ratio", _ratios(summary) if has_ratios else None
    yield "probability-of-improvement", _improvement(summary) if summary.comparisons else None
    yield "performance-profiles", _profiles(summary) if summary.profiles else None
    used = panels_in_use(run.method for run in summary.runs)
    for name, panels in panels_by_method().items():
        measured = {column for group in summary.groups for column in group.measures}
        columns = [c for c in panels.columns if name in used and c.name in measured]
        yield name, _panels(summary, panels, columns) if columns else None


def band(curves: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Middle, low and high line [T] of curves [seeds, T]; `kind` is `mean` or `iqm`."""
    if kind == "iqm":
        return statistics.curve_band(curves, statistics.interquartile_mean)
    known = ~np.isnan(curves)
    count = known.sum(axis=0)
    safe = np.where(count > 0, count, 1)
    middle = np.where(known, curves, 0).sum(axis=0) / safe
    spread = np.sqrt((np.where(known, curves - middle, 0) ** 2).sum(axis=0) / safe)
    middle = np.where(count > 0, middle, np.nan)
    return middle, middle - spread, middle + spread


def iqm_band_name(measures: Iterable[np.ndarray]) -> str:
    """What the bands around interquartile means show, by the curves [seeds, T] of each."""
    counts = np.concatenate([(~np.isnan(curves)).sum(axis=0) for curves in measures])
    is_few = counts[counts > 0] < statistics.ENOUGH_SEEDS
    if is_few.all():
        return "range of seeds"
    exception = f" (range of seeds where fewer than {statistics.ENOUGH_SEEDS})"
    return f"95 % expanded bootstrap interval{exception if is_few.any() else ''}"


def _grid(
    panels: int, columns: int = COLUMNS, *, height: float = PANEL[1]
) -> "tuple[Figure, list[Axes]]":
    """A figure of panels, each `height` inches high."""
    from matplotlib.figure import Figure

    rows = -(-panels // columns)
    columns = -(-panels // rows)
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
    iqm_band = iqm_band_name(group.success for group in summary.groups)
    title = MEAN_BAND if kind == "mean" else f"interquartile mean over seeds, {iqm_band}"
    _legend(figure, summary, summary.labels, title)
    return figure


def _areas(summary: Summary) -> "Figure":
    most = max(len(summary.of_task(task)) for task in summary.tasks)
    figure, panels = _grid(len(summary.tasks), height=_rows_height(most))
    paint = colours(summary.labels)
    for axes, task in zip(panels, summary.tasks, strict=True):
        results = [result for result in summary.results if result.group.task == task]
        for height, result in enumerate(results):
            _whisker(axes, result.area, height, paint[result.group.label][0])
        _names(axes, [result.group.label for result in results])
        axes.set_title(task)
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_formatter(_percent())
        axes.set_xlabel(f"mean success over {summary.budget(task) / 1e6:.3g} M frames")
    figure.suptitle("area under the success curve, 95 % Student-t intervals over seeds", fontsize=9)
    return figure


def _ratios(summary: Summary) -> "Figure":
    tasks = [
        task
        for task in summary.tasks
        if any(any(s.ratios) for s in summary.results if s.group.task == task)
    ]
    figure, panels = _grid(len(tasks))
    paint = colours(summary.labels)
    labels: list[str] = []
    for axes, task in zip(panels, tasks, strict=True):
        results = [s for s in summary.results if s.group.task == task and any(s.ratios)]
        labels += [result.group.label for result in results]
        for index, result in enumerate(results):
            offset = (index - (len(results) - 1) / 2) * 0.6 / max(len(results), 1)
            for place, ratio in enumerate(result.ratios):
                if ratio is not None:
                    marker, _ = RATIO_MARKERS.get(ratio.bound, ("o", ""))
                    colour = paint[result.group.label][0]
                    _whisker(axes, ratio.interval, place + offset, colour, marker)
        axes.axvline(1, color="#555555", linewidth=1, linestyle="--")
        _names(axes, [f"{100 * threshold:.0f} % success" for threshold in statistics.THRESHOLDS])
        axes.set_xscale("log")
        intervals = [ratio.interval for result in results for ratio in result.ratios if ratio]
        low, high = _ratio_limits(intervals)
        axes.set_xlim(low / 1.05, high * 1.05)
        axes.set_xticks([tick for tick in RATIO_TICKS if low <= tick <= high])
        axes.xaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        axes.set_title(task)
        label = f"frames of {summary.baseline} ÷ frames of the method"
        axes.set_xlabel(textwrap.fill(label, 48))
    shown = [label for label in summary.labels if label in labels]
    heading = f"how much faster than {summary.baseline}, 95 % Welch-t intervals over seeds"
    bounds = {r.bound for s in summary.results for r in s.ratios if r}
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
    axes.set_title("probability of improvement, 95 % Newcombe intervals")
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
        figure,
        summary,
        list(summary.profiles),
        f"performance profile over {title}, 95 % exact intervals",
    )
    return figure


def _panels(summary: Summary, panels: Panels, columns: list[Column]) -> "Figure":
    names = [column.name for column in columns]
    tasks = [
        task
        for task in summary.tasks
        if any(name in group.measures for group in summary.of_task(task) for name in names)
    ]
    figure, grid = _grid(len(tasks) * len(columns), columns=len(columns))
    paint = colours(summary.labels)
    labels = []
    for index, axes in enumerate(grid):
        task, column = tasks[index // len(columns)], columns[index % len(columns)]
        for group in summary.of_task(task):
            if column.name in group.measures:
                _draw_band(axes, group, column.name, "mean", paint[group.label][0])
                labels.append(group.label)
        axes.set_title(task)
        axes.set_ylabel(column.title)
        if column.is_share:
            axes.set_ylim(-0.02, 1.02)
            axes.yaxis.set_major_formatter(_percent())
        else:
            axes.set_ylim(bottom=0)
        _over_frames(axes, summary, task)
    shown = [label for label in summary.labels if label in labels]
    _legend(figure, summary, shown, f"{panels.caption}; {MEAN_BAND}")
    return figure


def _ratio_limits(intervals: list[Interval]) -> tuple[float, float]:
    """Ends of an axis that shows every value, and the intervals as far as they are of use."""
    values = [interval.value for interval in intervals]
    low = max(min(interval.low for interval in intervals), min(values) / 3)
    high = min(max(interval.high for interval in intervals), max(values) * 3)
    return min(low, 0.9), max(high, 1.1)


def _whisker(
    axes: "Axes", interval: Interval, height: float, colour: str, marker: str = "o"
) -> None:
    ends = np.clip([interval.low, interval.high], *WHISKER_ENDS)
    axes.plot(ends, [height] * 2, color=colour, linewidth=5, alpha=0.35)
    axes.plot([interval.value], [height], marker=marker, color=colour, markersize=6)


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
