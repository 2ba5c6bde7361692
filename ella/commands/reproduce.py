"""`ella reproduce FIGURE`: the runs behind a figure of the paper, and its report."""

import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.console import Console
from tyro.conf import Positional, arg

from ella.commands import report
from ella.commands.tables import plain_table, print_whole
from ella.commands.train import EXIT_DIVERGED, EXIT_INTERRUPTED
from ella.episodes import run_artefacts
from ella.errors import InputError
from ella.reproduction import figures as reproduction
from ella.reproduction import local_launcher as launch
from ella.reproduction.ray_launcher import train_on_ray
from ella.runs import rates
from ella.runs.log_sinks import AbstractLogSink, headline, print_progress
from ella.runs.metrics import FILE_NAME, LogLine
from ella.runs.planned_run import PlannedRun
from ella.runs.run import Outcome, RunResult
from ella.training.throughput import measure_rate

SECONDS_BETWEEN_LINES = 10.0
LEFT_COLUMNS = ("run", "network")
DROPPED_COLUMNS: Sequence[Sequence[str]] = ((), ("network",), ("network", "seeds", "program"))
"""Of the list, in ever narrower terminals."""
NOT_COUNTED = "without compilation and offline stages"


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
    """Only list the runs, their frames, what is done and, where this kind of device has trained
    such runs before, how long the rest takes."""
    json: bool = False
    """List as JSON."""
    measure: bool = False
    """List, after a moment of training on this device where its rate is not known yet: seconds on
    a GPU, minutes on a processor."""
    tasks: tuple[str, ...] = ()
    """Only the runs on these tasks."""
    methods: tuple[str, ...] = ()
    """Only the runs of these methods."""
    together: int = launch.MOST_SEEDS
    """The most seeds of several runs trained as one program. Runs of the same task share one; a
    run's own seeds always do."""
    artefacts: bool = True
    """Give every run a video of an episode and, with ELLA, a heat map of relevance."""
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
    only_list = arguments.list or arguments.json or arguments.measure
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
    _check_numbers(arguments)
    open_runs = launch.unfinished(runs)
    groups = launch.groups_of(open_runs, arguments.together)
    if only_list:
        if arguments.measure:
            _measure(groups)
        _list(runs, groups, arguments.scale, as_json=arguments.json)
        return 0
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if len(open_runs) < len(runs):
        console.print(f"{len(runs) - len(open_runs)} of {len(runs)} runs are done already")
    results = _train(arguments, groups, console)
    if any(result.outcome == Outcome.INTERRUPTED for result in results):
        console.print("interrupted; the same command goes on", markup=False)
        return EXIT_INTERRUPTED
    for planned in runs if arguments.artefacts else ():
        run_artefacts.add(planned.directory)
    _draw(arguments, folder)
    diverged = [result for result in results if result.outcome == Outcome.DIVERGED]
    for result in diverged:
        console.print(f"{result.directory} diverged at {result.frames:,} frames", markup=False)
    return EXIT_DIVERGED if diverged else 0


def _check_numbers(arguments: Arguments) -> None:
    if arguments.together < 1:
        raise InputError(f"together must be at least 1, not {arguments.together}")
    for name, asked in (("ray-gpus", arguments.ray_gpus), ("ray-cpus", arguments.ray_cpus)):
        if asked is not None and not 0 <= asked < math.inf:
            raise InputError(f"{name} must be a number from 0 up, not {asked:g}")


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
        print_progress(
            f"{self._planned.directory.name}: "
            f"{line.frames:,}/{self._planned.settings.total_frames:,} frames a seed  "
            f"{line.frames_per_second:,.0f}/s in this program  {headline(line)}"
        )

    def close(self) -> None:
        """Every line is flushed when written."""


def _draw(arguments: Arguments, folder: Path) -> None:
    """A report of each figure, from all of its runs that there are: an earlier command may have
    trained others."""
    for name in reproduction.figure_names(arguments.figure):
        figure = reproduction.FIGURES[name]
        directories = tuple(
            folder / row.name for row in figure.rows if (folder / row.name / FILE_NAME).exists()
        )
        if directories:
            title = f"{figure.title} ({arguments.scale} scale)"
            report.run(
                report.Arguments(runs=directories, out=folder / "figures" / name, title=title)
            )


def _list(
    runs: Sequence[PlannedRun], groups: Sequence[Sequence[PlannedRun]], scale: str, *, as_json: bool
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
    known = [row["seconds"] for row in rows if row["seconds"] is not None]
    total = sum(known) if len(known) == len(rows) else None
    if as_json:
        sys.stdout.write(json.dumps({"runs": rows, "seconds": total}, indent=2) + "\n")
        return
    texts = [
        {
            "run": row["run"],
            "frames": f"{row['frames']:,}",
            "seeds": str(row["seeds"]),
            "network": row["network"],
            "done": f"{row['done']:.0%}",
            "program": str(row["program"] or ""),
            "time": "?" if row["seconds"] is None else _clock(row["seconds"]),
        }
        for row in rows
    ]
    tables = []
    for dropped in DROPPED_COLUMNS:
        names = [name for name in texts[0] if name not in dropped]
        cells = [[text[name] for name in names] for text in texts]
        tables.append(plain_table(names, cells, left=LEFT_COLUMNS))
    print_whole(*tables)
    sys.stdout.write(f"\n{scale} scale: {reproduction.SCALES[scale].description}\n")
    sys.stdout.write("frames are of each seed; runs of one program are trained together\n")
    if total is not None:
        sys.stdout.write(f"about {_clock(total)} on this device, {NOT_COUNTED}\n")
        return
    if any(known):
        sys.stdout.write(
            f"about {_clock(sum(known))} on this device, {NOT_COUNTED} and without those marked ?\n"
        )
    sys.stdout.write(
        "?: no such network has been trained on this kind of device yet; --measure times a moment "
        "of it (minutes on a processor), and every run that is trained tells its rate\n"
    )


def _estimates(groups: Sequence[Sequence[PlannedRun]]) -> dict[Path, float | None]:
    """Seconds of each run that is not done, its share of its program's; None where this kind of
    device never trained such a program."""
    found: dict[Path, float | None] = {}
    for group in groups:
        rate = rates.known_rate(group)
        for planned in group:
            left = launch.seed_frames_left(planned)
            found[planned.directory] = None if rate is None else left / rate
    return found


def _measure(groups: Sequence[Sequence[PlannedRun]]) -> None:
    """Time a moment of every program whose rate is not known, and tell how that goes."""
    for index, group in enumerate(groups):
        if rates.known_rate(group) is not None:
            continue

        def say(line: str, number: int = index + 1) -> None:
            sys.stderr.write(f"measuring program {number} of {len(groups)}: {line}\n")
            sys.stderr.flush()

        rate = measure_rate(group, say=say)
        say(f"{rate:,.0f} frames a second")


def _clock(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 60:
        return f"{seconds:.0f} s"
    if minutes < 120:
        return f"{minutes} min"
    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours / 24:.1f} days"
