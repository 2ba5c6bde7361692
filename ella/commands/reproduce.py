"""`ella reproduce FIGURE`: the runs behind a figure of the paper, and its report."""

import logging
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from ella.commands.exit_statuses import EXIT_DIVERGED, EXIT_INTERRUPTED
from ella.commands.options import Positional
from ella.errors import InputError

if TYPE_CHECKING:
    from ella.runs.planned_run import PlannedRun
    from ella.runs.run_result import RunResult

logger = logging.getLogger(__name__)

MOST_SEEDS = 32
"""Seeds trained as one program by default: more would gain little and need more memory."""


@dataclass(frozen=True)
class Arguments:
    """Train the runs of a figure of the paper and draw it. Finished runs are skipped, begun ones
    resumed."""

    figure: Annotated[str, Positional("FIGURE")] = ""
    """main, lambda, relevance, termination-budget, oracle, ride, or all; and, which are not in the
    paper, baselines, classifiers and cells (in all too), ablation and ablation-budget."""
    scale: str = "short"
    """smoke (tiny, to see that everything works), short (as many frames as show the difference) or
    paper."""
    out: Path = Path("reproduction")
    """Folder for the runs and figures."""
    list: bool = False
    """Only list the runs, their frames, what is done and, where runs of the folder tell how fast
    they train, how long the rest takes."""
    json: bool = False
    """List as JSON."""
    measure: bool = False
    """List, after timing a moment of training on this device: seconds on a GPU, minutes on a
    CPU."""
    tasks: tuple[str, ...] = ()
    """Only the runs on these tasks."""
    methods: tuple[str, ...] = ()
    """Only the runs of these methods."""
    runs: tuple[str, ...] = ()
    """Only the runs with these names, in which * stands for anything: '*-only-*'."""
    frames: float | None = None
    """Train each seed for at most so many frames; the same command without it trains on."""
    together: int = MOST_SEEDS
    """The most seeds of several runs trained as one program. Runs of the same task share one; a
    run's own seeds always do."""
    side_by_side: int = 1
    """Programs trained at the same time on this machine, each in a process of its own. On a GPU,
    NVIDIA's multi-process service lets them run at once."""
    evaluate: bool = True
    """Play fresh levels with every final policy: 1,000, at the scale smoke 16. The report shows the
    success."""
    artefacts: bool = True
    """Give every run a video of an episode and, with ELLA, a heat map of relevance."""
    launcher: Literal["local", "ray"] = "local"
    """Train here, or as tasks of a Ray cluster."""
    ray_address: str | None = None
    """Of a running Ray cluster ('auto' finds this machine's); by default one is started here."""
    ray_gpus: float | None = None
    """GPUs of one Ray task; by default one where the cluster has any."""
    ray_cpus: float = 1.0
    """CPUs of one Ray task."""


def run(arguments: Arguments) -> int:
    """List, or train and draw."""
    from ella.reproduction import figures as reproduction
    from ella.reproduction import local_launcher as launch
    from ella.runs.run_result import Outcome

    only_list = arguments.list or arguments.json or arguments.measure
    if not arguments.figure and not only_list:
        known = ", ".join((*reproduction.FIGURES, reproduction.ALL))
        raise InputError(f"name a figure: {known}; --list shows their runs")
    folder = arguments.out / arguments.scale
    runs = reproduction.planned_runs(
        arguments.figure or reproduction.ALL,
        arguments.scale,
        folder,
        only_tasks=arguments.tasks,
        only_methods=arguments.methods,
        only_runs=arguments.runs,
        most_frames=_most_frames(arguments.frames),
    )
    _check_numbers(arguments)
    open_runs = launch.unfinished(runs)
    groups = launch.groups_of(open_runs, arguments.together)
    if only_list:
        from ella.commands.reproduction_list import print_list

        print_list(runs, groups, arguments.scale, measure=arguments.measure, as_json=arguments.json)
        return 0
    if len(open_runs) < len(runs):
        logger.info("%d of %d runs are done already", len(runs) - len(open_runs), len(runs))
    results = _train(arguments, groups)
    if any(result.outcome == Outcome.INTERRUPTED for result in results):
        logger.info("interrupted; the same command resumes")
        return EXIT_INTERRUPTED
    if arguments.evaluate:
        from ella.runs.run_evaluation import add_evaluation

        levels = reproduction.scale_of(arguments.scale).evaluated_levels
        for planned in runs:
            add_evaluation(planned.directory, levels)
    if arguments.artefacts:
        from ella.episodes import run_artefacts

        for planned in runs:
            run_artefacts.add(planned.directory)
    _draw(arguments, folder)
    diverged = [result for result in results if result.outcome == Outcome.DIVERGED]
    for result in diverged:
        logger.warning(f"{result.directory} diverged at {result.frames:,} frames")
    return EXIT_DIVERGED if diverged else 0


def _most_frames(asked: float | None) -> int | None:
    if asked is None:
        return None
    if not 1 <= asked < math.inf:
        raise InputError(f"--frames must be >= 1, got {asked:g}")
    return round(asked)


def _check_numbers(arguments: Arguments) -> None:
    if arguments.together < 1:
        raise InputError(f"--together must be >= 1, got {arguments.together}")
    if arguments.side_by_side < 1:
        raise InputError(f"--side-by-side must be >= 1, got {arguments.side_by_side}")
    if arguments.side_by_side > 1 and arguments.launcher == "ray":
        raise InputError("--side-by-side is for training here; with Ray see --ray-gpus")
    for name, asked in (("ray-gpus", arguments.ray_gpus), ("ray-cpus", arguments.ray_cpus)):
        if asked is not None and not 0 <= asked < math.inf:
            raise InputError(f"--{name} must be >= 0, got {asked:g}")


def _train(arguments: Arguments, groups: "Sequence[Sequence[PlannedRun]]") -> "list[RunResult]":
    from ella.reproduction.local_launcher import train_here
    from ella.reproduction.ray_launcher import train_on_ray
    from ella.reproduction.side_by_side import train_side_by_side
    from ella.runs.progress_lines import ProgressLines

    command = ["ella", *sys.argv[1:]]
    if not groups:
        return []
    if arguments.launcher == "ray":
        return train_on_ray(
            groups,
            address=arguments.ray_address,
            gpus=arguments.ray_gpus,
            cpus=arguments.ray_cpus,
            command=command,
        )
    if arguments.side_by_side > 1:
        return train_side_by_side(groups, at_most=arguments.side_by_side, command=command)
    return train_here(groups, sinks=lambda planned: [ProgressLines(planned)], command=command)


def _draw(arguments: Arguments, folder: Path) -> None:
    """A report of each figure, from all of its runs that there are: an earlier command may have
    trained others."""
    from ella.commands import report
    from ella.reproduction import figures as reproduction
    from ella.runs.metrics import FILE_NAME

    for name in reproduction.figure_names(arguments.figure):
        figure = reproduction.FIGURES[name]
        trained = [row for row in figure.rows if (folder / row.name / FILE_NAME).exists()]
        if trained:
            methods = {row.method for row in trained}
            report.run(
                report.Arguments(
                    runs=tuple(folder / row.name for row in trained),
                    out=folder / "figures" / name,
                    title=f"{figure.title} ({arguments.scale} scale)",
                    baseline=figure.baseline if figure.baseline in methods else None,
                )
            )
