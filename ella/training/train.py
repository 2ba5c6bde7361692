"""Training as a function: settings and seeds in, policies and metrics out. No files are written."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ella.errors import InputError
from ella.methods.method import Method
from ella.ppo.iteration import TrainState
from ella.ppo.settings import PPOSettings
from ella.shaping.shaper import AbstractRewardShaper
from ella.training import multi_host, presets
from ella.training.ahead import assembled
from ella.training.assembly import build_shaper, training_environment
from ella.training.goal import Goal
from ella.training.log_line import LogLine, averages
from ella.training.loop import stretches
from ella.training.policy import Policy
from ella.training.progress import log_progress, progress_shown
from ella.training.settings import TrainingSettings
from ella.training.start_check import check_start
from ella.training.warm_start import check_fits, started_from
from ella.world import tasks
from ella.world.tasks import TaskSpec

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingResult:
    """What `train` found, on the host."""

    task: TaskSpec
    settings: TrainingSettings
    """Resolved for the task."""
    frames: Float[np.ndarray, " lines"]
    """Environment steps of each seed at every log line."""
    seconds: Float[np.ndarray, " lines"]
    """Spent training until every log line, compilation excluded."""
    metrics: dict[str, Float[np.ndarray, "lines seeds"]]
    """Means since the log line before; NaN where nothing was measured."""
    shaper: AbstractRewardShaper
    states: TrainState
    """At the end, with the seed axis."""

    @property
    def success_rate(self) -> Float[np.ndarray, "lines seeds"]:
        """Share of the episodes that ended since the log line before that solved their task."""
        return self.metrics["success_rate"]

    def policy(self, index: int = 0) -> Policy:
        """The trained agent of one seed, by its place among the seeds."""
        if not 0 <= index < self.settings.seeds:
            raise InputError(f"seed index must lie in [0, {self.settings.seeds - 1}], got {index}")
        network, statistics = jax.tree.map(
            lambda leaf: jnp.asarray(leaf[index]), (self.states.network, self.states.statistics)
        )
        seed, frames = self.settings.seed_numbers[index], int(self.frames[-1])
        return Policy(self.task, network, statistics, seed, frames)


def train(
    task: str | TaskSpec,
    method: str | Method = "ppo",
    *,
    seeds: int = 1,
    frames: int | None = None,
    until: float | None = None,
    seed: int = 0,
    also: Sequence[str] = (),
    preset: str = presets.PAPER,
    ppo: PPOSettings | None = None,
    log_every: int | None = None,
    start_from: Policy | None = None,
    on_log_line: Callable[[LogLine], None] | None = None,
    progress: bool = True,
) -> TrainingResult:
    """Train agents side by side on this process's devices, as one compiled program.

    Args:
        task: Name of a task, or any row of data.
        method: Reward shaping: a name, with the preset's settings, or a method with its own,
            `ella.ELLA(bonus=0.25)` or `ella.ELLA.preset("small", bonus=0.25)`, or a sum.
        seeds: Agents, each from its own random seed.
        frames: Environment steps of each seed, rounded up to whole iterations; by default the
            preset's.
        until: Success rate at which training ends earlier: once every seed has it at three log
            lines in a row.
        seed: The first random seed; the others follow it.
        also: Further tasks to train on in the same batch, as "TASK" or "TASK:WEIGHT"; the policy
            is for `task` all the same.
        preset: Where settings start from: paper, released, onehot, wide, wide-8gb, small,
            laptop, smoke.
        ppo: The learner; by default the preset's.
        log_every: Frames of a seed between log lines, rounded to whole iterations; by default the
            preset's.
        start_from: An agent whose network every seed starts from (`ella.load_policy`).
        on_log_line: Called after every log line; by default they are logged.
        progress: Whether what is logged is written to standard error, unless the program handles
            logs itself.
    """
    settings = presets.start(
        preset,
        method,
        frames=frames,
        until=until,
        ppo=ppo,
        log_every=log_every,
        seeds=seeds,
        seed=seed,
        also=also,
    )
    if on_log_line is None:
        on_log_line = log_progress(settings.total_frames)
    with progress_shown(progress):
        return train_settings(task, settings, start_from=start_from, on_log_line=on_log_line)


def train_settings(
    task: str | TaskSpec,
    settings: TrainingSettings,
    *,
    start_from: Policy | None = None,
    on_log_line: Callable[[LogLine], None] = lambda line: None,
) -> TrainingResult:
    """`train` with whole settings; the agent to start from is given itself, not by name."""
    if settings.start_from is not None and start_from is None:
        raise InputError(
            f"start_from is the name '{settings.start_from}'; give the agent itself: "
            f"start_from=ella.load_policy('{settings.start_from}')"
        )
    spec = tasks.find(task) if isinstance(task, str) else task
    settings = settings.resolved(spec)
    if start_from is not None:
        check_fits(start_from, settings.ppo.network)
    env = training_environment(spec, settings)
    program, (sweep,) = assembled(
        settings,
        env,
        [settings.seed_numbers],
        lambda trained: [build_shaper(spec, settings, trained=trained)],
    )
    program.prepare()
    if not program.is_compiled:
        logger.info("compiling, which takes a minute or two on a CPU")
    program.compile_in_turn()
    states = program.start()
    if start_from is not None:
        states = started_from(program, states, start_from)
    check_start(program.shapers, states, [settings.seed_numbers])
    program.compile()
    goal = Goal.of(spec, settings)
    lines: list[LogLine] = []
    seconds = 0.0
    for stretch in stretches(
        program, states, 0, iterations=settings.iterations, every=settings.log_iterations
    ):
        states, seconds = stretch.states, seconds + stretch.seconds
        per_iteration = settings.ppo.frames_per_iteration
        done = (stretch.iteration - stretch.before) * per_iteration * settings.seeds
        lines.append(
            LogLine(
                stretch.iteration,
                stretch.iteration * per_iteration,
                seconds,
                done / stretch.seconds,
                averages(stretch.measured[0]),
            )
        )
        on_log_line(lines[-1])
        goal.count(lines[-1].values, stretch.iteration)
        if goal.is_reached:
            break
    return TrainingResult(
        task=spec,
        settings=settings,
        frames=np.array([line.frames for line in lines]),
        seconds=np.array([line.seconds for line in lines]),
        metrics={name: np.stack([line.values[name] for line in lines]) for name in lines[0].values},
        shaper=sweep.shaper,
        states=multi_host.fetched(states[0]),
    )
