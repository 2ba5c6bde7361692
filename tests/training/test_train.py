"""Training as a function: no files, pure functions of keys, sweeps over numbers."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_runs import FRAMES_PER_ITERATION, TINY, values

import ella
from ella.errors import InputError
from ella.networks.actor_critic import ActorCritic
from ella.training.program import training_key

ITERATIONS, EVERY = 6, 3
TINY_TRAINING = {
    "frames": ITERATIONS * FRAMES_PER_ITERATION,
    "ppo": TINY.ppo,
    "log_every": EVERY * FRAMES_PER_ITERATION,
}


@pytest.fixture(scope="module")
def result() -> ella.TrainingResult:
    lines = []
    found = ella.train("goto-small", seeds=2, on_log_line=lines.append, **TINY_TRAINING)
    assert [line.frames for line in lines] == found.frames.tolist()
    return found


def test_train_returns_metrics_of_every_seed_and_log_line(result, whole):
    assert result.frames.tolist() == [96, 192]
    assert result.success_rate.shape == (2, 2)
    run = values(whole.directory)
    for name, found in result.metrics.items():
        expected = run[name].reshape(-1, 2)[:2]
        np.testing.assert_array_equal(found, expected, err_msg=name)


def test_a_policy_is_saved_loaded_and_evaluated(result, tmp_path):
    result.policy(1).save(tmp_path / "agent")
    policy = ella.load_policy(tmp_path / "agent.safetensors")
    assert (policy.seed, policy.frames) == (1, 192)
    found = ella.evaluate(policy, episodes=8)
    assert found.success.shape == (8,)
    with pytest.raises(InputError, match="seed index must lie in"):
        result.policy(2)


class TollShaper(ella.AbstractRewardShaper):
    """Every step costs the same."""

    toll: float

    def init(self, num_envs, *, key):
        return ()

    def shape(self, state, trajectory):
        return state, jnp.zeros_like(trajectory.reward) - self.toll, {}

    def fit(self, state, trajectory, iteration, *, key):
        return state, {}


@dataclass(frozen=True)
class Toll(ella.Method):
    name: ClassVar[str] = "toll"
    label: ClassVar[str] = "Toll"

    toll: float = 0.25

    def build(self, context):
        return TollShaper(self.toll)


@pytest.mark.slow
def test_the_pure_function_trains_as_the_program_does_and_is_swept_by_vmap(result):
    """Rows without a toll are the seeds of `result`, in which PPO's numbers are compiled in; the
    last row has its own toll and learning rate."""
    train = ella.training_function("goto-small", Toll(), **TINY_TRAINING)
    keys = jnp.stack([training_key(seed) for seed in (0, 1, 1)])
    rate = TINY.ppo.learning_rate
    numbers = {
        "toll.toll": jnp.array([0.0, 0.0, 0.5]),
        "ppo.learning_rate": jnp.array([rate, rate, 0.0]),
    }
    states, metrics = jax.jit(jax.vmap(train))(keys, numbers)
    assert metrics["loss"].shape == (3, 2)
    for name in ("loss", "entropy", "episode_length", "value_loss"):
        np.testing.assert_allclose(
            metrics[name][:2].T, result.metrics[name], rtol=1e-4, err_msg=name
        )
    trained, untrained = (jax.tree.leaves(states.network), jax.tree.leaves(drawn_network(keys[2])))
    for found, expected, start in zip(
        trained, jax.tree.leaves(result.states.network), untrained, strict=True
    ):
        np.testing.assert_allclose(found[:2], expected, rtol=1e-3, atol=1e-5)
        np.testing.assert_array_equal(found[2], start)
    assert metrics["bonus"].tolist() == [[0, 0], [0, 0], [-0.5, -0.5]]


@jax.jit
def drawn_network(key: jax.Array) -> ActorCritic:
    """The network of a seed before training."""
    return ActorCritic(TINY.ppo.network, key=jax.random.split(key, 4)[0])


@pytest.mark.thorough
def test_a_sweep_is_a_vmap_over_numbers_of_a_method_with_networks():
    """Each row of a sweep is the training with that number compiled in."""
    method = ella.RIDE(coefficient=0.5)
    train = ella.training_function("goto-small", method, **TINY_TRAINING)
    numbers = {
        "ride.coefficient": jnp.array([0.5, 2.0]),
        "ppo.learning_rate": jnp.array([1e-4, 1e-2]),
    }
    _, swept = jax.jit(jax.vmap(train, in_axes=(None, 0)))(training_key(0), numbers)
    assert float(swept["ride_bonus"][1, 0]) > 2 * float(swept["ride_bonus"][0, 0])
    _, plain = jax.jit(train)(training_key(0))
    for name in ("ride_bonus", "loss", "entropy"):
        np.testing.assert_allclose(swept[name][0], plain[name], rtol=1e-3, err_msg=name)


def test_numbers_that_cannot_be_swept_are_named():
    train = ella.training_function("goto-small", ella.RIDE(), **TINY_TRAINING)
    with pytest.raises(
        InputError, match=r"unknown number to sweep 'ride.coeficient'; did you mean"
    ):
        train(training_key(0), {"ride.coeficient": 1.0})
    with pytest.raises(InputError, match=r"ppo.num_envs"):
        train(training_key(0), {"ppo.num_envs": 1.0})


def test_every_public_name_is_there():
    for name in ella.__all__:
        assert getattr(ella, name) is not None
    assert set(ella.__all__) <= set(dir(ella))
    with pytest.raises(AttributeError):
        ella.no_such_name  # noqa: B018
