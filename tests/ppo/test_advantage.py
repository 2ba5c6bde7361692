"""Advantages against closed forms."""

import jax.numpy as jnp
import numpy as np

from ella.ppo.advantage import AdvantageEstimate, estimate, normalised

GAMMA, LAMBDA = 0.9, 0.8


def closed_form(
    reward: np.ndarray, value: np.ndarray, last: np.ndarray, done: np.ndarray
) -> np.ndarray:
    """The sum over later steps of the same episode of (gamma lambda)^k delta."""
    T, B = reward.shape
    values = np.concatenate([value, last[None]])
    advantage = np.zeros((T, B))
    for b in range(B):
        for t in range(T):
            for k in range(T - t):
                s = t + k
                after = 0.0 if done[s, b] else values[s + 1, b]
                delta = reward[s, b] + GAMMA * after - values[s, b]
                advantage[t, b] += (GAMMA * LAMBDA) ** k * delta
                if done[s, b]:
                    break
    return advantage


def test_advantage_is_the_closed_form() -> None:
    rng = np.random.default_rng(0)
    reward, value = rng.normal(size=(2, 12, 5))
    last, done = rng.normal(size=5), rng.random((12, 5)) < 0.25
    got = estimate(
        *(jnp.asarray(part) for part in (reward, value, last, done)),
        discount=GAMMA,
        gae_lambda=LAMBDA,
    )
    want = closed_form(reward, value, last, done)
    np.testing.assert_allclose(got.advantage, want, atol=1e-5)
    np.testing.assert_allclose(got.returns, want + value, atol=1e-5)


def test_lambda_one_gives_monte_carlo_returns() -> None:
    reward = jnp.array([[0.0], [0.0], [4.0], [1.0]])
    done = jnp.array([[False], [False], [True], [False]])
    value = jnp.array([[3.0], [-1.0], [2.0], [5.0]])
    got = estimate(reward, value, jnp.array([10.0]), done, discount=0.5, gae_lambda=1.0)
    np.testing.assert_allclose(got.returns[:, 0], [1.0, 2.0, 4.0, 1.0 + 0.5 * 10.0])


def test_normalised_advantages_keep_their_order_and_the_returns() -> None:
    advantage = np.random.default_rng(0).normal(3.0, 5.0, (12, 5))
    returns = jnp.asarray(advantage + 1.0)
    got = normalised(AdvantageEstimate(jnp.asarray(advantage), returns))
    np.testing.assert_allclose(got.advantage.mean(), 0.0, atol=1e-6)
    np.testing.assert_allclose(got.advantage.std(), 1.0, rtol=1e-5)
    assert (np.argsort(got.advantage, axis=None) == np.argsort(advantage, axis=None)).all()
    assert (got.returns == returns).all()


def test_equal_advantages_are_normalised_to_nothing() -> None:
    same = jnp.full((4, 3), 2.0)
    assert (normalised(AdvantageEstimate(same, same)).advantage == 0.0).all()
