"""How much of the spread between runs do their termination classifiers explain?

    python benchmarks/classifier_spread.py RUN RUN... --frames 10e6 [--against OTHER] [--out FILE]

Each run is one method on one task with several seeds that share a termination classifier, a
different one in every run. Takes of every seed the area under the success curve up to the frames
named and splits their variance into that of classifiers and that of seeds (one-way random effects).
Prints JSON: the mean area of each run, the two standard deviations (areas lie within 0 and 1), that
of classifiers with its 95 % interval (of the ratio of variances, by the F distribution), and the
p-value of "classifiers make no difference". With `--against`, a run of a method without such a
classifier, also by how much the mean area over classifiers exceeds its mean over seeds, with
Welch's 95 % interval: each classifier's mean counts once, so the interval covers the choice of the
classifier.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from relative_gains import difference
from scipy import stats

from ella.durable_files import write_durably
from ella.report.runs import Run, read_runs
from ella.report.series import SUCCESS
from ella.report.statistics import area_under_curve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--frames", type=float, required=True)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    runs = _read(arguments.runs)
    if len({run.path.resolve() for run in runs}) < len(runs):
        sys.exit("each run must be given once")
    kinds = {(run.task, run.method, len(run.series)) for run in runs}
    if len(runs) < 2 or len(kinds) > 1 or len(runs[0].series) < 2:
        sys.exit("give two runs or more of one task and method, with as many seeds, at least two")
    areas = np.array([_areas(run, arguments.frames) for run in runs])
    result = {
        "command": "python benchmarks/classifier_spread.py " + " ".join(sys.argv[1:]),
        "task": runs[0].task,
        "frames": arguments.frames,
        "areas": {str(run.path): float(row.mean()) for run, row in zip(runs, areas, strict=True)},
        **spread(areas),
    }
    if arguments.against is not None:
        others = _read([arguments.against])
        if len(others) != 1 or others[0].task != runs[0].task or len(others[0].series) < 2:
            sys.exit(f"{arguments.against} is no run of {runs[0].task} with two seeds or more")
        beside = _areas(others[0], arguments.frames)
        result["against"] = {
            "run": str(arguments.against),
            "area": float(beside.mean()),
            "difference": vars(difference(areas.mean(1), beside)),
        }
    text = json.dumps(result, indent=1) + "\n"
    print(text, end="")
    if arguments.out is not None:
        write_durably(arguments.out, text)


def _read(paths: Sequence[Path]) -> list[Run]:
    """One by one: of runs with the same settings and seeds only one would be read."""
    runs = []
    for path in paths:
        found, warnings = read_runs([path])
        runs += found
        for warning in warnings:
            print(f"warning: {warning}", file=sys.stderr)
    return runs


def _areas(run: Run, frames: float) -> np.ndarray:
    """float[seeds]"""
    if run.shared_end < 0.99 * frames:
        sys.exit(f"{run.path} has no {frames:,.0f} frames")
    curves = [(one.frames, one.values[SUCCESS]) for one in run.series.values()]
    return np.array([area_under_curve(x, y[None], frames)[0] for x, y in curves])


def spread(areas: np.ndarray) -> dict[str, Any]:
    """Standard deviations of classifiers and of seeds, from areas [classifiers, seeds]."""
    classifiers, seeds = areas.shape
    degrees = (classifiers - 1, classifiers * (seeds - 1))
    between = seeds * areas.mean(1).var(ddof=1)
    within = areas.var(1, ddof=1).mean()
    ratio = between / within

    def deviation(ratio: float) -> float:
        return float(np.sqrt(max(0.0, (ratio - 1) / seeds * within)))

    return {
        "seeds_of_each": seeds,
        "deviation_of_seeds": float(np.sqrt(within)),
        "deviation_of_classifiers": {
            "value": deviation(ratio),
            "low": deviation(ratio / stats.f.ppf(0.975, *degrees)),
            "high": deviation(ratio / stats.f.ppf(0.025, *degrees)),
        },
        "p": float(stats.f.sf(ratio, *degrees)),
    }


if __name__ == "__main__":
    main()
