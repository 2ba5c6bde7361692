"""Does ELLA beat PPO in `ella demo` from other seeds too?

    python benchmarks/demo_seed_sets.py [--sets 10] [--runs FOLDER] [--out FILE]

Trains the two runs of `ella demo` with the seeds of all sets at once (seeds are a vmap). Each set
has as many seeds as the demo, those that `ella demo --seed FIRST` would take. A program of another
number of seeds rounds differently, so a seed's curve begins as in the demo and then departs from
it: each set is as good a sample of what a demo shows, but not the same one. Prints, for every set,
both methods' mean success over the last tenth of the frames and over all of them (the area under
the curve). An interrupted measurement resumes in the same folder.
"""

import argparse
import datetime
import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ella.commands import demo
from ella.report.learning_curve import curves_of, success_at_the_end
from ella.reproduction.local_launcher import train_here, unfinished
from ella.runs.planned_run import PlannedRun
from ella.runs.progress_lines import ProgressLines

VISIBLE = 0.1
"""ELLA is ahead in a set if its success at the end is higher by at least this."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=10)
    parser.add_argument("--frames", type=int)
    parser.add_argument("--runs", type=Path, help="folder of the runs; a temporary one by default")
    parser.add_argument("--out", type=Path, help="file for the JSON; standard output by default")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.runs or Path(temporary)
        per_set = demo.Arguments().seeds
        runs = demo.planned_runs(
            demo.Arguments(out=folder, frames=arguments.frames, seeds=arguments.sets * per_set)
        )
        if left := unfinished(runs):
            sinks = lambda planned: [ProgressLines(planned)]  # noqa: E731
            train_here([left], sinks=sinks, command=sys.argv)
        text = json.dumps(measured(runs, per_set), indent=2) + "\n"
    if arguments.out is None:
        sys.stdout.write(text)
    else:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text)


def measured(runs: list[PlannedRun], per_set: int) -> dict[str, Any]:
    """Every set's numbers, and how many sets ELLA is ahead in."""
    ends, areas = {}, {}
    for planned in runs:
        name = planned.settings.method.name
        ends[name] = success_at_the_end(planned.directory, demo.LAST_SHARE)
        areas[name] = np.nanmean(curves_of(planned.directory)[1], axis=1)
    settings = runs[0].settings
    sets = []
    for first in range(0, settings.seeds, per_set):
        seeds = slice(first, first + per_set)
        found: dict[str, Any] = {"seeds": settings.seed_numbers[seeds]}
        for name in ends:
            found[name] = {
                "success_at_the_end": round(float(ends[name][seeds].mean()), 4),
                "area_under_the_curve": round(float(areas[name][seeds].mean()), 4),
                "success_at_the_end_by_seed": ends[name][seeds].round(4).tolist(),
            }
        lead = ends[demo.METHOD][seeds].mean() - ends[demo.BASELINE][seeds].mean()
        found["ella_is_ahead"] = bool(lead >= VISIBLE)
        sets.append(found)
    return {
        "command": " ".join(["python", *sys.argv]),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} CPU cores, {platform.machine()}, no GPU",
        "trained_as": f"one program of {2 * settings.seeds} seeds; rounding differs",
        "task": runs[0].spec.name,
        "frames_a_seed": settings.total_frames,
        "ahead_means": f"success over the last {demo.LAST_SHARE:.0%} of the frames higher by "
        f"{VISIBLE:.0%} of all episodes or more",
        "sets_ella_is_ahead_in": sum(found["ella_is_ahead"] for found in sets),
        "sets": sets,
    }


if __name__ == "__main__":
    main()
