"""`ella reproduce FIGURE`: the runs behind a figure of the paper, and its report."""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, arg

from ella.commands import report
from ella.commands.train import EXIT_DIVERGED, EXIT_INTERRUPTED
from ella.errors import InputError
from ella.experiment import launch, rates, reproduction
from ella.experiment.metrics import LogLine
from ella.experiment.ray_launcher import train_on_ray
from ella.experiment.run import Outcome, PlannedRun, RunResult
from ella.experiment.run_log import AbstractLogSink, headline

SECONDS_BETWEEN_LINES = 10.0


@dataclass(frozen=True)
class Arguments:
    """Train the runs of a figure of the paper and draw it. What is done is skipped, what was begun
    goes on."""

    figure: Positional[Annotated[str, arg(metavar="FIGURE")]] = ""
    """main, lambda, relevance, termination-budget, oracle, ride, baselines (not in the paper), or
    all."""
    scale: str = "short"
    """smoke (tiny, to see that everything works), short (as many frames as show the difference) or
    paper."""
    out: Path = Path("reproduction")
    """Folder for the runs and figures."""
    list: bool = False
    """Only list the runs, their frames, what is done and how long the rest takes on this device."""
    json: bool = False
    """List as JSON."""
    tasks: tuple[str, ...] = ()
    """Only the runs on these tasks."""
    methods: tuple[str, ...] = ()
    """Only the runs of these methods."""
    together: int = launch.MOST_SEEDS
    """The most seeds trained as one program. Runs of the same task share one."""
    launcher: Literal["local", "ray"] = "local"
    """Train here, one program after another, or as tasks of a Ray cluster."""
    ray_address: str | None = None
    """Of a running Ray cluster ('auto' finds this machine's); by default one is started here."""
    ray_gpus: float | None = None
    """GPUs of one Ray task; by default one where the cluster has any."""
    ray_cpus: float = 1.0
    """Processors of one Ray task."""


def run(arguments: Arguments) -> int:
    """List, or train and draw."""
    only_list = arguments.list or arguments.json
    if not arguments.figure and not only_list:
        known = ", ".join((*reproduction.FIGURES, reproduction.ALL))
        raise InputError(f"name a figure: {known}; --list shows their runs")
    figure = arguments.figure or reproduction.ALL
    folder = arguments.out / arguments.scale
    runs = reproduction.planned_runs(
        figure,
        arguments.scale,
        folder,
        only_tasks=arguments.tasks,
        only_methods=arguments.methods,
    )
    if arguments.together < 1:
        raise InputError(f"together must be at least 1, not {arguments.together}")
    open_runs = launch.unfinished(runs)
    groups = launch.groups_of(open_runs, arguments.together)
    if only_list:
        _list(runs, groups, as_json=arguments.json)
        return 0
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if len(open_runs) < len(runs):
        console.print(f"{len(runs) - len(open_runs)} of {len(runs)} runs are done already")
    results = _train(arguments, groups, console)
    if any(result.outcome == Outcome.INTERRUPTED for result in results):
        console.print("interrupted; the same command goes on", markup=False)
        return EXIT_INTERRUPTED
    _draw(arguments, folder, runs)
    diverged = [result for result in results if result.outcome == Outcome.DIVERGED]
    for result in diverged:
        console.print(f"{result.directory} diverged at {result.frames:,} frames", markup=False)
    return EXIT_DIVERGED if diverged else 0


def _train(
    arguments: Arguments, groups: Sequence[Sequence[PlannedRun]], console: Console
) -> list[RunResult]:
    command = ["ella", *sys.argv[1:]]

    def say(line: str) -> None:
        console.print(line, markup=False)

    if not groups:
        return []
    if arguments.launcher == "ray":
        return train_on_ray(
            groups,
            address=arguments.ray_address,
            gpus=arguments.ray_gpus,
            cpus=arguments.ray_cpus,
            say=say,
            command=command,
        )
    return launch.train_here(
        groups, sinks=lambda planned: [_Lines(planned)], say=say, command=command
    )


class _Lines(AbstractLogSink):
    """A line about a run every few seconds."""

    def __init__(self, planned: PlannedRun) -> None:
        self._planned = planned
        self._written = -SECONDS_BETWEEN_LINES

    def write(self, line: LogLine) -> None:
        finished = line.frames >= self._planned.settings.total_frames
        if not finished and time.monotonic() - self._written < SECONDS_BETWEEN_LINES:
            return
        self._written = time.monotonic()
        sys.stdout.write(
            f"{self._planned.directory.name}: "
            f"{line.frames:,}/{self._planned.settings.total_frames:,} frames a seed  "
            f"{line.frames_per_second:,.0f}/s in this program  {headline(line)}\n"
        )
        sys.stdout.flush()

    def close(self) -> None:
        sys.stdout.flush()


def _draw(arguments: Arguments, folder: Path, runs: Sequence[PlannedRun]) -> None:
    """A report of each figure, from those of its runs that were asked for."""
    present = {planned.directory.name for planned in runs}
    for name in reproduction.figure_names(arguments.figure):
        figure = reproduction.FIGURES[name]
        directories = tuple(folder / row.name for row in figure.rows if row.name in present)
        if directories:
            title = f"{figure.title} ({arguments.scale} scale)"
            report.run(
                report.Arguments(runs=directories, out=folder / "figures" / name, title=title)
            )


def _list(
    runs: Sequence[PlannedRun], groups: Sequence[Sequence[PlannedRun]], *, as_json: bool
) -> None:
    seconds = _estimates(groups)
    rows: list[dict[str, Any]] = []
    for planned in runs:
        program = next((i for i, group in enumerate(groups) if planned in group), None)
        stands = launch.standing(planned)
        settings = planned.settings
        rows.append(
            {
                "run": planned.directory.name,
                "frames": settings.total_frames,
                "seeds": settings.seeds,
                "network": settings.ppo.network.variant,
                "done": 1.0 if stands.finished else stands.frames / settings.total_frames,
                "program": None if program is None else program + 1,
                "seconds": 0.0 if program is None else seconds[planned.directory],
            }
        )
    total = sum(row["seconds"] for row in rows)
    if as_json:
        sys.stdout.write(json.dumps({"runs": rows, "seconds": total}, indent=2) + "\n")
        return
    table = Table(
        caption=f"about {_clock(total)} on this device; runs of one program are trained together"
    )
    for name in ("run", "frames a seed", "seeds", "network", "done", "program", "time"):
        table.add_column(name, justify="left" if name in ("run", "network") else "right")
    for row in rows:
        table.add_row(
            row["run"],
            f"{row['frames']:,}",
            str(row["seeds"]),
            row["network"],
            f"{row['done']:.0%}",
            str(row["program"] or ""),
            _clock(row["seconds"]),
        )
    Console(highlight=False).print(table)


def _estimates(groups: Sequence[Sequence[PlannedRun]]) -> dict[Path, float]:
    """Seconds of each run that is not done: its share of its program's."""
    found = {}
    for group in groups:
        rate = rates.known_rate(group)
        if rate is None:
            sys.stderr.write(
                f"measuring the rate of {len(group)} runs like {group[0].directory.name}\n"
            )
            rate = rates.measure_rate(group)
        for planned in group:
            found[planned.directory] = launch.seed_frames_left(planned) / rate
    return found


def _clock(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
