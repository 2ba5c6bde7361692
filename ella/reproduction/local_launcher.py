"""Training many runs: which of them share a program, and which are done."""

import logging
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ella.errors import InputError
from ella.runs import directory as run_directory
from ella.runs import metrics
from ella.runs.begun_run import goal_of, store_of
from ella.runs.config_file import CONFIG_FILE, read_run
from ella.runs.group_training import Sinks
from ella.runs.identity import identity
from ella.runs.planned_run import PlannedRun, seeds_of
from ella.runs.run_result import Outcome, RunResult
from ella.runs.training_run import can_train_together, train_runs

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunProgress:
    """How far a run has come."""

    frames: int
    """Of each seed, in its metrics file."""
    finished: bool


def run_progress(planned: PlannedRun) -> RunProgress:
    """Where a planned run stands in its directory; an error if another run is there."""
    directory, settings = planned.directory, planned.settings
    if not (directory / CONFIG_FILE).exists():
        return RunProgress(0, finished=False)
    spec, before = read_run(directory)
    if identity(spec, before) != identity(planned.spec, settings):
        raise InputError(
            f"{directory} holds a run with other settings; name another folder with --out"
        )
    frames = metrics.frames_reached(directory)
    policies = directory / run_directory.POLICIES
    exported = all(
        (policies / f"seed-{seed}.safetensors").exists() for seed in settings.seed_numbers
    )
    over = frames >= settings.total_frames or goal_of(planned, is_begun=frames > 0).is_reached
    return RunProgress(frames, finished=over and exported)


def groups_of(runs: Sequence[PlannedRun], most_seeds: int) -> list[tuple[PlannedRun, ...]]:
    """Runs to be trained together, in the order of the first of each group.

    Runs that were started separately stay separate: they share a program only from a checkpoint
    that all have.
    """
    groups: list[list[PlannedRun]] = []
    for planned in runs:
        for group in groups:
            if (
                can_train_together(group[0], planned)
                and seeds_of((*group, planned)) <= most_seeds
                and _share_a_checkpoint((*group, planned))
            ):
                group.append(planned)
                break
        else:
            groups.append([planned])
    return [tuple(group) for group in groups]


def _share_a_checkpoint(group: Sequence[PlannedRun]) -> bool:
    """Whether all stand at the start, or all have a checkpoint of the same iteration."""
    saved = [{path.name for path in store_of(planned).paths()} for planned in group]
    return not any(saved) or bool(set.intersection(*saved))


def unfinished(runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """Those that still need training."""
    return [planned for planned in runs if not run_progress(planned).finished]


def seed_frames_left(planned: PlannedRun) -> int:
    """Frames of all seeds still to train."""
    left = planned.settings.total_frames - run_progress(planned).frames
    return max(left, 0) * planned.settings.seeds


def train_here(
    groups: Sequence[Sequence[PlannedRun]], *, sinks: Sinks, command: Sequence[str]
) -> list[RunResult]:
    """Train groups one after another on this machine's devices, each resumed where it stands.

    Stops after the group in which it is interrupted.
    """
    results: list[RunResult] = []
    for index, group in enumerate(groups):
        names = ", ".join(planned.directory.name for planned in group)
        logger.info("program %d of %d: %s", index + 1, len(groups), names)
        results += train_runs(group, resume=True, sinks=sinks, command=command)
        if any(result.outcome == Outcome.INTERRUPTED for result in results):
            break
    return results


def known_rate(group: Sequence[PlannedRun], runs: Sequence[PlannedRun]) -> float | None:
    """Frames a second of all seeds of a program, as logged by begun ones of `runs` with the same
    learner; None if there is none."""
    rates = [
        rate
        for planned in runs
        if planned.settings.ppo == group[0].settings.ppo
        and (rate := metrics.last_rate(planned.directory)) is not None
    ]
    return statistics.median(rates) if rates else None
