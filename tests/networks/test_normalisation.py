"""Statistics against plain NumPy."""

from functools import reduce

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ella.networks.normalisation import (
    EPSILON,
    Moments,
    Normalisation,
    initial_moments,
    moving_average,
)

T, B, P, W, C = 3, 5, 6, 4, 8
AXES = {"batch": (1, 2, 3), "minibatch": (0, 1, 2, 3), "layer": (2, 3, 4)}


def norm(kind: str) -> Normalisation:
    """With scales of both signs."""
    made = Normalisation(C, kind)
    rng = np.random.default_rng(1)
    parts = tuple(jnp.asarray(rng.normal(size=C), jnp.float32) for _ in range(2))
    return eqx.tree_at(lambda n: (n.weight, n.bias), made, parts)


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(0).normal(2.0, 3.0, (T, B, P, W, C)).astype(np.float32)


def expected(x: np.ndarray, layer: Normalisation, kind: str) -> np.ndarray:
    x = x.astype(np.float64)
    if kind != "none":
        mean = x.mean(AXES[kind], keepdims=True)
        variance = x.var(AXES[kind], keepdims=True)
        x = (x - mean) / np.sqrt(variance + EPSILON)
    return np.maximum(x * np.asarray(layer.weight) + np.asarray(layer.bias), 0)


@pytest.mark.parametrize("kind", ["batch", "minibatch", "layer", "none"])
def test_output_and_pooling(x: np.ndarray, kind: str) -> None:
    layer = norm(kind)
    want = expected(x, layer, kind)
    both = jax.jit(lambda x: (layer(x, None)[0], layer.pooled(x, None)[0]))
    got, pooled = both(x)
    np.testing.assert_allclose(got, want, atol=2e-5)
    np.testing.assert_allclose(pooled, want.max(axis=-2), atol=2e-5)


@pytest.mark.parametrize("kind", ["batch", "minibatch", "layer", "none"])
def test_windows_may_come_first(x: np.ndarray, kind: str) -> None:
    layer = norm(kind)
    want, want_moments = jax.jit(lambda x: layer.pooled(x, None))(x)
    got, moments = jax.jit(lambda x: layer.pooled_windows(x, None))(np.moveaxis(x, 2, 0))
    np.testing.assert_allclose(got, want, atol=2e-5)
    np.testing.assert_allclose(moments.mean, want_moments.mean, atol=1e-5)
    np.testing.assert_allclose(moments.variance, want_moments.variance, rtol=1e-4)


@pytest.mark.parametrize("kind", ["batch", "minibatch"])
def test_means_may_be_given(x: np.ndarray, kind: str) -> None:
    layer = norm(kind)
    want, want_moments = layer.pooled(jnp.asarray(x), None)
    means = (jnp.asarray(part.mean((1, 2, 3))) for part in (x, np.square(x)))
    got, moments = layer.given(layer.chosen(jnp.asarray(x)), *means, x.shape[-2])
    np.testing.assert_allclose(got, want, atol=2e-5)
    np.testing.assert_allclose(moments.mean, want_moments.mean, rtol=1e-5)
    np.testing.assert_allclose(moments.variance, want_moments.variance, rtol=1e-4)


def test_pooling_before_scaling_has_the_same_gradient(x: np.ndarray) -> None:
    layer = norm("batch")
    probe = np.random.default_rng(2).normal(size=(T, B, P, C)).astype(np.float32)

    def largest(x: jax.Array) -> jax.Array:
        # The gradient of a reduced maximum asks which recomputed value equals it; this does not.
        columns = [x[..., column, :] for column in range(W)]
        return reduce(lambda a, b: jnp.where(a >= b, a, b), columns)

    def after(layer: Normalisation, x: jax.Array) -> jax.Array:
        return (largest(layer(x, None)[0]) * probe).sum()

    def before(layer: Normalisation, x: jax.Array) -> jax.Array:
        return (layer.pooled(x, None)[0] * probe).sum()

    want = jax.jit(jax.grad(after, argnums=(0, 1)))(layer, x)
    got = jax.jit(jax.grad(before, argnums=(0, 1)))(layer, x)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_rows_see_only_their_own_time_step(x: np.ndarray) -> None:
    layer = norm("batch")
    normalise = jax.jit(lambda x: layer(x, None)[0])
    alone = np.concatenate([normalise(x[t : t + 1]) for t in range(T)])
    np.testing.assert_allclose(normalise(x), alone, atol=1e-6)


def test_moments_of_the_batch_are_unbiased(x: np.ndarray) -> None:
    _, found = norm("batch")(jnp.asarray(x), None)
    np.testing.assert_allclose(found.mean, x.mean((1, 2, 3)), rtol=1e-5)
    np.testing.assert_allclose(found.variance, x.var((1, 2, 3), ddof=1), rtol=1e-4)


def test_running_statistics_are_an_exponential_moving_average() -> None:
    rng = np.random.default_rng(4)
    means, variances = rng.normal(size=(2, T, C))
    mean, variance = np.zeros(C), np.ones(C)
    for step in range(T):
        mean = 0.9 * mean + 0.1 * means[step]
        variance = 0.9 * variance + 0.1 * variances[step]
    got = moving_average(
        initial_moments(C), Moments(jnp.asarray(means), jnp.asarray(variances)), 0.1
    )
    np.testing.assert_allclose(got.mean, mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got.variance, variance, rtol=1e-5, atol=1e-6)


def test_running_statistics_make_rows_independent(x: np.ndarray) -> None:
    layer = norm("batch")
    running = Moments(jnp.full(C, 2.0), jnp.full(C, 9.0))
    together, _ = layer(jnp.asarray(x), running)
    alone, _ = layer(jnp.asarray(x[1:2, 3:4]), running)
    np.testing.assert_array_equal(together[1:2, 3:4], alone)
    want = (x - 2.0) / np.sqrt(9.0 + EPSILON) * np.asarray(layer.weight) + np.asarray(layer.bias)
    np.testing.assert_allclose(together, np.maximum(want, 0), atol=1e-5)


def test_of_equal_values_the_first_has_the_gradient() -> None:
    layer = norm("none")
    equal = jnp.ones((1, 1, W, C))
    gradient = jax.jit(jax.grad(lambda x: layer.pooled(x, None)[0].sum()))(equal)[0, 0]
    alive = np.asarray(layer.weight + layer.bias > 0)
    np.testing.assert_allclose(gradient[0], np.where(alive, layer.weight, 0), rtol=1e-6)
    np.testing.assert_array_equal(gradient[1:], 0)
