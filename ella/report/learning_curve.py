"""A picture of how runs learned, from their metrics files alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ella.errors import InputError
from ella.report.method_styles import method_label
from ella.report.palette import colours
from ella.report.series import SUCCESS
from ella.runs.config_file import read_run
from ella.runs.metrics import read_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def write_learning_curves(runs: Sequence[Path], path: Path, *, title: str = "") -> Path:
    """Draw the success of some runs over frames: every seed thin, their mean thick, in the colours
    of the runs' methods."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    labels = {run: method_label(read_run(run)[1].method.name) for run in runs}
    paint = colours(list(labels.values()))
    for run, label in labels.items():
        frames, curves = curves_of(run)
        _draw_run(axes, frames, curves, paint[label][0], label)
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel("frames of each seed")
    axes.xaxis.set_major_formatter(lambda frames, _: f"{frames:,.0f}")
    axes.set_ylabel("success rate")
    axes.set_title(title or ", ".join(run.name for run in runs))
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path


def curves_of(run: Path) -> tuple[np.ndarray, np.ndarray]:
    """Frames [lines] and success [seeds, lines] of a run; NaN where it was not measured."""
    rows = read_rows(run)
    if not rows or SUCCESS not in rows[0]:
        raise InputError(f"{run} has no measurement '{SUCCESS}'")
    seeds = sorted({int(row["seed"]) for row in rows})
    frames = np.array([int(row["frames"]) for row in rows if int(row["seed"]) == seeds[0]])
    curves = np.array(
        [
            [float(row[SUCCESS] or "nan") for row in rows if int(row["seed"]) == seed]
            for seed in seeds
        ]
    )
    return frames, curves


def success_at_the_end(run: Path, share: float = 0.1) -> np.ndarray:
    """[seeds]: the mean success rate over the last `share` of a run's frames; NaN for a seed of
    which no episode ended then."""
    frames, curves = curves_of(run)
    last = curves[:, frames > (1 - share) * frames[-1]]
    measured = ~np.isnan(last)
    total = np.where(measured, last, 0).sum(axis=1)
    return np.where(measured.any(axis=1), total, np.nan) / np.maximum(measured.sum(axis=1), 1)


def _draw_run(
    axes: "Axes", frames: np.ndarray, curves: np.ndarray, colour: str, label: str
) -> None:
    for curve in curves:
        axes.plot(frames, curve, color=colour, linewidth=0.8, alpha=0.4)
    measured = ~np.isnan(curves).all(axis=0)
    mean = np.nanmean(curves[:, measured], axis=0)
    seeds = f"{len(curves)} seed" + "s" * (len(curves) > 1)
    axes.plot(frames[measured], mean, color=colour, linewidth=2, label=f"{label}, {seeds}")
