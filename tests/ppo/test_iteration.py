"""Whole iterations on a real, small room."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ella.measurement import Measurements
from ella.networks.actor_critic import SMALL_NETWORK
from ella.ppo.iteration import TrainState, init_train_state, run_iteration
from ella.ppo.settings import PPOConfig
from ella.shaping.shaper import NoShaping
from ella.world.environment import make
from ella.world.tasks import TaskSpec

# A short horizon, so that chance alone often fails.
ENV = make(
    TaskSpec(
        "small-room", ("goto",), cols=1, room_size=5, distractors=2, agent_first=True, max_steps=8
    )
)
CONFIG = PPOConfig(
    network=dataclasses.replace(SMALL_NETWORK, width=16, instruction_width=16, memory_width=16),
    num_envs=32,
    rollout_length=16,
    bptt_length=8,
    minibatch_frames=256,
    learning_rate=1e-3,
    gae_lambda=0.95,
    pool_size=128,
    unroll=1,
)
SEEDS, ITERATIONS = 2, 15


@partial(jax.jit, static_argnames="count")
def several(
    groups: tuple[TrainState, ...], start: jax.Array, count: int = ITERATIONS
) -> tuple[tuple[TrainState, ...], tuple[Measurements, ...]]:
    """Measurements have the axes [iteration, seed]."""

    def one(groups: tuple[TrainState, ...], iteration: jax.Array) -> tuple:
        return run_iteration(ENV, CONFIG, [NoShaping()] * len(groups), groups, iteration)

    return jax.lax.scan(one, groups, start + jnp.arange(count))


@pytest.fixture(scope="module")
def start() -> TrainState:
    """Two seeds."""
    made = jax.jit(jax.vmap(lambda key: init_train_state(ENV, CONFIG, NoShaping(), key=key)))
    return made(jax.random.split(jax.random.key(0), SEEDS))


def part(state: TrainState, seeds: slice) -> TrainState:
    return jax.tree.map(lambda leaf: leaf[seeds], state)


@pytest.mark.slow
def test_a_small_agent_learns(start: TrainState) -> None:
    groups, rates = (start,), []
    for block in range(5):
        groups, (found,) = several(groups, jnp.int32(block * ITERATIONS))
        rate = found["success_rate"]
        rates.append(np.asarray(rate.total.sum(axis=0) / rate.count.sum(axis=0)))
    assert rates[0].mean() < 0.35
    assert rates[-1].mean() > rates[0].mean() + 0.2


@pytest.mark.slow
def test_seeds_trained_together_equal_each_alone(start: TrainState) -> None:
    (together,), (found,) = several((start,), jnp.int32(0))
    parts = tuple(part(start, slice(seed, seed + 1)) for seed in range(SEEDS))
    in_groups = several(parts, jnp.int32(0))
    for seed in range(SEEDS):
        alone = several((parts[seed],), jnp.int32(0))
        for (states, measured), index in ((alone, 0), (in_groups, seed)):
            # Rounding may differ, so compare before one differing action could grow into many.
            for name in ("success_rate", "loss", "gradient_norm", "entropy", "ratio_deviation"):
                np.testing.assert_allclose(
                    found[name].total[0, seed],
                    measured[index][name].total[0, 0],
                    rtol=1e-4,
                    atol=1e-6,
                )
            np.testing.assert_array_equal(
                jax.random.key_data(together.key[seed]), jax.random.key_data(states[index].key[0])
            )
    assert not np.allclose(found["loss"].total[:, 0], found["loss"].total[:, 1])
