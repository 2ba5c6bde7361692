"""How much of the spread between runs do their termination classifiers explain?

    python benchmarks/classifier_spread.py RUN RUN... --frames 10e6 [--against OTHER] [--out FILE]

Each run is one method on one task with the same seeds, which share a termination classifier, a
different one in every run. Takes of every seed the area under the success curve up to the frames
named and splits their variance into that of classifiers, that of seeds (the same levels and initial
network, whatever the classifier) and the rest (random effects of both, without interaction). Prints
JSON: the mean area of each run, the three standard deviations (areas lie within 0 and 1), that of
classifiers with its 95 % interval (of the ratio of variances, by the F distribution), and the
p-value of "classifiers make no difference", also without a part of the seeds. With `--against`, a
run of a method without such a classifier, also by how much the mean area exceeds that run's, with a
95 % interval that covers the choice of the classifier as well as that of the seeds (t distribution,
Satterthwaite's degrees of freedom).
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from ella.durable_files import write_durably
from ella.intervals import Interval
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
    kinds = {(run.task, run.method, tuple(run.series)) for run in runs}
    if len(runs) < 2 or len(kinds) > 1 or len(runs[0].series) < 2:
        sys.exit("give two runs or more of one task and method with the same seeds, at least two")
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
            "difference": vars(lead(areas, beside)),
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


def mean_squares(areas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of classifiers, of seeds and of the rest, and their degrees of freedom: float[3] each, from
    areas [classifiers, seeds]."""
    classifiers, seeds = areas.shape
    of_classifiers, of_seeds = areas.mean(1), areas.mean(0)
    rest = areas - of_classifiers[:, None] - of_seeds + areas.mean()
    degrees = np.array([classifiers - 1, seeds - 1, (classifiers - 1) * (seeds - 1)])
    squares = [
        seeds * of_classifiers.var(ddof=1),
        classifiers * of_seeds.var(ddof=1),
        (rest**2).sum() / degrees[2],
    ]
    return np.array(squares), degrees


def spread(areas: np.ndarray) -> dict[str, Any]:
    """Standard deviations of classifiers, of seeds and of the rest, from areas [classifiers,
    seeds]."""
    (between, of_seeds, rest), (classifiers, _, remaining) = mean_squares(areas)
    ratio, degrees = between / rest, (classifiers, remaining)

    def deviation(ratio: float, count: int) -> float:
        return float(np.sqrt(max(0.0, (ratio - 1) / count * rest)))

    def of_classifiers(ratio: float) -> float:
        return deviation(ratio, areas.shape[1])

    return {
        "seeds_of_each": areas.shape[1],
        "deviation_of_seeds": deviation(of_seeds / rest, areas.shape[0]),
        "deviation_of_the_rest": float(np.sqrt(rest)),
        "deviation_of_classifiers": {
            "value": of_classifiers(ratio),
            "low": of_classifiers(ratio / stats.f.ppf(0.975, *degrees)),
            "high": of_classifiers(ratio / stats.f.ppf(0.025, *degrees)),
        },
        "p": float(stats.f.sf(ratio, *degrees)),
        "p_without_seeds": float(stats.f_oneway(*areas).pvalue),
    }


def lead(areas: np.ndarray, others: np.ndarray) -> Interval:
    """By how much the mean of areas [classifiers, seeds] exceeds that of another method's [seeds],
    both the classifiers and the seeds being a choice."""
    squares, degrees = mean_squares(areas)
    # The rest is in both mean squares, and counts once.
    parts = np.array([1.0, 1.0, -1.0]) * squares / areas.size
    of_areas = max(parts.sum(), parts[:2].max())
    of_others = others.var(ddof=1) / len(others)
    uncertain = np.append(parts**2 / degrees, of_others**2 / (len(others) - 1))
    total = of_areas + of_others
    half = stats.t.ppf(0.975, total**2 / uncertain.sum()) * np.sqrt(total)
    value = float(areas.mean() - others.mean())
    return Interval(value, value - float(half), value + float(half))


if __name__ == "__main__":
    main()
