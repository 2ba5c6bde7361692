"""How much of the spread between runs do their termination classifiers explain?

    python benchmarks/classifier_spread.py RUN RUN... --frames 10e6 [--out FILE]

Each run is one method on one task with several seeds that share a termination classifier, a
different one in every run. Takes of every seed the area under the success curve up to the frames
named and splits their variance into that of classifiers and that of seeds (one-way random effects).
Prints JSON: the mean area of each run, the two standard deviations (areas lie within 0 and 1), that
of classifiers with its 95 % interval (of the ratio of variances, by the F distribution), and the
p-value of "classifiers make no difference".
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from ella.durable_files import write_durably
from ella.report.runs import read_runs
from ella.report.series import SUCCESS
from ella.report.statistics import area_under_curve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--frames", type=float, required=True)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    # One by one: of runs with the same settings and seeds only one would be read.
    runs = []
    for path in arguments.runs:
        found, warnings = read_runs([path])
        runs += found
        for warning in warnings:
            print(f"warning: {warning}", file=sys.stderr)
    for run in runs:
        if run.shared_end < 0.99 * arguments.frames:
            sys.exit(f"{run.path} has no {arguments.frames:,.0f} frames")
    kinds = {(run.task, run.method, len(run.series)) for run in runs}
    if len(runs) < 2 or len(kinds) > 1 or len(runs[0].series) < 2:
        sys.exit("give two runs or more of one task and method, with as many seeds, at least two")
    areas = np.array(
        [
            [
                area_under_curve(one.frames, one.values[SUCCESS][None], arguments.frames)[0]
                for one in run.series.values()
            ]
            for run in runs
        ]
    )
    result = {
        "command": "python benchmarks/classifier_spread.py " + " ".join(sys.argv[1:]),
        "task": runs[0].task,
        "frames": arguments.frames,
        "areas": {str(run.path): float(row.mean()) for run, row in zip(runs, areas, strict=True)},
        **spread(areas),
    }
    text = json.dumps(result, indent=1) + "\n"
    print(text, end="")
    if arguments.out is not None:
        write_durably(arguments.out, text)


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
