"""Whole iterations on a real, small room."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_runs import TINY

from ella.measurement import Mean, Measurements
from ella.ppo.iteration import TrainState, init_train_state, run_iteration, train_state_shapes
from ella.shaping.shaper import NoShaping
from ella.training import presets
from ella.training.assembly import build_shaper, training_environment
from ella.world.environment import make
from ella.world.tasks import TaskSpec, find

# A short horizon, so that chance alone often fails.
ENV = make(
    TaskSpec(
        "small-room", ("goto",), cols=1, room_size=5, distractors=2, agent_first=True, max_steps=8
    )
)
CONFIG = replace(
    TINY.ppo,
    num_envs=16,
    rollout_length=16,
    bptt_length=8,
    minibatch_frames=128,
    learning_rate=1e-2,
    gae_lambda=0.95,
    pool_size=32,
)
SEEDS = 2
WELL_COMPILED = {"xla_backend_optimization_level": 1}
"""For what trains for long: more optimisation than tests have otherwise."""


@jax.jit
def iterate(
    groups: tuple[TrainState, ...], iteration: jax.Array
) -> tuple[tuple[TrainState, ...], tuple[Measurements, ...]]:
    return run_iteration(ENV, CONFIG, [NoShaping()] * len(groups), groups, iteration)


@pytest.fixture(scope="module")
def start() -> TrainState:
    """Two seeds."""
    made = jax.jit(jax.vmap(lambda key: init_train_state(ENV, CONFIG, NoShaping(), key=key)))
    return made(jax.random.split(jax.random.key(0), SEEDS))


@pytest.mark.parametrize(
    ("method", "also"),
    [
        ("ppo", ()),
        pytest.param("ella-solvent", (), marks=pytest.mark.thorough),
        pytest.param("ella+rnd", ("goto-room",), marks=pytest.mark.thorough),
    ],
)
def test_shapes_are_those_of_a_new_seed(method: str, also: tuple[str, ...]) -> None:
    settings = replace(presets.start(presets.PAPER, method, also=also), ppo=CONFIG)
    env = training_environment(find("unlock-maze"), settings)
    shaper = build_shaper(find("unlock-maze"), settings, trained=False)
    made = jax.eval_shape(
        lambda key: init_train_state(env, CONFIG, shaper, key=key), jax.random.key(0)
    )
    assert train_state_shapes(env, CONFIG, shaper) == made


def part(state: TrainState, seeds: slice) -> TrainState:
    return jax.tree.map(lambda leaf: leaf[seeds], state)


GOLDEN = replace(
    CONFIG,
    network=replace(CONFIG.network, width=16, instruction_width=16, memory_width=16, head_width=16),
    learning_rate=5e-3,
)


@pytest.mark.slow
def test_a_small_agent_learns() -> None:
    """Seeds 0 to 7: 14 to 24 % in the first 10 iterations, 67 to 85 % in the last 10."""

    @partial(jax.jit, compiler_options=WELL_COMPILED)
    def train(key: jax.Array) -> Mean:
        state = jax.vmap(lambda key: init_train_state(ENV, GOLDEN, NoShaping(), key=key))(key[None])

        def iterate(state: TrainState, iteration: jax.Array) -> tuple[TrainState, Mean]:
            groups, (found,) = run_iteration(ENV, GOLDEN, [NoShaping()], [state], iteration)
            return groups[0], found["success_rate"]

        return jax.lax.scan(iterate, state, jnp.arange(100, dtype=jnp.int32))[1]

    success = train(jax.random.key(0))
    early, late = (
        success.total[part].sum() / success.count[part].sum()
        for part in (slice(10), slice(-10, None))
    )
    assert 0.05 < early < 0.35
    assert late > 0.55


@pytest.mark.thorough
def test_seeds_trained_together_equal_each_alone(start: TrainState) -> None:
    (together,), (found,) = iterate((start,), jnp.int32(0))
    for seed in range(SEEDS):
        (state,), (measured,) = iterate((part(start, slice(seed, seed + 1)),), jnp.int32(0))
        for name in ("success_rate", "loss", "gradient_norm", "entropy", "ratio_deviation"):
            np.testing.assert_allclose(
                found[name].total[seed], measured[name].total[0], rtol=1e-4, atol=1e-6
            )
        np.testing.assert_array_equal(
            jax.random.key_data(together.key[seed]), jax.random.key_data(state.key[0])
        )
    assert not np.allclose(found["loss"].total[0], found["loss"].total[1])
