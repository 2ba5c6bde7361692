"""Frames a second: of the world alone, with the policy acting, and of training."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32, PRNGKeyArray, PyTree

from ella.methods.registry import build_shaper
from ella.networks.actor_critic import ActorCritic
from ella.ppo.rollout import collect
from ella.ppo.settings import PPOSettings
from ella.runs.planned_run import PlannedRun, seeds_of
from ella.runs.rates import remember_rate
from ella.runs.run import make_program
from ella.shaping.shaper import NoShaping
from ella.training.program import training_key
from ella.training.settings import Settings
from ella.world.encoding import NUM_ACTIONS
from ella.world.environment import Environment, VectorState, make

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


def benchmark(
    task: str,
    settings: Settings,
    methods: Sequence[str],
    *,
    iterations: int,
    repeats: int,
    say: Callable[[str], None] = lambda line: None,
) -> list[Rate]:
    """Environment only, with inference, then training with each method; compiled beforehand.

    Methods take turns within each repeat, so that their ratio is not one of different moments.
    `say` takes remarks on what is being done.
    """
    env = make(task)
    timed = {
        "environment": _acting(env, settings, iterations, infer=False),
        "environment+inference": _acting(env, settings, iterations, infer=True),
        **{
            f"training {method}": _training(env, replace(settings, method=method), iterations, say)
            for method in methods
        },
    }
    for what, call in timed.items():
        say(f"warming up: {what}")
        call()
    seconds: dict[str, list[float]] = {what: [] for what in timed}
    for repeat in range(repeats):
        say(f"repeat {repeat + 1} of {repeats}")
        for what, call in timed.items():
            began = time.perf_counter()
            call()
            seconds[what].append(time.perf_counter() - began)
    frames = iterations * settings.ppo.frames_per_iteration * settings.seeds
    return [_rate(what, frames, spent) for what, spent in seconds.items()]


def measure_rate(
    group: Sequence[PlannedRun], *, say: Callable[[str], None], iterations: int = 2
) -> float:
    """Train a group's learner without shaping for a moment, and remember its frames a second.

    A processor is as fast with one seed as with many; there only one is trained.
    """
    seeds = 1 if jax.default_backend() == "cpu" else seeds_of(group)
    settings = replace(group[0].settings, method="ppo", seeds=seeds, seed=0)
    say("compiling")
    program = make_program([settings], make(group[0].spec), [NoShaping()])
    states = program.start([settings.seed_numbers])
    program.prepare(states)
    program.compile()
    elapsed = 0.0
    for iteration in range(iterations + 1):
        began = time.perf_counter()
        states, _ = jax.block_until_ready(program.advance(states, iteration, 1))
        spent = time.perf_counter() - began
        say(f"iteration {iteration + 1} of {iterations + 1}: {spent:.1f} s")
        # The first is slower than those to come.
        elapsed += spent if iteration else 0.0
    rate = iterations * seeds * settings.ppo.frames_per_iteration / elapsed
    remember_rate(group, rate)
    return rate


def _rate(what: str, frames: int, seconds: list[float]) -> Rate:
    rates = [frames / second for second in seconds]
    return Rate(what, statistics.median(rates), min(rates), max(rates), frames)


def _training(
    env: Environment, settings: Settings, iterations: int, say: Callable[[str], None]
) -> Callable[[], None]:
    shaper = build_shaper(env.spec, settings, say=say)
    say(f"compiling: training {settings.method}")
    program = make_program([settings], env, [shaper])
    states = program.start([settings.seed_numbers])
    program.prepare(states)
    program.compile()
    done = 0

    def call() -> None:
        nonlocal states, done
        states, measured = program.advance(states, done, iterations)
        jax.block_until_ready((states, measured))
        done += iterations

    return call


def _acting(
    env: Environment, settings: Settings, iterations: int, *, infer: bool
) -> Callable[[], None]:
    """Rollouts as training collects them, refills included, but nothing learned."""
    ppo = settings.ppo

    def start(key: jax.Array) -> PyTree:
        network_key, vector_key = jax.random.split(key)
        network = ActorCritic(ppo.network, key=network_key)
        vector = env.start(vector_key, ppo.num_envs, ppo.pool_size)
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

    return jax.lax.scan(step, env.refill(vector, refill_key), actions)
