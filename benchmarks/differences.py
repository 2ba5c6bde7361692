"""How far are two runs apart, with seeds paired and not?

    python benchmarks/differences.py RUN,OTHER[,FRAMES] ... [--out FILE]

Each is a run, or a folder of runs that differ in their seeds alone and count as one. Compares each
pair up to the frames named, or all that both have. Prints JSON: means over seeds of
the area under the success curve, of success in the last tenth of the frames, of the area under the
curve of the return and, where both runs ended at these frames and were evaluated, of what their
final policies solve alone; of each the first run's less the second's with Welch's 95 % interval and
p value; the same of the seeds that both have, paired, and their correlation; and which differences
of areas survive Holm's correction over all rows.
"""

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from relative_gains import difference
from scipy import stats

from ella.durable_files import write_durably
from ella.intervals import CONFIDENCE, student_t
from ella.report.runs import Run, read_runs
from ella.report.series import SUCCESS
from ella.report.statistics import area_under_curve
from ella.runs.metrics import FILE_NAME

FINAL_SHARE = 0.1
SAME_END = 0.01
"""Final policies are compared where neither run went on for more than this share of the frames."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", nargs="+", type=_pair, metavar="RUN,OTHER[,FRAMES]")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows = [_row(*pair) for pair in arguments.pairs]
    result = {
        "command": "python benchmarks/differences.py " + " ".join(sys.argv[1:]),
        "what": "means of two runs and the first's less the second's, 95 % intervals: Welch's, and "
        "Student-t of the seeds that both have",
        "rows": rows,
        "survive_holm": {
            kind: survives_holm([row["area"].get(kind, {}).get("p") for row in rows])
            for kind in ("difference", "paired")
        },
    }
    text = json.dumps(result, indent=1, allow_nan=False) + "\n"
    print(text, end="")
    if arguments.out is not None:
        write_durably(arguments.out, text)


@dataclass(frozen=True)
class Experiment:
    """A run, or several of other seeds."""

    path: str
    runs: tuple[Run, ...]

    @property
    def seeds(self) -> list[int]:
        return [seed for run in self.runs for seed in run.series]

    @property
    def shared_end(self) -> float:
        """Frames that all seeds have."""
        return min(run.shared_end for run in self.runs)

    def found(self, frames: float) -> dict[str, np.ndarray]:
        """By name float[seeds] of what all runs measured up to these frames."""
        parts = [{**measures(run, frames), **alone(run, frames)} for run in self.runs]
        names = [name for name in parts[0] if all(name in part for part in parts)]
        return {name: np.concatenate([part[name] for part in parts]) for name in names}


def measures(run: Run, frames: float) -> dict[str, np.ndarray]:
    """By name float[seeds]."""
    series = list(run.series.values())
    curves = [(one.frames, one.values[SUCCESS]) for one in series]
    late = [(one.frames <= frames) & (one.frames > (1 - FINAL_SHARE) * frames) for one in series]
    end = [np.nanmean(one.values[SUCCESS][i]) for one, i in zip(series, late, strict=True)]
    return {
        "area": _areas(curves, frames),
        "success": np.array(end),
        "area_of_return": _areas([_returns(run.path, seed) for seed in run.series], frames),
    }


def alone(run: Run, frames: float) -> dict[str, np.ndarray]:
    """By name float[seeds] of what final policies solve by themselves, if that is known and
    training ended at `frames`."""
    evaluation = run.evaluations.get("ella")
    if evaluation is None or run.end > (1 + SAME_END) * frames:
        return {}
    return {
        f"alone_{mode}": np.array([of_seed[seed] for seed in run.series])
        for mode, of_seed in evaluation.success.items()
        if run.series.keys() <= of_seed.keys()
    }


def _areas(curves: list[tuple[np.ndarray, np.ndarray]], until: float) -> np.ndarray:
    return np.array([area_under_curve(x, y[None], until)[0] for x, y in curves])


def _returns(folder: Path, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(frames, return) of the log lines of a seed in which an episode ended; the report reads no
    returns."""
    with (folder / FILE_NAME).open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["seed"] == str(seed) and row["return"]]
    found = np.array([(float(row["frames"]), float(row["return"])) for row in rows])
    return found[:, 0], found[:, 1]


def _pair(word: str) -> tuple[Experiment, Experiment, float]:
    paths, frames = word.split(",")[:2], [float(number) for number in word.split(",")[2:]]
    # One by one: of runs with the same settings and seeds a reader keeps one.
    found = [Experiment(path, tuple(read_runs([Path(path)])[0])) for path in paths]
    each_is_one = all(one.runs for one in found) and not any(
        run.identity != one.runs[0].identity for one in found for run in one.runs
    )
    if len(found) != 2 or len(frames) > 1 or not each_is_one or len(tasks_of(found)) > 1:
        raise argparse.ArgumentTypeError(
            f"{word} does not name two runs of one task and at most one number of frames"
        )
    if min(len(one.seeds) for one in found) < 2:
        raise argparse.ArgumentTypeError(f"{word}: an interval needs two seeds or more of each")
    return found[0], found[1], min(*frames, *(one.shared_end for one in found))


def tasks_of(experiments: Sequence[Experiment]) -> set[str]:
    return {run.task for one in experiments for run in one.runs}


def _row(one: Experiment, other: Experiment, frames: float) -> dict[str, Any]:
    ours, theirs = one.found(frames), other.found(frames)
    shared = sorted({*one.seeds} & {*other.seeds})
    mine = [one.seeds.index(seed) for seed in shared]
    same = [other.seeds.index(seed) for seed in shared]
    return {
        "runs": [one.path, other.path],
        "frames": frames,
        **{name: compared(ours[name], theirs[name], mine, same) for name in ours if name in theirs},
    }


def compared(
    ours: np.ndarray, theirs: np.ndarray, mine: list[int], same: list[int]
) -> dict[str, Any]:
    """`mine` and `same` are where the seeds that both have are."""
    welch = stats.ttest_ind(ours, theirs, equal_var=False)
    found: dict[str, Any] = {
        "means": [float(ours.mean()), float(theirs.mean())],
        "difference": {**vars(difference(ours, theirs)), "p": _known(welch.pvalue)},
    }
    if len(mine) > 1:
        pairs = ours[mine] - theirs[same]
        chance = stats.ttest_1samp(pairs, 0).pvalue
        with np.errstate(invalid="ignore", divide="ignore"):
            correlation = np.corrcoef(ours[mine], theirs[same])[0, 1]
        found["paired"] = {
            **vars(student_t(pairs)),
            "p": _known(chance),
            "correlation": _known(correlation),
        }
    return found


def _known(number: float) -> float | None:
    """None where no seed differs from another, which leaves p values and correlations undefined."""
    return None if np.isnan(number) else float(number)


def survives_holm(chances: Sequence[float | None]) -> list[bool | None]:
    """Which of so many tests still reject at 5 % when the chance that any of them rejects wrongly
    is to be 5 % (Holm, 1979); None where there was no test."""
    known = np.array([one for one in chances if one is not None])
    order = np.argsort(known)
    limits = (1 - CONFIDENCE) / np.arange(len(order), 0, -1)
    rejects = np.empty(len(order), bool)
    rejects[order] = np.logical_and.accumulate(known[order] <= limits)
    found = iter(rejects)
    return [None if one is None else bool(next(found)) for one in chances]


if __name__ == "__main__":
    main()
