"""Training runs: from a task and settings to a directory of metrics, checkpoints and policies."""

import errno
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ella.errors import InputError
from ella.measurement import Measurements
from ella.methods.registry import build_shaper, check_method
from ella.ppo.iteration import init_train_state, run_iteration
from ella.runs import directory as run_directory
from ella.runs.checkpoint import CheckpointStore, fingerprint
from ella.runs.identity import check_same_run, what_differs
from ella.runs.log_sinks import AbstractLogSink, TensorBoardLog, WandbLog
from ella.runs.metrics import LogLine, MetricsFile, averages, non_finite
from ella.runs.planned_run import PlannedRun, seeds_of
from ella.runs.policies import export_policies
from ella.runs.rates import remember_rate
from ella.settings_table import to_json
from ella.shaping.shaper import AbstractRewardShaper
from ella.training import multi_host as hosts
from ella.training.program import SeedProgram, States, seed_mesh
from ella.training.settings import Settings
from ella.world.environment import Environment, make
from ella.world.tasks import TaskSpec


class Outcome(Enum):
    """How a call of `train` ended."""

    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    """By Ctrl-C, SIGTERM or loss of the terminal; the run is saved and can be resumed."""
    DIVERGED = "diverged"
    """A measurement was not finite; the last good checkpoint is kept."""


@dataclass(frozen=True)
class RunResult:
    """What a call of `train` leaves behind."""

    outcome: Outcome
    directory: Path
    iteration: int
    frames: int
    """By each seed."""
    last: LogLine | None
    """The last log line of this call."""


Sinks = Callable[[PlannedRun], Sequence[AbstractLogSink]]
"""Makes further places for the log lines of a run once training begins."""


def train(
    task: str | TaskSpec,
    settings: Settings,
    directory: Path,
    *,
    resume: bool = False,
    sinks: Sinks = lambda planned: (),
    say: Callable[[str], None] = lambda line: None,
    command: Sequence[str] = (),
) -> RunResult:
    """Train `settings.seeds` agents side by side and leave everything in `directory`.

    `say` takes remarks, `command` is recorded. With `resume`, an earlier run in the same directory
    goes on where its newest whole checkpoint stands.
    """
    planned = PlannedRun(make(task).spec, settings, directory)
    return train_together([planned], resume=resume, sinks=sinks, say=say, command=command)[0]


def train_together(
    group: Sequence[PlannedRun],
    *,
    resume: bool = False,
    sinks: Sinks = lambda planned: (),
    say: Callable[[str], None] = lambda line: None,
    command: Sequence[str] = (),
) -> list[RunResult]:
    """Train runs that differ in their method, its options and their seeds as one program.

    Each has its own directory, as if trained alone. Resumed, they go on from the newest checkpoint
    that all of them have.
    """
    _check_group(group)
    for planned in group:
        check_method(planned.settings.method)
        if planned.settings.log.wandb and find_spec("wandb") is None:
            raise InputError("logging to Weights & Biases needs the package: pip install wandb")
        if resume:
            check_same_run(planned)
    with ExitStack() as held, stop_signals() as stop:
        _claim(group, held, resume=resume, command=command)
        shapers = [
            run_shaper(planned.directory, planned.spec, planned.settings, say=say)
            for planned in group
        ]
        program = make_program(
            [planned.settings for planned in group], make(group[0].spec), shapers, say=say
        )
        return _Training(tuple(group), program, say).go(resume, sinks, stop)


def _claim(
    group: Sequence[PlannedRun], held: ExitStack, *, resume: bool, command: Sequence[str]
) -> None:
    """Let the leader hold the runs' directories; what it is refused, nobody begins."""
    refusal: InputError | None = None
    try:
        for planned in group if hosts.leads() else ():
            held.enter_context(
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
    if hosts.any_process(refusal is not None):
        raise refusal or InputError("the first process was refused; its own line says why")


def can_train_together(one: PlannedRun, other: PlannedRun) -> bool:
    """Whether two runs can share a program: they differ in method, its options and seeds alone."""
    return (
        one.spec == other.spec
        and one.settings.ppo == other.settings.ppo
        and one.settings.iterations == other.settings.iterations
        and one.settings.devices == other.settings.devices
        and one.settings.log == other.settings.log
    )


def _check_group(group: Sequence[PlannedRun]) -> None:
    for planned in group[1:]:
        if not can_train_together(group[0], planned):
            raise InputError(
                f"{planned.directory} and {group[0].directory} cannot be trained together: task, "
                "ppo, frames, devices and log must be the same"
            )
    if len({planned.directory for planned in group}) < len(group):
        raise InputError("two runs cannot share a directory")


def run_shaper(
    directory: Path,
    spec: TaskSpec,
    settings: Settings,
    *,
    say: Callable[[str], None] = lambda line: None,
) -> AbstractRewardShaper:
    """The shaper of the run in `directory`. Its arrays are kept there once it is first built, so
    that a run goes on with the very same offline networks, on another machine too."""
    store = CheckpointStore(
        directory / run_directory.SHAPER, fingerprint(what_differs(spec, settings)), keep=1
    )
    if store.paths():
        template = build_shaper(spec, settings, trained=False)
        arrays, static = eqx.partition(template, eqx.is_array)
        found = store.restore_newest(arrays)
        if found is not None:
            arrays = jax.tree.map(jnp.asarray, found.state)
    else:
        arrays, static = eqx.partition(build_shaper(spec, settings, say=say), eqx.is_array)
        if jax.tree.leaves(arrays) and hosts.leads():
            with _writing("the shaper", store.directory):
                store.save(arrays, 0)
    return eqx.combine(hosts.from_leader(arrays), static)


def make_program(
    group: Sequence[Settings],
    env: Environment,
    shapers: Sequence[AbstractRewardShaper],
    *,
    say: Callable[[str], None] = lambda line: None,
) -> SeedProgram:
    """The compiled training of the seeds of a group of settings on their devices."""
    settings, devices = group[0], jax.devices()
    if settings.devices > len(devices):
        raise InputError(f"devices is {settings.devices}, but there are {len(devices)}")
    devices = devices[: settings.devices or None]
    mesh = seed_mesh([one.seeds for one in group], devices)
    used = {device.process_index for device in mesh.devices.flat}
    if len(used) < jax.process_count():
        raise InputError(
            f"{settings.seeds} seeds do not divide over the {len(devices)} devices of "
            f"{jax.process_count()} processes; choose a multiple"
        )
    if mesh.size < len(devices):
        counts = " and ".join(str(one.seeds) for one in group)
        say(f"{counts} seeds do not divide over {len(devices)} devices: using {mesh.size}")

    def initialise(shaper: AbstractRewardShaper, key: jax.Array) -> PyTree:
        return init_train_state(env, settings.ppo, shaper, key=key)

    return SeedProgram(
        [partial(initialise, shaper) for shaper in shapers],
        partial(run_iteration, env, settings.ppo),
        shapers,
        mesh,
    )


class _Member:
    """One run of a group while it trains: its files and where it stands."""

    def __init__(self, planned: PlannedRun, iteration: int, names: Sequence[str]) -> None:
        self.planned = planned
        self.store = store_of(planned)
        self.metrics = MetricsFile(planned.directory, names, planned.settings.seed_numbers)
        every = planned.settings.log.every
        self.seconds = self.metrics.start(iteration, every) if hosts.leads() else 0.0
        self.saved = iteration
        self.last: LogLine | None = None
        self.diverged_at: int | None = None
        """Iterations done before the measurements stopped being finite."""
        self.logs: list[AbstractLogSink] = []

    def open_logs(self, sinks: Sinks) -> None:
        """Begin to log, where this process does."""
        if not hosts.leads():
            return
        planned, log = self.planned, self.planned.settings.log
        if log.tensorboard:
            self.logs.append(TensorBoardLog(planned.directory, planned.settings.seed_numbers))
        if log.wandb:
            config = {"task": planned.spec.name, **to_json(planned.settings)}
            self.logs.append(
                WandbLog(planned.directory, planned.settings.seed_numbers, log.wandb, config)
            )
        self.logs.extend(sinks(planned))

    def write(self, line: LogLine) -> None:
        """Log a line."""
        if hosts.leads():
            with _writing("metrics", self.planned.directory):
                self.metrics.append(line)
        for log in self.logs:
            log.write(line)
        self.last = line

    def save(self, states: PyTree, iteration: int) -> None:
        """Write a checkpoint."""
        states = hosts.fetched(states)
        if hosts.leads():
            with _writing("a checkpoint", self.store.directory):
                self.store.save(states, iteration)
        self.saved = iteration

    def result(self, outcome: Outcome, iteration: int) -> RunResult:
        """How it ended."""
        if self.diverged_at is not None:
            outcome, iteration = Outcome.DIVERGED, self.diverged_at
        frames = iteration * self.planned.settings.ppo.frames_per_iteration
        return RunResult(outcome, self.planned.directory, iteration, frames, self.last)


@dataclass(frozen=True)
class _Training:
    """The training of a group of runs as one program."""

    group: tuple[PlannedRun, ...]
    program: SeedProgram
    say: Callable[[str], None]

    def go(self, resume: bool, sinks: Sinks, stop: Callable[[], bool]) -> list[RunResult]:
        """Start or resume, train to the end, export."""
        settings = self.group[0].settings
        states = self.program.start([planned.settings.seed_numbers for planned in self.group])
        iteration = 0
        if resume:
            states, iteration = self._restored(states)
            if iteration:
                self.say(f"resuming at {self._frames(iteration):,} frames a seed")
            # Only now is it certain that the settings belong to these runs.
            shorter = iteration > settings.iterations
            for planned in self.group if hosts.leads() and not shorter else ():
                run_directory.write_config(planned.directory, planned.spec, planned.settings)
        names = self.program.prepare(states)
        members = [
            _Member(planned, iteration, measured)
            for planned, measured in zip(self.group, names, strict=True)
        ]
        if iteration < settings.iterations:
            self.say("compiling")
            self.program.compile()
        try:
            for member in members:
                member.open_logs(sinks)
            states, iteration, outcome = self._loop(states, iteration, members, stop)
        finally:
            for member in members:
                for log in member.logs:
                    log.close()
        results = [member.result(outcome, iteration) for member in members]
        for planned, trained, result in zip(self.group, states, results, strict=True):
            if result.outcome == Outcome.DIVERGED:
                continue
            parts = hosts.fetched((trained.network, trained.statistics))
            if hosts.leads():
                policies = planned.directory / run_directory.POLICIES
                frames = result.frames
                with _writing("policies", policies):
                    export_policies(planned.spec, planned.settings, *parts, policies, frames=frames)
        return results

    def _restored(self, states: States) -> tuple[States, int]:
        """The newest checkpoint that every run of the group has, or the start if none has any."""
        newest: int | None = None
        while True:
            found = [
                store_of(planned).restore_newest(like, at_most=newest)
                for planned, like in zip(self.group, states, strict=True)
            ]
            whole = [checkpoint for checkpoint in found if checkpoint is not None]
            if newest is None and not whole:
                return states, 0
            if len(whole) < len(found):
                raise InputError(
                    "these runs have no whole checkpoint in common; train them apart "
                    "(ella reproduce --together 1)"
                )
            newest = min(checkpoint.iteration for checkpoint in whole)
            if all(checkpoint.iteration == newest for checkpoint in whole):
                return self.program.place(tuple(one.state for one in whole)), newest

    def _loop(
        self,
        states: States,
        iteration: int,
        members: Sequence[_Member],
        stop: Callable[[], bool],
    ) -> tuple[States, int, Outcome]:
        """(states, iterations done, outcome)."""
        settings = self.group[0].settings
        while iteration < settings.iterations:
            count = min(settings.log.every, settings.iterations - iteration)
            began = time.perf_counter()
            states, measured = self.program.advance(states, iteration, count)
            measured = hosts.fetched(measured)
            elapsed = time.perf_counter() - began
            rate = self._frames(count) * seeds_of(self.group) / elapsed
            self._log(members, measured, iteration, count, elapsed, rate)
            if all(member.diverged_at is not None for member in members):
                return states, iteration, Outcome.DIVERGED
            iteration += count
            finished, stopping = iteration >= settings.iterations, hosts.any_process(stop())
            saved = False
            for member, trained in zip(members, states, strict=True):
                due = iteration - member.saved >= settings.log.checkpoint_every
                if member.diverged_at is None and (finished or stopping or due):
                    member.save(trained, iteration)
                    saved = True
            if saved and hosts.leads():
                remember_rate(self.group, rate)
            if stopping and not finished:
                return states, iteration, Outcome.INTERRUPTED
        return states, iteration, Outcome.FINISHED

    def _log(
        self,
        members: Sequence[_Member],
        measured: Sequence[Measurements],
        iteration: int,
        count: int,
        elapsed: float,
        rate: float,
    ) -> None:
        """Log what `count` iterations after `iteration` measured; remember who diverged."""
        reached = iteration + count
        for member, sums in zip(members, measured, strict=True):
            if member.diverged_at is not None:
                continue
            if bad := non_finite(sums):
                member.diverged_at = iteration
                kept = (
                    f"the checkpoint at {self._frames(member.saved):,} frames a seed is kept"
                    if member.store.paths()
                    else "there was no checkpoint yet"
                )
                self.say(
                    f"warning: {', '.join(bad)} not finite before {self._frames(reached):,} frames "
                    f"a seed in {member.planned.directory}; stopped, {kept}"
                )
                continue
            # A run's share of the time of a program that trains others too.
            member.seconds += elapsed * member.planned.settings.seeds / seeds_of(self.group)
            member.write(
                LogLine(reached, self._frames(reached), member.seconds, rate, averages(sums))
            )

    def _frames(self, iterations: int) -> int:
        return iterations * self.group[0].settings.ppo.frames_per_iteration


def store_of(planned: PlannedRun) -> CheckpointStore:
    """The checkpoints of a run."""
    return CheckpointStore(
        planned.directory / run_directory.CHECKPOINTS,
        fingerprint(what_differs(planned.spec, planned.settings)),
        planned.settings.log.keep,
    )


@contextmanager
def _writing(what: str, directory: Path) -> Iterator[None]:
    """Turn what the disk refuses into one line. Whatever the run saved before stays."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        remedy = "make room" if full else "put that right"
        raise InputError(
            f"cannot write {what} to {directory}: {error.strerror or error}; {remedy}, then resume "
            "the run"
        ) from error


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C, SIGTERM or loss of the terminal into a wish to stop; a second one
    stops at once."""
    asked = False

    def ask(number: int, frame: Any) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        with suppress(OSError):
            sys.stderr.write("stopping after this log line; once more stops at once\n")

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup leaves it
        numbers.append(signal.SIGHUP)
    try:
        before = {number: signal.signal(number, ask) for number in numbers}
    except ValueError:  # not the main thread: signals are someone else's
        yield lambda: False
        return
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
