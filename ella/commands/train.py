"""`ella train`: train agents."""

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ella.commands.exit_statuses import EXIT_DIVERGED, EXIT_INTERRUPTED
from ella.commands.options import Positional
from ella.commands.settings_options import settings_sections, with_options
from ella.errors import InputError
from ella.training import presets
from ella.training.settings import TrainingSettings, from_table, with_method

if TYPE_CHECKING:
    from ella.runs.run_result import RunResult
    from ella.world.tasks import TaskSpec

logger = logging.getLogger(__name__)

sections = settings_sections


@dataclass(frozen=True)
class Arguments:
    """Train agents on a task. Settings, metrics, checkpoints and policies are left in one
    directory."""

    out: Path
    """Directory of the run; must be new or empty, unless --resume is given."""
    task: Annotated[str | None, Positional("TASK")] = None
    """Name of the task; `ella tasks` lists them. Not needed with --resume, nor with a --config that
    names one."""
    method: str | None = None
    """Reward shaping: ppo (none, the default), one of the methods below, or several joined by
    '+'."""
    preset: str | None = None
    """Where settings start from: paper (the paper's network and PPO, the default), released (the
    same, and ELLA's relevance is trained as in the released code), onehot (cells one-hot encoded,
    needs fewer frames), wide (2,048 environments for one agent), wide-8gb (512), small (for a CPU),
    laptop (for a CPU and the small tasks), smoke (only shows that everything works)."""
    config: Path | None = None
    """JSON file of settings, like a run's config.json; options override it."""
    resume: bool = False
    """Resume the run in --out, with its own settings, from its newest checkpoint."""
    coordinator: str | None = None
    """Train in several processes, for example one per machine: address and port of the first of
    them, or auto where Slurm or MPI started them. Each holds whole seeds; --out must be a folder
    that all of them see."""
    processes: int | None = None
    """How many processes train together; not needed with --coordinator auto."""
    process: int | None = None
    """Number of this process, from 0; not needed with --coordinator auto."""


def run(arguments: Arguments, typed: Mapping[str, Any]) -> int:
    """Train, and log how it ended."""
    spec, settings = planned(arguments, typed)
    from ella.runs.log_sinks import display
    from ella.runs.run_result import Outcome
    from ella.runs.training_run import train_run
    from ella.training import multi_host

    if arguments.coordinator is not None:
        multi_host.join(arguments.coordinator, arguments.processes, arguments.process)
    elif arguments.processes is not None or arguments.process is not None:
        raise InputError("--processes and --process need --coordinator")
    if not multi_host.is_main_process():
        logging.getLogger("ella").setLevel(logging.CRITICAL)
    result = train_run(
        spec,
        settings,
        arguments.out,
        resume=arguments.resume,
        sinks=lambda planned: [display(planned.settings.total_frames, planned.settings.method)],
        command=["ella", *sys.argv[1:]],
    )
    logger.info(_ending(result))
    return {
        Outcome.FINISHED: 0,
        Outcome.INTERRUPTED: EXIT_INTERRUPTED,
        Outcome.DIVERGED: EXIT_DIVERGED,
    }[result.outcome]


def planned(arguments: Arguments, typed: Mapping[str, Any]) -> "tuple[TaskSpec, TrainingSettings]":
    """The task and the resolved settings that the arguments ask for."""
    from ella.runs.config_file import read_config_table, read_run
    from ella.world import tasks

    spec: TaskSpec | None = None
    table: dict[str, Any] = {}
    if arguments.resume:
        if arguments.preset is not None or arguments.config is not None:
            raise InputError("a resumed run has settings of its own; leave out --preset, --config")
        spec, settings = read_run(arguments.out)
        if arguments.method is not None:
            settings = with_method(settings, arguments.method)
    else:
        preset = presets.PAPER if arguments.preset is None else arguments.preset
        where = str(arguments.config)
        if arguments.config is not None:
            spec, table = read_config_table(arguments.config)
        method = table.get("method") or presets.DEFAULT_METHOD
        if arguments.method is not None:
            method = arguments.method
        table = {**table, "method": method}
        settings = from_table(table, presets.find(preset, method), where=where)
    if arguments.task is not None:
        chosen = tasks.find(arguments.task) if spec is None else spec.find(arguments.task)
        spec = chosen if spec is None else replace(chosen, brought=spec.brought)
    if spec is None:
        raise InputError("TASK is missing; `ella tasks` lists the tasks")
    return spec, with_options(settings, typed).resolved(spec)


def _ending(result: "RunResult") -> str:
    from ella.runs.log_sinks import headline
    from ella.runs.run_result import Outcome

    text = f"{result.outcome.value} at {result.frames:,} frames a seed in {result.directory}"
    if result.last is not None and result.outcome == Outcome.FINISHED:
        text += f": {headline(result.last)}"
    if result.outcome == Outcome.INTERRUPTED:
        text += f"; resume with: ella train --resume --out {result.directory}"
    return text
