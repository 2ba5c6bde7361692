"""Frames a second: of the world alone, with the policy acting, and of training."""

import logging
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32, PRNGKeyArray, PyTree

from ella.methods.ppo import PPO
from ella.networks.actor_critic import ActorCritic
from ella.ppo.rollout import collect, fresh_levels, start_environments
from ella.ppo.settings import PPOSettings
from ella.training.assembly import build_shaper, make_program, sweeps_of, training_environment
from ella.training.program import States, training_key
from ella.training.settings import TrainingSettings
from ella.world import tasks
from ella.world.encoding import NUM_ACTIONS
from ella.world.environment import Environment, VectorState, make
from ella.world.tasks import TaskSpec

logger = logging.getLogger(__name__)

COUNTING_RULE = "one frame = one step of one environment of one seed; all seeds are counted"


@dataclass(frozen=True)
class Rate:
    """One measured throughput."""

    what: str
    """environment, environment+inference, or training METHOD."""
    frames_per_second: float
    """Median of the repeats."""
    lowest: float
    highest: float
    frames: int
    """Counted in one repeat."""
    compile_seconds: float | None = None
    """Tracing and compiling the training loop; little where the compilation cache holds it."""
    memory_bytes: int | None = None
    """What the training loop takes of each device."""


class TimedTraining:
    """The training loop of some settings, to be called again and again.

    Without `trained` its shaper has not been through the offline stage, which changes nothing about
    the work.
    """

    def __init__(
        self, task: TaskSpec, settings: TrainingSettings, iterations: int, *, trained: bool = True
    ) -> None:
        shaper = build_shaper(task, settings, trained=trained)
        env = training_environment(task, settings)
        logger.info("compiling: training %s", settings.method.name)
        began = time.perf_counter()
        self._program = make_program(settings, env, sweeps_of([shaper], [settings.seed_numbers]))
        self._program.prepare()
        self._program.compile()
        self.compile_seconds = time.perf_counter() - began
        self.memory_bytes = self._program.memory_bytes
        self._states: States | None = None
        self._done, self._iterations = 0, iterations

    def __call__(self) -> None:
        states = self._program.start() if self._states is None else self._states
        self._states, measured = self._program.advance(states, self._done, self._iterations)
        jax.block_until_ready((self._states, measured))
        self._done += self._iterations


def benchmark(
    task: str, settings: Sequence[TrainingSettings], *, iterations: int, repeats: int
) -> list[Rate]:
    """Environment only, with inference, then training with each settings; compiled beforehand.

    They take turns within each repeat, so that their ratio is not one of different moments.
    """
    spec, first = tasks.find(task), settings[0]
    env = make(spec)
    timed: dict[str, Callable[[], None]] = {
        "environment": _acting(env, first, iterations, infer=False),
        "environment+inference": _acting(env, first, iterations, infer=True),
        **{f"training {one.method.name}": TimedTraining(spec, one, iterations) for one in settings},
    }
    for what, call in timed.items():
        logger.info("warming up: %s", what)
        call()
    seconds: dict[str, list[float]] = {what: [] for what in timed}
    for repeat in range(repeats):
        logger.info("repeat %d of %d", repeat + 1, repeats)
        for what, call in timed.items():
            began = time.perf_counter()
            call()
            seconds[what].append(time.perf_counter() - began)
    frames = iterations * first.ppo.frames_per_iteration * first.seeds
    return [
        rate_of(what, frames, spent, call if isinstance(call, TimedTraining) else None)
        for (what, spent), call in zip(seconds.items(), timed.values(), strict=True)
    ]


def measure_rate(task: TaskSpec, settings: TrainingSettings, *, iterations: int = 2) -> float:
    """Frames a second of all seeds while the settings' learner trains without shaping.

    A CPU is as fast with one seed as with many; there only one is trained.
    """
    seeds = 1 if jax.default_backend() == "cpu" else settings.seeds
    call = TimedTraining(task, replace(settings, method=PPO(), seeds=seeds, seed=0), 1)
    call()
    began = time.perf_counter()
    for index in range(iterations):
        call()
        logger.info("iteration %d of %d", index + 1, iterations)
    elapsed = time.perf_counter() - began
    return iterations * seeds * settings.ppo.frames_per_iteration / elapsed


def rate_of(
    what: str, frames: int, seconds: Sequence[float], training: TimedTraining | None
) -> Rate:
    """The rate of repeats of `frames` that took these seconds."""
    rates = [frames / second for second in seconds]
    compile_seconds = None if training is None else training.compile_seconds
    memory_bytes = None if training is None else training.memory_bytes
    return Rate(
        what,
        statistics.median(rates),
        min(rates),
        max(rates),
        frames,
        compile_seconds,
        memory_bytes,
    )


def _acting(
    env: Environment, settings: TrainingSettings, iterations: int, *, infer: bool
) -> Callable[[], None]:
    """Rollouts as training collects them, refills included, but nothing learned."""
    ppo = settings.ppo

    def start(key: jax.Array) -> PyTree:
        network_key, vector_key = jax.random.split(key)
        network = ActorCritic(ppo.network, key=network_key)
        vector = start_environments(env, ppo, key=vector_key)
        return network, vector, network.initial_memory(ppo.num_envs), key

    def rollout(carry: PyTree, _: None) -> PyTree:
        network, vector, memory, key = carry
        key, rollout_key = jax.random.split(key)
        if infer:
            vector, memory, rollout = collect(env, ppo, network, vector, memory, key=rollout_key)
            reward = rollout.trajectory.reward
        else:
            vector, reward = _at_random(env, ppo, vector, key=rollout_key)
        return (network, vector, memory, key), reward.sum()

    @jax.jit
    def roll(carry: PyTree) -> tuple[PyTree, jax.Array]:
        return jax.vmap(lambda one: jax.lax.scan(rollout, one, length=iterations))(carry)

    keys = jax.vmap(training_key)(jnp.asarray(settings.seed_numbers, jnp.uint32))
    carry = jax.block_until_ready(jax.jit(jax.vmap(start))(keys))

    def call() -> None:
        nonlocal carry
        carry, rewards = roll(carry)
        jax.block_until_ready((carry, rewards))

    return call


def _at_random(
    env: Environment, ppo: PPOSettings, vector: VectorState, *, key: PRNGKeyArray
) -> tuple[VectorState, Float[Array, "T B"]]:
    """A rollout of random actions: the rewards."""
    refill_key, action_key = jax.random.split(key)
    shape = (ppo.rollout_length, ppo.num_envs)
    actions = jax.random.randint(action_key, shape, 0, NUM_ACTIONS, jnp.int32)

    def step(vector: VectorState, action: Int32[Array, " B"]) -> tuple[VectorState, Array]:
        vector, transition = env.step_vector(vector, action)
        return vector, transition.reward

    return jax.lax.scan(step, fresh_levels(env, ppo, vector, key=refill_key), actions)
