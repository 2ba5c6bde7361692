"""Training runs: from a task and settings to a directory of metrics, checkpoints and policies."""

import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ella.errors import InputError
from ella.experiment import run_directory
from ella.experiment.checkpoint import CheckpointStore, fingerprint
from ella.experiment.config import Settings
from ella.experiment.export import export_policies
from ella.experiment.methods import build_shaper, check_method
from ella.experiment.metrics import LogLine, MetricsFile, averages, non_finite
from ella.experiment.program import SeedProgram, seed_mesh
from ella.experiment.run_log import AbstractLogSink, TensorBoardLog, WandbLog
from ella.experiment.settings_file import to_json
from ella.measurement import Measurements
from ella.ppo.iteration import init_train_state, run_iteration
from ella.shaping.shaper import AbstractRewardShaper
from ella.world.environment import Environment, make
from ella.world.tasks import TaskSpec


class Outcome(Enum):
    """How a call of `train` ended."""

    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    """By Ctrl-C or SIGTERM; the run is saved and can be resumed."""
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


def train(
    task: str | TaskSpec,
    settings: Settings,
    directory: Path,
    *,
    resume: bool = False,
    sinks: Callable[[int], Sequence[AbstractLogSink]] = lambda frames: (),
    say: Callable[[str], None] = lambda line: None,
    command: Sequence[str] = (),
) -> RunResult:
    """Train `settings.seeds` agents side by side and leave everything in `directory`.

    `sinks(frames)` makes further places for log lines once training begins, `say` takes remarks,
    `command` is recorded. With `resume`, an earlier run in the same directory goes on where its
    newest whole checkpoint stands.
    """
    env = make(task)
    check_method(settings.method)
    if settings.log.wandb and find_spec("wandb") is None:
        raise InputError("logging to Weights & Biases needs wandb: pip install 'ella[wandb]'")
    if resume:
        _check_same_run(directory, env.spec, settings)
    run_directory.claim(directory, env.spec, settings, resume=resume, command=command)
    with run_directory.lock(directory), _stop_signals() as stop:
        shaper = run_shaper(directory, env.spec, settings, say=say)
        program = make_program(env, settings, shaper, say=say)
        run = _Run(env, settings, directory, program, say)
        return run.go(fingerprint(identity(env.spec, settings)), resume, sinks, stop)


def run_shaper(
    directory: Path,
    spec: TaskSpec,
    settings: Settings,
    *,
    say: Callable[[str], None] = lambda line: None,
) -> AbstractRewardShaper:
    """The shaper of the run in `directory`. Its arrays are kept there once it is first built, so
    that a run resumed on another machine goes on with the very same offline networks."""
    built = build_shaper(spec, settings, say=say)
    arrays, static = eqx.partition(built, eqx.is_array)
    if not jax.tree.leaves(arrays):
        return built
    store = CheckpointStore(
        directory / run_directory.SHAPER, fingerprint(identity(spec, settings)), keep=1
    )
    found = store.restore_newest(arrays, on_damage=say)
    if found is None:
        _save(store, arrays, 0)
        return built
    return eqx.combine(jax.tree.map(jnp.asarray, found.state), static)


def make_program(
    env: Environment,
    settings: Settings,
    shaper: AbstractRewardShaper,
    *,
    say: Callable[[str], None] = lambda line: None,
) -> SeedProgram:
    """The compiled training of the settings' seeds on their devices."""
    devices = jax.devices()
    if settings.devices > len(devices):
        raise InputError(f"devices is {settings.devices}, but there are {len(devices)}")
    devices = devices[: settings.devices or None]
    mesh = seed_mesh(settings.seeds, devices)
    if mesh.size < len(devices):
        say(f"{settings.seeds} seeds do not divide over {len(devices)} devices: using {mesh.size}")

    def initialise(key: jax.Array) -> PyTree:
        return init_train_state(env, settings.ppo, shaper, key=key)

    def iterate(
        shaper: AbstractRewardShaper, state: PyTree, iteration: jax.Array
    ) -> tuple[PyTree, Measurements]:
        return run_iteration(env, settings.ppo, shaper, state, iteration)

    return SeedProgram(initialise, iterate, shaper, mesh)


def identity(spec: TaskSpec, settings: Settings) -> dict[str, Any]:
    """What a checkpoint must agree on: everything that decides how training goes on."""
    table = to_json(settings)
    for name in ("frames", "devices", "log"):
        del table[name]
    return {**table, "task": to_json(spec), "log": {"every": settings.log.every}}


def _check_same_run(directory: Path, spec: TaskSpec, settings: Settings) -> None:
    """Refuse to resume a run with settings that would have made another run."""
    if not (directory / run_directory.CONFIG_FILE).exists():
        return
    before = _flat(identity(*run_directory.read_run(directory)))
    now = _flat(identity(spec, settings))
    for name in now:
        if now[name] != before.get(name):
            raise InputError(
                f"cannot resume {directory} with other settings: {name} was "
                f"{before.get(name)} and is now {now[name]}; start a new run"
            )


def _flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A table of tables as one, names joined by dots."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            found.update(_flat(value, f"{prefix}{name}."))
        else:
            found[f"{prefix}{name}"] = value
    return found


@dataclass(frozen=True)
class _Run:
    """The parts of one run that stay the same from start to end."""

    env: Environment
    settings: Settings
    directory: Path
    program: SeedProgram
    say: Callable[[str], None]

    def go(
        self,
        fingerprint: str,
        resume: bool,
        sinks: Callable[[int], Sequence[AbstractLogSink]],
        stop: Callable[[], bool],
    ) -> RunResult:
        """Start or resume, train to the end, export."""
        settings = self.settings
        store = CheckpointStore(
            self.directory / run_directory.CHECKPOINTS, fingerprint, settings.log.keep
        )
        states, iteration = self.program.start(settings.seed_numbers), 0
        if resume:
            found = store.restore_newest(states, on_damage=self.say)
            if found is not None:
                states, iteration = self.program.place(found.state), found.iteration
            self.say(f"resuming at {self._frames(iteration):,} frames a seed")
            # Only now is it certain that the settings belong to this run.
            run_directory.write_config(self.directory, self.env.spec, settings)
        names = self.program.prepare(states)
        metrics = MetricsFile(self.directory, names, settings.seed_numbers)
        seconds = metrics.start(iteration)
        if iteration < settings.iterations:
            self.say("compiling")
            self.program.compile()
        logs = [*self._log_files(), *sinks(self._frames(settings.iterations))]
        try:
            states, iteration, outcome, last = self._loop(
                states, iteration, seconds, metrics, store, logs, stop
            )
        finally:
            for log in logs:
                log.close()
        if outcome != Outcome.DIVERGED:
            export_policies(
                self.env.spec,
                settings,
                states,
                self.directory / run_directory.POLICIES,
                frames=self._frames(iteration),
            )
        return RunResult(outcome, self.directory, iteration, self._frames(iteration), last)

    def _loop(
        self,
        states: PyTree,
        iteration: int,
        seconds: float,
        metrics: MetricsFile,
        store: CheckpointStore,
        logs: Sequence[AbstractLogSink],
        stop: Callable[[], bool],
    ) -> tuple[PyTree, int, Outcome, LogLine | None]:
        """(states, iterations done, outcome, last log line)."""
        settings, saved, line = self.settings, iteration, None
        while iteration < settings.iterations:
            count = min(settings.log.every, settings.iterations - iteration)
            began = time.perf_counter()
            states, measured = self.program.advance(states, iteration, count)
            bad = non_finite(measured)
            elapsed = time.perf_counter() - began
            if bad:
                kept = (
                    f"the checkpoint at {self._frames(saved):,} frames a seed is kept"
                    if store.paths()
                    else "there was no checkpoint yet"
                )
                reached = self._frames(iteration + count)
                self.say(
                    f"warning: {', '.join(bad)} not finite before {reached:,} frames a seed; "
                    f"stopped, {kept}"
                )
                return states, iteration, Outcome.DIVERGED, line
            iteration += count
            seconds += elapsed
            rate = self._frames(count) * settings.seeds / elapsed
            line = LogLine(iteration, self._frames(iteration), seconds, rate, averages(measured))
            metrics.append(line)
            for log in logs:
                log.write(line)
            finished, stopping = iteration >= settings.iterations, stop()
            if finished or stopping or iteration - saved >= settings.log.checkpoint_every:
                _save(store, states, iteration)
                saved = iteration
            if stopping and not finished:
                return states, iteration, Outcome.INTERRUPTED, line
        return states, iteration, Outcome.FINISHED, line

    def _frames(self, iterations: int) -> int:
        return iterations * self.settings.ppo.frames_per_iteration

    def _log_files(self) -> list[AbstractLogSink]:
        settings, logs = self.settings, list[AbstractLogSink]()
        if settings.log.tensorboard:
            logs.append(TensorBoardLog(self.directory, settings.seed_numbers))
        if settings.log.wandb:
            config = {"task": self.env.spec.name, **to_json(settings)}
            logs.append(WandbLog(self.directory, settings.seed_numbers, settings.log.wandb, config))
        return logs


def _save(store: CheckpointStore, states: PyTree, iteration: int) -> None:
    try:
        store.save(states, iteration)
    except OSError as error:
        raise InputError(f"cannot write a checkpoint: {error.strerror or error}") from error
    except ValueError as error:
        # TensorStore reports a full disk as a ValueError of several lines.
        raise InputError(f"cannot write a checkpoint: {str(error).splitlines()[0]}") from error


@contextmanager
def _stop_signals() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C or SIGTERM into a wish to stop; a second one stops at once."""
    asked = False

    def ask(number: int, frame: Any) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        sys.stderr.write("stopping after this log line; once more stops at once\n")

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: signals are someone else's
        yield lambda: False
        return
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
