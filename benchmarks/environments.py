"""How many frames until an agent succeeds, against the number of its environments?

    python benchmarks/environments.py runs/environments results/main-8-seeds \\
        --tasks unlock-maze putnext-maze+combo-maze --rates results/speed/scaling.json \\
        --out environments.json --figure environments.png

Reads the runs of PPO and ELLA in some folders, however many environments each had. A seed gets
there at the first of three log lines in a row, or of as many as cover a horizon, with at least the
success asked for; where one does not, the frames it was trained for are a lower bound. Seconds
follow from the rates that `benchmarks/scaling.py` measured of one agent alone: runs that share a
GPU tell nothing about them. A mixture is named by its tasks, the trained one first.
"""

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ella.durable_files import write_durably
from ella.intervals import student_t
from ella.report.runs import Run, read_runs
from ella.report.series import SUCCESS, Series
from ella.training.goal import LINES, horizon_iterations
from ella.world.tasks import find

METHODS = {"ppo": "PPO", "ella": "ELLA"}
COLOURS = {"ppo": "#4c72b0", "ella": "#c44e52"}
SHIFTS = {"ppo": 0.94, "ella": 1.06}
"""Factors of the number of environments in the figure, so that no method hides another."""


def main() -> None:
    arguments = _arguments()
    runs, warnings = read_runs(arguments.runs)
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    rates = _rates(arguments.rates) if arguments.rates else {}
    rows = compared(runs, arguments.tasks, arguments.success, rates)
    if not rows:
        sys.exit(f"no run of PPO or ELLA on {', '.join(arguments.tasks)} in these folders")
    result = {
        "command": "python benchmarks/environments.py " + " ".join(sys.argv[1:]),
        "what": f"frames until {arguments.success:.0%} success, the first of {LINES} log lines in "
        "a row (more where those do not cover a horizon); 'reached' of how many seeds, the others "
        "count as the frames they were trained for",
        "rows": rows,
    }
    write_durably(arguments.out, json.dumps(result, indent=1) + "\n")
    for row in rows:
        print(
            f"{row['task']:24} {row['method']:5} {row['environments']:6,} environments  "
            f"{row['reached']} of {row['seeds']} seeds  "
            f"{row['frames']['value'] / 1e6:6.2f} M frames"
        )
    if arguments.figure is not None:
        draw(rows, arguments.success, arguments.figure)


def compared(
    runs: Sequence[Run],
    tasks: Sequence[str],
    success: float,
    rates: dict[tuple[str, int, int], float],
) -> list[dict[str, Any]]:
    """A row for each task, method and number of environments."""
    groups: dict[tuple[str, str, int, int], list[float]] = defaultdict(list)
    trained: dict[tuple[str, str, int, int], list[float]] = defaultdict(list)
    for run in runs:
        mixture = "+".join([run.task, *run.config.get("also", [])])
        if run.method not in METHODS or mixture not in tasks:
            continue
        ppo = run.config["ppo"]
        key = (mixture, run.method, int(ppo["num_envs"]), int(ppo["minibatch_frames"]))
        for series in run.series.values():
            groups[key].append(first_frame(series, success, horizon_frames(run)))
            trained[key].append(float(series.frames[-1]))
    rows = []
    for key in sorted(groups, key=lambda key: (tasks.index(key[0]), *key[1:])):
        task, method, environments, minibatch = key
        found, ends = np.array(groups[key]), np.array(trained[key])
        frames = np.where(np.isinf(found), ends, found)
        rate = rates.get((method, environments, minibatch))
        rows.append(
            {
                "task": task,
                "method": method,
                "environments": environments,
                "seeds": len(found),
                "reached": int(np.isfinite(found).sum()),
                "frames": vars(student_t(frames, (0.0, np.inf))),
                "seconds": None if rate is None else round(float(frames.mean()) / rate, 1),
            }
        )
    return rows


def horizon_frames(run: Run) -> float:
    """Frames in which every episode that began before them has ended."""
    ppo = run.config["ppo"]
    iterations = horizon_iterations(find(run.task), ppo["rollout_length"])
    return float(iterations * ppo["rollout_length"] * ppo["num_envs"])


def first_frame(series: Series, success: float, horizon: float) -> float:
    """Frames at the first of some log lines in a row with that success; infinite if none is. They
    are at least `LINES`, cover a horizon, and lie beyond the first, as `ella.training.goal`
    demands."""
    high = (series.values[SUCCESS] >= success) & (series.frames >= horizon)
    lines = max(LINES, math.ceil(horizon / np.diff(series.frames, prepend=0).max()))
    if len(high) < lines:
        return np.inf
    in_a_row = np.lib.stride_tricks.sliding_window_view(high, lines).all(axis=1)
    return float(series.frames[in_a_row.argmax()]) if in_a_row.any() else np.inf


def _rates(path: Path) -> dict[tuple[str, int, int], float]:
    """Frames a second of one agent, by method, number of environments and frames a minibatch."""
    return {
        (row["method"], row["environments"], row["minibatch_frames"]): row["frames_per_second"]
        for row in json.loads(path.read_text())["rows"]
        if row["over"] == "environments" and "failed" not in row
    }


def draw(rows: Sequence[dict[str, Any]], success: float, path: Path) -> None:
    """Frames above and seconds below, one column per task; open triangles are lower bounds."""
    from matplotlib.figure import Figure

    tasks = list(dict.fromkeys(row["task"] for row in rows))
    lines = 1 + any(row["seconds"] is not None for row in rows)
    figure = Figure(figsize=(3.6 * len(tasks), 0.6 + 2.7 * lines), layout="constrained")
    axes = figure.subplots(lines, len(tasks), squeeze=False, sharex=True)
    for column, task in enumerate(tasks):
        for method, label in METHODS.items():
            own = [row for row in rows if (row["task"], row["method"]) == (task, method)]
            _curve(axes[0][column], own, label, lambda row: 1e-6)
            if lines > 1:
                timed = [row for row in own if row["seconds"] is not None]
                _curve(axes[1][column], timed, label, _seconds_a_frame)
        axes[0][column].set_title(task.replace("+", "\nwith "))
        axes[-1][column].set_xlabel("environments")
        for line in range(lines):
            axes[line][column].set_xscale("log", base=2)
            axes[line][column].set_ylim(bottom=0)
            axes[line][column].grid(alpha=0.3)
    places = sorted({row["environments"] for row in rows})
    axes[-1][0].set_xticks(places, [f"{place:,}" for place in places])
    for line, unit in zip(range(lines), ("million frames", "seconds on one GPU"), strict=False):
        axes[line][0].set_ylabel(f"{unit} until {success:.0%}")
    axes[0][0].legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, metadata={"Software": None})


def _seconds_a_frame(row: dict[str, Any]) -> float:
    return float(row["seconds"] / row["frames"]["value"])


def _curve(
    axes: Any,
    rows: Sequence[dict[str, Any]],
    label: str,
    unit: Callable[[dict[str, Any]], float],
) -> None:
    """A line through the means that every seed reached, with 95 % intervals; the others stand
    alone. `unit` is what a row's frames are multiplied with."""
    colour = COLOURS[rows[0]["method"]] if rows else None
    shift = SHIFTS[rows[0]["method"]] if rows else 1.0
    reached = [row for row in rows if row["reached"] == row["seeds"]]
    bounds = [row for row in rows if row["reached"] < row["seeds"]]
    means, lows, highs = (
        [row["frames"][key] * unit(row) for row in reached] for key in ("value", "low", "high")
    )
    axes.errorbar(
        [row["environments"] * shift for row in reached],
        means,
        yerr=[np.subtract(means, lows), np.subtract(highs, means)],
        fmt="o-", capsize=3, elinewidth=1, color=colour, label=label,
    )  # fmt: skip
    axes.plot(
        [row["environments"] * shift for row in bounds],
        [row["frames"]["value"] * unit(row) for row in bounds],
        "^", color=colour, fillstyle="none",
    )  # fmt: skip


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--tasks", nargs="+", required=True)
    parser.add_argument("--success", type=float, default=0.9)
    parser.add_argument("--rates", type=Path, help="a file of benchmarks/scaling.py")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--figure", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
