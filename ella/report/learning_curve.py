"""A picture of how a run learned, from its metrics file alone."""

from pathlib import Path

import numpy as np

from ella.errors import InputError
from ella.runs.metrics import read_rows


def write_learning_curve(directory: Path, path: Path, *, name: str = "success_rate") -> Path:
    """Draw one measurement over frames: every seed thin, their mean thick."""
    from matplotlib.figure import Figure

    rows = read_rows(directory)
    if not rows or name not in rows[0]:
        raise InputError(f"{directory} has no measurement '{name}'")
    seeds = sorted({int(row["seed"]) for row in rows})
    frames = np.array([int(row["frames"]) for row in rows if int(row["seed"]) == seeds[0]])
    curves = np.array(
        [[float(row[name] or "nan") for row in rows if int(row["seed"]) == seed] for seed in seeds]
    )
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for curve in curves:
        axes.plot(frames, curve, color="tab:blue", linewidth=0.8, alpha=0.4)
    measured = ~np.isnan(curves).all(axis=0)
    axes.plot(frames[measured], np.nanmean(curves[:, measured], axis=0), color="tab:blue")
    if name == "success_rate":
        axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel("frames of each seed")
    axes.set_ylabel(name.replace("_", " "))
    axes.set_title(f"{directory.name}: {len(seeds)} seed{'s' if len(seeds) > 1 else ''}")
    axes.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path
