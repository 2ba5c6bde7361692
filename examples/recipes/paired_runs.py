"""What the recipes share: the same seeds with and without ELLA, one results file, one figure.

A recipe's results file is written again after every run, so an interrupted comparison continues
where it stopped if the same command is given again, and `--seeds` can be raised later. The figure
lies beside the file; this draws the figures of existing files again:

    python examples/recipes/paired_runs.py results/recipes/*.json
"""

import argparse
import json
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from ella import HostElla, InputError
from ella.durable_files import write_durably
from ella.intervals import SHARE, student_t

PLAIN, ELLA = "plain", "ella"
METHODS = (PLAIN, ELLA)
LABELS = {PLAIN: "without ELLA", ELLA: "with ELLA"}
COLOURS = {PLAIN: "0.45", ELLA: "#d55e00"}
NUM_BINS = 20
"""Points of a learning curve."""
LAST_BINS = 4
"""Those that the success at the end is the mean of."""
PACKAGES = ("ella-rl", "gymnasium", "minigrid", "stable-baselines3", "sb3-contrib", "torch")


@dataclass
class Episodes:
    """Finished episodes of one run, in the order in which they ended."""

    frames: list[int] = field(default_factory=list)
    """Environment steps, of all environments together, when each ended."""
    solved: list[bool] = field(default_factory=list)

    def add(self, frames: int, solved: bool) -> None:
        self.frames.append(frames)
        self.solved.append(solved)

    def curve(self, total: int) -> list[float | None]:
        """The share solved of the episodes that ended in each part of `total` frames; None where
        none ended."""
        part = np.minimum((np.array(self.frames, int) - 1) * NUM_BINS // total, NUM_BINS - 1)
        solved = np.array(self.solved, float)
        return [
            round(float(solved[part == one].mean()), 4) if (part == one).any() else None
            for one in range(NUM_BINS)
        ]


@dataclass(frozen=True)
class Run:
    """What one run of a recipe is asked for."""

    env: str
    frames: int
    seed: int
    shaped: bool
    """Whether ELLA's bonuses are added to the reward."""


@dataclass(frozen=True)
class Outcome:
    """What one run of a recipe hands back."""

    episodes: Episodes
    ella: HostElla | None
    """After training, where the run had one."""


Train = Callable[[Run], Outcome]


def main(recipe: str, about: str, train: Train, envs: Sequence[str], frames: int) -> None:
    """The command line of a recipe: train with and without ELLA, write results and figure."""
    parser = argparse.ArgumentParser(description=about.partition("\n")[0])
    parser.add_argument("--env", choices=envs, default=envs[0])
    parser.add_argument("--seeds", type=int, default=5, help="runs with, and as many without ELLA")
    parser.add_argument("--frames", type=int, default=frames, help="environment steps of each run")
    parser.add_argument("--workers", type=int, default=1, help="runs at a time, a process each")
    parser.add_argument("--out", type=Path, default=None, metavar="FILE.json")
    chosen = parser.parse_args()
    out = chosen.out or Path("results") / "recipes" / f"{recipe}-{chosen.env}.json"
    logging.basicConfig(level=logging.WARNING)
    try:
        compare(recipe, train, chosen.env, chosen.seeds, chosen.frames, out, chosen.workers)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def compare(
    recipe: str, train: Train, env: str, seeds: int, frames: int, out: Path, workers: int = 1
) -> None:
    """Train what `out` does not hold yet, both methods of a seed one after the other."""
    for name, value in (("seeds", seeds), ("frames", frames), ("workers", workers)):
        if value < 1:
            raise InputError(f"--{name} must be >= 1, got {value}")
    if out.suffix != ".json":
        raise InputError(f"--out must end in .json, got {out}")
    table = _begun(out, {"recipe": recipe, "env": env, "frames": frames})
    missing = [
        Run(env, frames, seed, method == ELLA)
        for seed in range(seeds)
        for method in METHODS
        if str(seed) not in table["runs"][method]
    ]
    print(f"{len(missing)} agents to train, {workers} at a time", flush=True)
    for run, found in _rows(train, missing, workers):
        method = ELLA if run.shaped else PLAIN
        table["runs"][method][str(run.seed)] = found
        table |= _described(table, out) | {"summary": summary(table)}
        write_durably(out, json.dumps(table, indent=2) + "\n")
        print(
            f"seed {run.seed} {LABELS[method]}: {found['episodes']} episodes, success at the end "
            f"{_percent(_at_the_end(found))}, {found['frames_per_second']:.0f} frames/s",
            flush=True,
        )
    draw(out)


def _rows(train: Train, runs: Sequence[Run], workers: int) -> Iterator[tuple[Run, dict[str, Any]]]:
    """Every run with its row, in the order in which they end."""
    if workers == 1:
        for run in runs:
            yield run, _measured(train, run)
        return
    # A run is one thread's work; the threads of many would wait for each other.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        begun = {pool.submit(_measured, train, run): run for run in runs}
        for done in as_completed(begun):
            yield begun[done], done.result()


def _begun(out: Path, identity: dict[str, Any]) -> dict[str, Any]:
    """The table of an earlier comparison with the same settings, or a new one."""
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        return {**identity, "runs": {method: {} for method in METHODS}}
    table = _read(out)
    other = {name: table.get(name) for name, value in identity.items() if table.get(name) != value}
    if other:
        raise InputError(f"{out} holds other results ({other}); choose another --out")
    return table


def _read(path: Path) -> dict[str, Any]:
    try:
        table = json.loads(path.read_text())
        if set(table["runs"]) != set(METHODS):
            raise ValueError("no runs with and without ELLA")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not a results file of a recipe ({error})") from error
    return dict(table)


def _measured(train: Train, run: Run) -> dict[str, Any]:
    """The row of one run."""
    wall, processor = time.perf_counter(), time.process_time()
    outcome = train(run)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    row: dict[str, Any] = {
        "success": outcome.episodes.curve(run.frames),
        "episodes": len(outcome.episodes.solved),
        "seconds": round(wall, 1),
        "cpu_seconds": round(processor, 1),
        "frames_per_second": round(run.frames / wall, 1),
    }
    if outcome.ella is not None:
        row["relevance_updates"] = outcome.ella.updates
        row["successes_had_in_common"] = {
            mission: sorted(common) for mission, common in sorted(outcome.ella.solved().items())
        }
    return row


def _described(table: dict[str, Any], out: Path) -> dict[str, Any]:
    """How the numbers came about."""
    seeds = max(int(seed) for runs in table["runs"].values() for seed in runs) + 1
    return {
        "command": f"python examples/recipes/{table['recipe']}.py --env {table['env']} "
        f"--seeds {seeds} --frames {table['frames']} --out {out}",
        "what": f"share of training episodes solved in each of {NUM_BINS} equal parts of training, "
        "by the environment's own reward; a frame is one step of one environment. Summary: means "
        "over seeds with 95 % Student-t intervals, of the paired differences for the gain",
        "versions": {name: version(name) for name in PACKAGES},
    }


def summary(table: dict[str, Any]) -> dict[str, dict[str, list[float] | None]]:
    """[mean, low, high] over the seeds that have been run with and without ELLA."""
    runs = table["runs"]
    seeds = sorted(set(runs[PLAIN]) & set(runs[ELLA]), key=int)
    measures = {"area_under_curve": _area, "success_at_the_end": _at_the_end}
    found: dict[str, dict[str, list[float] | None]] = {}
    for name, measure in measures.items():
        values = {name: np.array([measure(runs[name][one]) for one in seeds]) for name in METHODS}
        rows = {method: student_t(numbers, SHARE) for method, numbers in values.items()}
        rows["gain"] = student_t(values[ELLA] - values[PLAIN], (-1.0, 1.0))
        found[name] = {
            method: None
            if math.isnan(one.value)
            else [round(number, 4) for number in (one.value, one.low, one.high)]
            for method, one in rows.items()
        }
    return found


def _area(row: dict[str, Any]) -> float:
    return _mean(row["success"])


def _at_the_end(row: dict[str, Any]) -> float:
    return _mean(row["success"][-LAST_BINS:])


def _mean(shares: Sequence[float | None]) -> float:
    known = [share for share in shares if share is not None]
    return float(np.mean(known)) if known else math.nan


def _percent(share: float) -> str:
    return "unknown" if math.isnan(share) else f"{share:.1%}"


def draw(path: Path) -> Path:
    """The learning curves of a results file, as a picture beside it."""
    from matplotlib.figure import Figure

    table = _read(path)
    middle = (np.arange(NUM_BINS) + 0.5) * table["frames"] / NUM_BINS
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.add_subplot()
    for method in METHODS:
        curves = np.array([row["success"] for row in table["runs"][method].values()], float)
        if not curves.size:
            continue
        axes.plot(middle, curves.T, color=COLOURS[method], linewidth=0.7, alpha=0.4)
        known = ~np.isnan(curves).all(0)
        mean = np.nanmean(curves[:, known], axis=0)
        label = f"{LABELS[method]}, {len(curves)} seed" + "s" * (len(curves) > 1)
        axes.plot(middle[known], mean, ".-", color=COLOURS[method], label=label)
    axes.set_ylim(0, 1)
    axes.set_xlabel("frames (one step of one environment)")
    axes.set_ylabel("share of episodes solved")
    axes.set_title(f"{table['recipe']} on {table['env']}")
    axes.legend(loc="upper left")
    picture = path.with_suffix(".png")
    figure.savefig(picture, dpi=120)
    return picture


if __name__ == "__main__":
    try:
        for name in sys.argv[1:]:
            print(f"wrote {draw(Path(name))}")
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
