"""Whole iterations on a real, small room."""

import dataclasses

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


def several(state: TrainState, start: jax.Array, count: int) -> tuple[TrainState, Measurements]:
    def one(state: TrainState, iteration: jax.Array) -> tuple[TrainState, Measurements]:
        return run_iteration(ENV, CONFIG, NoShaping(), state, iteration)

    return jax.lax.scan(one, state, start + jnp.arange(count))


@pytest.fixture(scope="module")
def start() -> TrainState:
    """Two seeds."""
    made = jax.jit(jax.vmap(lambda key: init_train_state(ENV, CONFIG, NoShaping(), key=key)))
    return made(jax.random.split(jax.random.key(0), SEEDS))


@pytest.fixture(scope="module")
def train_together():
    batched = jax.vmap(lambda state, start: several(state, start, ITERATIONS), in_axes=(0, None))
    return jax.jit(batched)


def values(measurements: Measurements, name: str) -> np.ndarray:
    """[seed] means over iterations."""
    found = measurements[name]
    return np.asarray(found.total.sum(axis=-1) / found.count.sum(axis=-1))


@pytest.mark.slow
def test_a_small_agent_learns(start: TrainState, train_together) -> None:
    state, rates = start, []
    for block in range(5):
        state, found = train_together(state, jnp.int32(block * ITERATIONS))
        rates.append(values(found, "success_rate"))
    assert rates[0].mean() < 0.35
    assert rates[-1].mean() > rates[0].mean() + 0.2


@pytest.mark.slow
def test_seeds_trained_together_equal_each_alone(start: TrainState, train_together) -> None:
    together, found = train_together(start, jnp.int32(0))
    alone = jax.jit(lambda state: several(state, jnp.int32(0), ITERATIONS))
    for seed in range(SEEDS):
        state, measured = alone(jax.tree.map(lambda leaf, seed=seed: leaf[seed], start))
        # Rounding may differ, so compare before one differing action could grow into many.
        for name in ("success_rate", "loss", "gradient_norm", "entropy", "ratio_deviation"):
            np.testing.assert_allclose(
                found[name].total[seed, 0], measured[name].total[0], rtol=1e-4, atol=1e-6
            )
        np.testing.assert_array_equal(
            jax.random.key_data(together.key[seed]), jax.random.key_data(state.key)
        )
    assert not np.allclose(found["loss"].total[0], found["loss"].total[1])
