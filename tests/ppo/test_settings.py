"""Settings that fit together, and those that do not."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_runs import TINY

from ella.errors import InputError
from ella.networks.actor_critic import ActorCritic
from ella.ppo.settings import PPOSettings
from ella.ppo.update import is_frozen, learning_rate_at, make_optimiser, without_frozen


def test_defaults_are_two_minibatches_of_64_sequences() -> None:
    config = PPOSettings()
    assert config.frames_per_iteration == 2560
    assert config.num_sequences == 128
    assert config.minibatch_sequences == 64


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"bptt_length": 30}, "bptt_length"),
        ({"minibatch_frames": 1290}, "minibatch_frames"),
        ({"minibatch_frames": 1000}, "minibatch_frames"),
        ({"num_envs": 0}, "num_envs"),
        ({"pool_size": -1}, "pool_size"),
        ({"decay_frames": -1}, "decay_frames"),
        ({"frozen_frames": -1}, "frozen_frames"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"entropy_coefficient": -0.1}, "entropy_coefficient"),
        ({"discount": 1.5}, "discount"),
        ({"matmul_precision": "float8"}, "matmul_precision"),
    ],
)
def test_settings_that_do_not_fit_are_refused(wrong: dict, named: str) -> None:
    with pytest.raises(InputError, match=named):
        PPOSettings(**wrong)


def test_the_learning_rate_is_constant_or_falls_to_a_tenth() -> None:
    constant, falling = PPOSettings(), PPOSettings(decay_frames=2560 * 100)
    assert learning_rate_at(constant, jnp.int32(7)) == 1e-4
    found = [float(learning_rate_at(falling, jnp.int32(at))) for at in (0, 50, 100, 1000)]
    np.testing.assert_allclose(found, [1e-4, 0.55e-4, 1e-5, 1e-5], rtol=1e-5)


def test_a_traced_learning_rate_scales_the_step_and_keeps_the_optimiser_s_state() -> None:
    config = PPOSettings()
    weights, gradient = jnp.ones(3), jnp.array([0.1, -0.2, 0.05])
    state = make_optimiser(config).init(weights)
    step, after = make_optimiser(config).update(gradient, state)
    lower = jax.jit(lambda rate: make_optimiser(config, rate).update(gradient, state))
    small, also_after = lower(jnp.float32(1e-5))
    np.testing.assert_allclose(small, 0.1 * step, rtol=1e-5)
    jax.tree.map(np.testing.assert_array_equal, after, also_after)


def test_a_network_is_frozen_for_whole_iterations() -> None:
    assert is_frozen(PPOSettings(), jnp.int32(0)) is None
    config = PPOSettings(frozen_frames=2 * 2560 + 1)
    assert [bool(is_frozen(config, jnp.int32(at))) for at in range(5)] == [True] * 3 + [False] * 2


def test_of_a_frozen_network_the_critic_changes() -> None:
    settings = replace(TINY.ppo.network, clauses=2)
    shapes = jax.eval_shape(lambda key: ActorCritic(settings, key=key), jax.random.key(0))
    changes = jax.tree.map(lambda leaf: np.ones(leaf.shape, leaf.dtype), shapes)
    for frozen in (False, True):
        left = without_frozen(changes, jnp.bool_(frozen))
        for name in ("language", "stem", "tail", "memory", "actor", "switch"):
            for leaf in jax.tree.leaves(getattr(left, name)):
                np.testing.assert_array_equal(leaf, 0.0 if frozen else 1.0, err_msg=name)
        for leaf in jax.tree.leaves(left.critic):
            np.testing.assert_array_equal(leaf, 1.0)
