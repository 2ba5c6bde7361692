"""The curriculum's weights move toward what is being learned and starve no part."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_mixture import MIXTURE, ended_episodes

from ella.errors import InputError
from ella.ppo import curriculum
from ella.ppo.settings import CurriculumSettings

SETTINGS = CurriculumSettings(recent_frames=2_000, earlier_frames=10_000)
SHARES = np.array([0.5, 0.25, 0.25])
EPISODES = 600


def trained(rates: np.ndarray, settings: CurriculumSettings = SETTINGS) -> list[np.ndarray]:
    """The weights after every iteration whose parts have these success rates."""
    update = jax.jit(
        lambda state, trajectory: curriculum.update(MIXTURE, settings, state, trajectory)
    )
    state, found = curriculum.start(MIXTURE), []
    for iteration, row in enumerate(rates):
        trajectory = ended_episodes(row, EPISODES, seed=iteration)
        state, measured = update(state, trajectory)
        found.append(np.asarray(state.weights))
    for index, part in enumerate(MIXTURE.parts):
        mean = measured[f"success_rate_{part.name}"]
        assert abs(float(mean.total / mean.count) - rates[-1][index]) < 0.15
    return found


def test_weights_follow_the_part_that_is_being_learned_and_return() -> None:
    rates = np.zeros((90, 3))
    rates[:, 0] = 0.9
    rates[10:40, 1] = np.linspace(0, 1, 30)
    rates[40:, 1] = 1.0
    weights = trained(rates)
    np.testing.assert_allclose(weights[9], SHARES, atol=0.06)
    assert weights[35][1] > 0.5
    assert weights[35][1] > 2 * weights[9][1]
    np.testing.assert_allclose(weights[-1], SHARES, atol=0.06)


def test_a_part_that_is_forgotten_gets_levels_again() -> None:
    rates = np.full((40, 3), 0.9)
    rates[20:, 2] = 0.1
    weights = trained(rates)
    assert weights[30][2] > 2 * weights[19][2]


def test_no_part_starves_whatever_the_others_do() -> None:
    settings = replace(SETTINGS, floor=0.1)
    for recent in np.eye(3):
        weights = curriculum.progress_weights(
            settings, MIXTURE.shares, jnp.asarray(recent, jnp.float32), jnp.zeros(3)
        )
        assert float(weights.sum()) == pytest.approx(1)
        assert (np.asarray(weights) >= SHARES * 0.1 / 1.1 - 1e-6).all()
        assert int(np.argmax(weights)) == int(np.argmax(recent))


def test_weights_stay_when_learning_progress_is_off() -> None:
    rates = np.linspace(0, 1, 10)[:, None] * np.ones(3)
    weights = trained(rates, replace(SETTINGS, learning_progress=False))
    np.testing.assert_array_equal(weights[-1], np.asarray(MIXTURE.shares))


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="floor"):
        CurriculumSettings(floor=0.0)
    with pytest.raises(InputError, match="recent_frames"):
        CurriculumSettings(recent_frames=5, earlier_frames=5)
