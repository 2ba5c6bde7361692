"""Training runs: from a task and settings to a directory of metrics, checkpoints and policies."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

from ella.errors import InputError, OutOfMemoryError, is_out_of_memory
from ella.runs import directory as run_directory
from ella.runs.begun_run import check_resumable
from ella.runs.config_file import CONFIG_FILE
from ella.runs.group_training import GroupTraining, Sinks, agent_to_start_from
from ella.runs.identity import check_same_run
from ella.runs.log_sinks import check_open_files
from ella.runs.planned_run import PlannedRun, seeds_of
from ella.runs.run_result import Outcome, RunResult
from ella.runs.run_shaper import run_shaper
from ella.runs.stop_signals import stop_signals
from ella.shaping.shaper import AbstractRewardShaper
from ella.training import multi_host
from ella.training.ahead import assembled
from ella.training.assembly import (
    Sweep,
    build_shaper,
    chosen_devices,
    make_program,
    sweeps_of,
    training_environment,
)
from ella.training.program import SeedProgram
from ella.training.settings import TrainingSettings
from ella.world import tasks
from ella.world.tasks import TaskSpec

logger = logging.getLogger(__name__)


def train_run(
    task: str | TaskSpec,
    settings: TrainingSettings,
    directory: Path,
    *,
    resume: bool = False,
    sinks: Sinks = lambda planned: (),
    command: Sequence[str] = (),
) -> RunResult:
    """Train `settings.seeds` agents side by side and leave everything in `directory`.

    `command` is recorded. With `resume`, an earlier run in the same directory continues from its
    newest whole checkpoint.
    """
    spec = tasks.find(task) if isinstance(task, str) else task
    planned = PlannedRun(spec, settings, directory)
    return train_runs([planned], resume=resume, sinks=sinks, command=command)[0]


def train_runs(
    group: Sequence[PlannedRun],
    *,
    resume: bool = False,
    sinks: Sinks = lambda planned: (),
    command: Sequence[str] = (),
) -> list[RunResult]:
    """Train runs that differ in their method, its settings and their seeds as one program.

    Each has its own directory, identical to that of a run trained alone. Resumed, they continue
    from the newest checkpoint that all of them have.
    """
    group = [planned.resolved() for planned in group]
    _check_group(group)
    for planned in group:
        if planned.settings.log.wandb and find_spec("wandb") is None:
            raise InputError("logging to Weights & Biases needs the package: pip install wandb")
        if resume:
            check_same_run(planned)
            check_resumable(planned)
    check_open_files(sum(one.settings.seeds for one in group if one.settings.log.tensorboard))
    chosen_devices(group[0].settings)
    if not resume:
        agent_to_start_from(group[0].settings)
    begun = [planned.directory for planned in group if (planned.directory / CONFIG_FILE).exists()]
    with ExitStack() as locks:
        _lock(group, locks, resume=resume, command=command)
        for planned in group:
            logger.info(_opening(planned))
        with _memory_in_one_line(group):
            try:
                with stop_signals(at_once=True):
                    program, sweeps = _assembled(group, is_new=not begun)
            except KeyboardInterrupt:
                return [
                    RunResult(Outcome.INTERRUPTED, planned.directory, 0, 0, None)
                    for planned in group
                ]
            training = GroupTraining(tuple(group), tuple(sweeps), program)
            with stop_signals() as stop:
                return training.go(begun if resume else None, sinks, stop)


def _assembled(group: Sequence[PlannedRun], *, is_new: bool) -> tuple[SeedProgram, Sequence[Sweep]]:
    """The program of a group, after the offline stage of its shapers; compiled meanwhile where the
    runs are new. Runs that have begun have their shapers, and may be over."""
    settings = group[0].settings
    env = training_environment(group[0].spec, settings)
    seeds = [planned.settings.seed_numbers for planned in group]

    def build(trained: bool) -> list[AbstractRewardShaper]:
        if not trained:
            return [build_shaper(one.spec, one.settings, trained=False) for one in group]
        return [run_shaper(one.directory, one.spec, one.settings) for one in group]

    if is_new:
        return assembled(settings, env, seeds, build)
    sweeps = sweeps_of(build(True), seeds)
    return make_program(settings, env, sweeps), sweeps


@contextmanager
def _memory_in_one_line(group: Sequence[PlannedRun]) -> Iterator[None]:
    """Turn what does not fit into memory into one line that says what to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        seeds, ppo = seeds_of(group), group[0].settings.ppo
        sizes = f"{seeds:,} x {ppo.num_envs:,} environments, {ppo.rollout_length:,} steps each"
        raise OutOfMemoryError(
            f"out of memory with {sizes}; lower --ppo.num-envs, --ppo.rollout-length, "
            "--ppo.minibatch-frames or --seeds (ella reproduce: --together)"
        ) from error


def _opening(planned: PlannedRun) -> str:
    settings = planned.settings
    seeds = f"{settings.seeds} seed" + "s" * (settings.seeds > 1)
    until = f" or until {settings.until:.0%} succeed" if settings.until is not None else ""
    also = f" with {', '.join(settings.also)}" if settings.also else ""
    start = f" from {settings.start_from}" if settings.start_from else ""
    return (
        f"training {settings.method.label} on {planned.spec.name}{also}{start}: {seeds}, "
        f"{settings.total_frames:,} frames a seed{until}"
    )


def _lock(
    group: Sequence[PlannedRun], locks: ExitStack, *, resume: bool, command: Sequence[str]
) -> None:
    """Lock the run directories in process 0; if that fails, every process aborts."""
    refusal: InputError | None = None
    try:
        for planned in group if multi_host.is_main_process() else ():
            locks.enter_context(
                run_directory.locked_run(
                    planned.directory,
                    planned.spec,
                    planned.settings,
                    resume=resume,
                    command=command,
                    together_with=[other.directory.name for other in group if other is not planned],
                )
            )
    except InputError as error:
        refusal = error
    if multi_host.any_process(refusal is not None):
        raise refusal or InputError("process 0 refused to start; its own message says why")


def can_train_together(one: PlannedRun, other: PlannedRun) -> bool:
    """Whether two runs can share a program: they differ in method, its settings and seeds alone."""
    return (
        one.spec == other.spec
        and one.settings.also == other.settings.also
        and one.settings.start_from == other.settings.start_from
        and one.settings.curriculum == other.settings.curriculum
        and one.settings.ppo == other.settings.ppo
        and one.settings.iterations == other.settings.iterations
        and one.settings.until == other.settings.until
        and one.settings.devices == other.settings.devices
        and one.settings.log == other.settings.log
    )


def _check_group(group: Sequence[PlannedRun]) -> None:
    for planned in group[1:]:
        if not can_train_together(group[0], planned):
            raise InputError(
                f"{planned.directory} and {group[0].directory} cannot be trained together: task, "
                "also, start_from, curriculum, ppo, frames, until, devices and log must be the same"
            )
    if len({planned.directory for planned in group}) < len(group):
        raise InputError("two runs cannot share a directory")
