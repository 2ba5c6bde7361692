"""The training of runs as one program: log lines, checkpoints and policies of each."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ella.errors import InputError
from ella.runs import directory as run_directory
from ella.runs.begun_run import goal_of, store_of
from ella.runs.config_file import write_config
from ella.runs.directory import writing
from ella.runs.log_sinks import AbstractLogSink, TensorBoardLog, WandbLog
from ella.runs.metrics import MetricsFile
from ella.runs.planned_run import PlannedRun, seeds_of
from ella.runs.policies import export_policies, load_policy
from ella.runs.run_result import Outcome, RunResult
from ella.training import multi_host
from ella.training.assembly import Sweep, seeds_between
from ella.training.log_line import LogLine, averages, non_finite
from ella.training.loop import Stretch, stretches
from ella.training.policy import Policy
from ella.training.program import SeedProgram, States
from ella.training.settings import TrainingSettings, to_table
from ella.training.start_check import check_start
from ella.training.warm_start import check_fits, started_from

logger = logging.getLogger(__name__)

Sinks = Callable[[PlannedRun], Sequence[AbstractLogSink]]
"""Makes further places for the log lines of a run once training begins."""


def agent_to_start_from(settings: TrainingSettings) -> Policy | None:
    """The agent that the settings name, if it fits them."""
    if settings.start_from is None:
        return None
    policy = load_policy(settings.start_from)
    check_fits(policy, settings.ppo.network)
    return policy


class _Member:
    """One run of a group while it trains: its files, and how far it has come."""

    def __init__(self, planned: PlannedRun, iteration: int, names: Sequence[str]) -> None:
        self.planned = planned
        self.store = store_of(planned)
        self.metrics = MetricsFile(planned.directory, names, planned.settings.seed_numbers)
        every = planned.settings.log_iterations
        is_writer = multi_host.is_main_process()
        self.seconds = self.metrics.start(iteration, every) if is_writer else 0.0
        # The other processes follow the first.
        self.goal = goal_of(planned, is_begun=is_writer and iteration > 0)
        self.saved = iteration
        self.last: LogLine | None = None
        self.diverged_at: int | None = None
        """Iterations done before the measurements stopped being finite."""
        self.logs: list[AbstractLogSink] = []

    def open_logs(self, sinks: Sinks, frames: int) -> None:
        """Begin to log after `frames` of each seed, where this process logs."""
        if not multi_host.is_main_process():
            return
        planned, log = self.planned, self.planned.settings.log
        if log.tensorboard:
            self.logs.append(TensorBoardLog(planned.directory, planned.settings.seed_numbers))
        if log.wandb:
            config = {"task": planned.spec.name, **to_table(planned.settings)}
            self.logs.append(
                WandbLog(planned.directory, planned.settings.seed_numbers, log.wandb, config)
            )
        self.logs.extend(sinks(planned))
        for sink in self.logs:
            sink.start(frames)

    def write(self, line: LogLine) -> None:
        """Log a line."""
        if multi_host.is_main_process():
            with writing("metrics", self.planned.directory):
                self.metrics.append(line)
        for log in self.logs:
            log.write(line)
        self.goal.count(line.values, line.iteration)
        self.last = line

    def save(self, states: PyTree, iteration: int) -> None:
        """Write a checkpoint of this run's seeds, which lie on the host."""
        if multi_host.is_main_process():
            with writing("a checkpoint", self.store.directory):
                self.store.save(states, iteration)
        self.saved = iteration

    def result(self, outcome: Outcome, iteration: int) -> RunResult:
        """How it ended."""
        if self.diverged_at is not None:
            outcome, iteration = Outcome.DIVERGED, self.diverged_at
        frames = iteration * self.planned.settings.ppo.frames_per_iteration
        return RunResult(outcome, self.planned.directory, iteration, frames, self.last)


@dataclass(frozen=True)
class GroupTraining:
    """The training of a group of runs as one program."""

    group: tuple[PlannedRun, ...]
    sweeps: tuple[Sweep, ...]
    program: SeedProgram

    def go(
        self, resumed: Sequence[Path] | None, sinks: Sinks, stop: Callable[[], bool]
    ) -> list[RunResult]:
        """Start or resume, train to the end, export. `resumed` are the directories in which a run
        had begun; None starts new runs."""
        settings = self.group[0].settings
        names = self.program.prepare()
        states, iteration = self._restored() if resumed is not None else (None, 0)
        if resumed is not None:
            if iteration:
                logger.info("resuming at %s frames a seed", f"{self._frames(iteration):,}")
            for directory in resumed if not iteration else ():
                logger.warning("%s has no checkpoint: training restarts from frame 0", directory)
            # Only now is it certain that the settings belong to these runs.
            shorter = iteration > settings.iterations
            if shorter:
                logger.warning(
                    "nothing to train: %s frames a seed are more than the %s asked for",
                    f"{self._frames(iteration):,}",
                    f"{settings.total_frames:,}",
                )
            for planned in self.group if multi_host.is_main_process() and not shorter else ():
                write_config(planned.directory, planned.spec, planned.settings)
        if is_new := states is None:
            logger.info("compiling")
            self.program.compile_in_turn()
            states = self.program.start()
            if (policy := agent_to_start_from(settings)) is not None:
                states = started_from(self.program, states, policy)
            check_start(self.program.shapers, states, [sweep.seeds for sweep in self.sweeps])
        columns = {
            index: measured
            for sweep, measured in zip(self.sweeps, names, strict=True)
            for index in sweep.members
        }
        members = [
            _Member(planned, iteration, columns[index]) for index, planned in enumerate(self.group)
        ]
        if not self._is_over(members, iteration) and not self.program.is_compiled:
            if not is_new:
                logger.info("compiling")
            self.program.compile()
        try:
            for member in members:
                member.open_logs(sinks, self._frames(iteration))
            states, iteration, outcome = self._loop(states, iteration, members, stop)
        finally:
            for member in members:
                for log in member.logs:
                    log.close()
        results = [member.result(outcome, iteration) for member in members]
        parts = self._per_run(
            tuple(
                multi_host.fetched({"networks": one.network, "statistics": one.statistics})
                for one in states
            )
        )
        for planned, trained, result in zip(self.group, parts, results, strict=True):
            if result.outcome != Outcome.DIVERGED and multi_host.is_main_process():
                policies, frames = planned.directory / run_directory.POLICIES, result.frames
                with writing("policies", policies):
                    export_policies(
                        planned.spec, planned.settings, **trained, directory=policies, frames=frames
                    )
        return results

    def _per_run(self, by_sweep: Sequence[PyTree]) -> list[PyTree]:
        """PyTrees with the seed axis, one per sweep, as one per run in the order of the group."""
        found: list[PyTree] = [None] * len(self.group)
        for sweep, tree in zip(self.sweeps, by_sweep, strict=True):
            begin = 0
            for index in sweep.members:
                end = begin + self.group[index].settings.seeds
                found[index] = seeds_between(tree, begin, end)
                begin = end
        return found

    def _per_sweep(self, by_run: Sequence[PyTree]) -> States:
        """The inverse of `_per_run`, for host arrays."""
        return tuple(
            jax.tree.map(_concatenated, *(by_run[index] for index in sweep.members))
            for sweep in self.sweeps
        )

    def _restored(self) -> tuple[States | None, int]:
        """(states, iterations done) of the newest checkpoint that every run of the group has;
        (None, 0) if none has any."""
        likes = jax.eval_shape(self._per_run, self.program.shapes)
        newest: int | None = None
        while True:
            found = [
                store_of(planned).restore_newest(like, at_most=newest)
                for planned, like in zip(self.group, likes, strict=True)
            ]
            whole = [checkpoint for checkpoint in found if checkpoint is not None]
            if newest is None and not whole:
                return None, 0
            if len(whole) < len(found):
                raise InputError(
                    "these runs have no whole checkpoint in common; train them separately "
                    "(ella reproduce --together 1)"
                )
            newest = min(checkpoint.iteration for checkpoint in whole)
            if all(checkpoint.iteration == newest for checkpoint in whole):
                restored = self._per_sweep([one.state for one in whole])
                return self.program.place(restored), newest

    def _loop(
        self,
        states: States,
        iteration: int,
        members: Sequence[_Member],
        stop: Callable[[], bool],
    ) -> tuple[States, int, Outcome]:
        """(states, iterations done, outcome)."""
        settings = self.group[0].settings
        if self._is_over(members, iteration):
            return states, iteration, Outcome.FINISHED
        for stretch in stretches(
            self.program,
            states,
            iteration,
            iterations=settings.iterations,
            every=settings.log_iterations,
        ):
            states, iteration = stretch.states, stretch.iteration
            self._log(members, stretch)
            if all(member.diverged_at is not None for member in members):
                return states, iteration, Outcome.DIVERGED
            finished = self._is_over(members, iteration)
            stopping = multi_host.any_process(stop())
            self._save(members, stretch, always=finished or stopping)
            if finished:
                break
            if stopping:
                return states, iteration, Outcome.INTERRUPTED
        return states, iteration, Outcome.FINISHED

    def _is_over(self, members: Sequence[_Member], iteration: int) -> bool:
        """Whether all frames are trained, or every run has reached its goal."""
        settings = self.group[0].settings
        if settings.until is None or iteration >= settings.iterations:
            return iteration >= settings.iterations
        trained = [member for member in members if member.diverged_at is None]
        return multi_host.any_process(all(member.goal.is_reached for member in trained))

    def _save(self, members: Sequence[_Member], stretch: Stretch, *, always: bool) -> None:
        """Write the checkpoints that are due."""
        every = self.group[0].settings.checkpoint_iterations
        due = [
            member.diverged_at is None and (always or stretch.iteration - member.saved >= every)
            for member in members
        ]
        if not any(due):
            return
        on_host = self._per_run(multi_host.fetched(stretch.states))
        for member, is_due, states in zip(members, due, on_host, strict=True):
            if is_due:
                member.save(states, stretch.iteration)

    def _log(self, members: Sequence[_Member], stretch: Stretch) -> None:
        """Log what a stretch measured; remember who diverged."""
        count = stretch.iteration - stretch.before
        rate = self._frames(count) * seeds_of(self.group) / stretch.seconds
        frames = self._frames(stretch.iteration)
        for member, sums in zip(members, self._per_run(stretch.measured), strict=True):
            if member.diverged_at is not None:
                continue
            if bad := non_finite(sums):
                member.diverged_at = stretch.before
                self._warn_of_divergence(member, bad, frames)
                continue
            # A run's share of the time of a program that trains others too.
            member.seconds += stretch.seconds * member.planned.settings.seeds / seeds_of(self.group)
            member.write(LogLine(stretch.iteration, frames, member.seconds, rate, averages(sums)))

    def _warn_of_divergence(self, member: _Member, bad: Sequence[str], frames: int) -> None:
        kept = (
            f"the checkpoint at {self._frames(member.saved):,} frames a seed is kept"
            if member.store.paths()
            else "there was no checkpoint yet"
        )
        logger.warning(
            f"{', '.join(bad)} not finite before {frames:,} frames a seed in "
            f"{member.planned.directory}; stopped, {kept}"
        )

    def _frames(self, iterations: int) -> int:
        return iterations * self.group[0].settings.ppo.frames_per_iteration


def _concatenated(*leaves: Any) -> Any:
    """Arrays of several runs as one; random keys stay random keys."""
    if len(leaves) == 1:
        return leaves[0]
    return jnp.concatenate([jnp.asarray(leaf) for leaf in leaves])
