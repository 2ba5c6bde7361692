"""What does each part of the solvent ELLA bring: alone, and on top of all the others?

    python benchmarks/ablation.py reproduction/short --out ablation.json --figure ablation.png

Reads the runs of `ella reproduce ablation`; with `--episodes 500` those of `ella reproduce
ablation-budget`, which have so many expert episodes. Scores are areas under the success curve over
the frames that all runs of a task have; differences are paired by seed, with 95 % Student-t
intervals.
Runs are compared within a folder only, since two folders may have different termination
classifiers; a difference that several folders have takes the pairs of all. `--beside` names runs
that lie elsewhere and share the classifiers of every folder, as the main figure's `ella-solvent`.
Two runs of a seed are one pair, in however many folders they meet.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ella.durable_files import write_durably
from ella.intervals import student_t
from ella.methods.ella_solvent import ELLASolvent
from ella.report.runs import Run, read_runs
from ella.report.series import SUCCESS
from ella.report.statistics import area_under_curve
from ella.reproduction.figures import HIGH_LEVEL, PARTS


@dataclass(frozen=True)
class Area:
    """Under the success curve of one seed of a run."""

    run: Path
    """Resolved: the same run is the same path in every folder."""
    value: float


Areas = dict[str, dict[tuple[Path, int], Area]]
"""By the end of the run's name, then by folder and seed."""
ALL = "all parts"
QUESTIONS = {"alone": "added to ELLA alone", "last": "added to all the others"}


def main() -> None:
    arguments = _arguments()
    folders: dict[Path, list[Run]] = {}
    for folder in arguments.runs:
        folders[folder], warnings = read_runs([folder, *arguments.beside])
        for warning in warnings:
            print(f"warning: {warning}", file=sys.stderr)
    by_task = {task: areas(folders, task, arguments.episodes) for task in HIGH_LEVEL}
    rows = [row for task, found in by_task.items() for row in differences(task, found)]
    if not rows:
        sys.exit("no runs of such an ablation in these folders")
    result = {
        "command": "python benchmarks/ablation.py " + " ".join(sys.argv[1:]),
        "what": "difference of areas under the success curve, paired by seed within a folder",
        "rows": rows,
    }
    write_durably(arguments.out, json.dumps(result, indent=1) + "\n")
    for row in rows:
        gain = row["difference"]
        print(
            f"{row['task']:14} {row['part']:12} {row['question']:6} {row['pairs']:2} pairs  "
            f"{100 * gain['value']:+6.1f} [{100 * gain['low']:+.1f}, {100 * gain['high']:+.1f}]"
        )
    if arguments.figure is not None:
        draw(rows, arguments.figure)


def areas(folders: Mapping[Path, Sequence[Run]], task: str, episodes: int | None = None) -> Areas:
    """Areas of a task's runs with a number of expert episodes, none for the usual one, over the
    frames that all of them have."""
    own = [
        (folder, name, run)
        for folder, runs in folders.items()
        for run in runs
        if run.task == task and (name := _role(run.path.name, task, episodes)) is not None
    ]
    until = min((run.shared_end for _, _, run in own), default=0.0)
    found: Areas = {}
    for folder, name, run in own:
        for seed, series in run.series.items():
            area = area_under_curve(series.frames, series.values[SUCCESS][None], until)
            one = Area(run.path.resolve(), float(area[0]))
            found.setdefault(name, {})[folder, seed] = one
    return found


def _role(name: str, task: str, episodes: int | None) -> str | None:
    """The end of a run's name, without its number of expert episodes; none for other runs."""
    named = re.fullmatch(rf"{task}-(ella(?:-solvent)?)(?:-episodes(\d+))?(.*)", name)
    if named is None or named[2] != (None if episodes is None else str(episodes)):
        return None
    return named[1] + named[3]


def differences(task: str, found: Areas) -> list[dict[str, Any]]:
    """What each part brings, where both runs of a difference are there; and all parts together."""
    solvent = ELLASolvent.name
    wanted = [(ALL, "alone", solvent, "ella")]
    for part in parts_of(found):
        wanted.append((part, "alone", f"{solvent}-only-{part}", "ella"))
        wanted.append((part, "last", solvent, f"{solvent}-without-{part}"))
    rows = []
    for part, question, with_it, without in wanted:
        pairs = _paired(found.get(with_it, {}), found.get(without, {}))
        if pairs:
            rows.append(
                {
                    "task": task,
                    "part": part,
                    "question": question,
                    "pairs": len(pairs),
                    "difference": vars(student_t(np.array(list(pairs.values())))),
                }
            )
    return rows


def parts_of(names: Iterable[str]) -> list[str]:
    """The parts that runs of such names are about: those of the method, then those it had."""
    found = {
        name.removeprefix(f"{ELLASolvent.name}-{kind}-")
        for name in names
        for kind in ("only", "without")
        if name.startswith(f"{ELLASolvent.name}-{kind}-")
    }
    return [part for part in PARTS if part in found] + sorted(found - set(PARTS))


def _paired(
    one: Mapping[tuple[Path, int], Area], other: Mapping[tuple[Path, int], Area]
) -> dict[tuple[Path, Path, int], float]:
    """Differences by both runs and the seed."""
    return {
        (area.run, other[place].run, place[1]): area.value - other[place].value
        for place, area in one.items()
        if place in other
    }


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """A column per task; each part alone above, last below."""
    from matplotlib.figure import Figure

    tasks = list(dict.fromkeys(row["task"] for row in rows))
    named = list(dict.fromkeys(row["part"] for row in rows if row["part"] != ALL))
    figure = Figure(figsize=(3.4 * len(tasks) + 1, 5.2), layout="constrained")
    axes = figure.subplots(2, len(tasks), squeeze=False, sharex="col", sharey="row")
    for line, (question, title) in enumerate(QUESTIONS.items()):
        parts = [*named, *([ALL] if question == "alone" else [])]
        for column, task in enumerate(tasks):
            panel = axes[line][column]
            panel.axvline(0, color="0.6", linewidth=0.8)
            for row in rows:
                if (row["task"], row["question"]) == (task, question):
                    height, gain = parts.index(row["part"]), row["difference"]
                    panel.plot(
                        [100 * gain["low"], 100 * gain["high"]], [height] * 2, color="#8c2d04",
                        linewidth=4, alpha=0.35,
                    )  # fmt: skip
                    panel.plot(100 * gain["value"], height, "o", color="#8c2d04")
            panel.set_yticks(range(len(parts)), parts)
            panel.set_ylim(len(parts) - 0.5, -0.5)
            panel.grid(axis="x", alpha=0.3)
            panel.set_title(f"{task}: {title}", fontsize=9)
    for panel in axes[-1]:
        panel.set_xlabel("points of area under the curve")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, metadata={"Software": None})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="folders")
    parser.add_argument("--beside", nargs="*", type=Path, default=[], help="runs for every folder")
    parser.add_argument("--episodes", type=int, help="only runs with so many expert episodes")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--figure", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
