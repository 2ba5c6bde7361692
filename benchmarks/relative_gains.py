"""How many times PPO's area under the success curve does ELLA have, on one task against others?

    python benchmarks/relative_gains.py RUNS[,RUNS...] putnext-maze:60e6 putnext-room:30e6 \
        [--out FILE]

Reads runs of PPO and ELLA of every task, several of one method only with other seeds, and takes of
every seed the ratio of the two areas up to the frames named. Prints JSON: per task the geometric
mean of the ratios and ELLA's success in the last 2 % of these frames; and the first task's mean
logarithm less each other's, with Welch's 95 % interval.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ella.durable_files import write_durably
from ella.intervals import Interval, welch_half_width
from ella.report.runs import Run, read_runs
from ella.report.series import SUCCESS, Series
from ella.report.statistics import area_under_curve

END = 0.02
"""Share of the frames, at their end, over which success is reported."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=_paths, metavar="RUNS", help="folders, with commas between")
    parser.add_argument("tasks", nargs="+", type=_task_and_frames, metavar="TASK:FRAMES")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    runs, warnings = read_runs(arguments.runs)
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    ratios = [log_ratios(runs, task, frames) for task, frames in arguments.tasks]
    rows: list[dict[str, Any]] = [
        {
            "task": task,
            "frames": frames,
            "seeds": len(found),
            "ratio": float(np.exp(found.mean())),
            "success_of_ella": success(series_of(runs, task, "ella", frames), frames),
        }
        for (task, frames), found in zip(arguments.tasks, ratios, strict=True)
    ]
    for row, found in zip(rows[1:], ratios[1:], strict=True):
        row["first_less_this"] = vars(difference(ratios[0], found))
    result = {
        "command": "python benchmarks/relative_gains.py " + " ".join(sys.argv[1:]),
        "what": "ELLA's area under the success curve over PPO's, and differences of its logarithm",
        "rows": rows,
    }
    text = json.dumps(result, indent=1) + "\n"
    print(text, end="")
    if arguments.out is not None:
        write_durably(arguments.out, text)


def _paths(word: str) -> list[Path]:
    return [Path(path) for path in word.split(",")]


def _task_and_frames(word: str) -> tuple[str, float]:
    task, _, frames = word.rpartition(":")
    return task, float(frames)


def series_of(runs: list[Run], task: str, method: str, frames: float) -> dict[int, Series]:
    """By seed, each of one run."""
    found = [run for run in runs if (run.task, run.method) == (task, method)]
    series = {seed: one for run in found for seed, one in run.series.items()}
    if not found or len(series) < sum(len(run.series) for run in found):
        sys.exit(f"{len(found)} runs of {method} on {task} instead of one of every seed")
    if min(run.shared_end for run in found) < 0.99 * frames:
        sys.exit(f"{task} has no {frames:,.0f} frames of {method}")
    return series


def log_ratios(runs: list[Run], task: str, frames: float) -> np.ndarray:
    """float[seeds]: of the areas of ELLA and PPO, of every seed that both have."""
    ella, ppo = (series_of(runs, task, method, frames) for method in ("ella", "ppo"))
    seeds = sorted(ella.keys() & ppo.keys())
    return np.log([_area(ella[seed], frames) / _area(ppo[seed], frames) for seed in seeds])


def _area(series: Series, frames: float) -> float:
    return float(area_under_curve(series.frames, series.values[SUCCESS][None], frames)[0])


def success(series: Mapping[int, Series], frames: float) -> float:
    """Mean over seeds in the last frames up to so many."""
    means = [
        one.values[SUCCESS][(one.frames <= frames) & (one.frames > (1 - END) * frames)].mean()
        for one in series.values()
    ]
    return float(np.mean(means))


def difference(one: np.ndarray, other: np.ndarray) -> Interval:
    """Of two means, with Welch's interval."""
    sizes = np.array([one.size, other.size])
    half = welch_half_width(np.array([x.var(ddof=1) for x in (one, other)]) / sizes, sizes)
    value = float(one.mean() - other.mean())
    return Interval(value, value - half, value + half)


if __name__ == "__main__":
    main()
