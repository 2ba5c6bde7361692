"""Convolutions as matrix products, encodings and the trunk."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ella.networks.convolution import (
    Convolution,
    assembled,
    convolved,
    on_grid,
    pooled_patches,
)
from ella.networks.film import FiLMTail, Stem, channels_of, packed_cells
from ella.networks.normalisation import EPSILON
from ella.networks.settings import Variant


def reference_convolution(x: jax.Array, convolution: Convolution) -> jax.Array:
    bias = 0 if convolution.bias is None else convolution.bias
    return (
        jax.lax.conv_general_dilated(
            x,
            convolution.weight,
            (1, 1),
            [(1, 1), (1, 1)],
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        + bias
    )


def windows(x: jax.Array) -> jax.Array:
    """[N, H, W, C] as [N, pooling windows, 4, C]."""
    n, h, w, c = x.shape
    grouped = x.reshape(n, h // 2, 2, w // 2, 2, c).transpose(0, 1, 3, 2, 4, 5)
    return grouped.reshape(n, h * w // 4, 4, c)


def test_patches_times_matrix_is_the_convolution() -> None:
    convolution = Convolution(5, 6, 2, key=jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (3, 7, 7, 5))
    got = convolved(convolution, pooled_patches(x, 2, 2))
    np.testing.assert_allclose(got, windows(reference_convolution(x, convolution)), atol=1e-5)


@pytest.mark.parametrize(("grid", "pool"), [(4, 2), (4, 1), (2, 1)])
def test_one_matrix_is_the_convolution_of_a_whole_grid(grid: int, pool: int) -> None:
    convolution = Convolution(5, 6, 3, grid=grid, pool=pool, key=jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (3, grid, grid, 5))
    want = reference_convolution(x, convolution)
    want = windows(want) if pool == 2 else want
    flat = x.reshape(3, grid * grid, 5)
    convolve = eqx.filter_jit(on_grid)
    got = convolve(convolution, flat)
    np.testing.assert_allclose(got, want.reshape(3, -1, 6), atol=1e-5)
    ready = eqx.filter_jit(lambda one: assembled(one, "float32"))(convolution)
    np.testing.assert_array_equal(convolve(ready, flat), got)


@pytest.mark.parametrize(("grid", "pool"), [(4, 2), (2, 1)])
def test_a_grid_s_matrix_has_the_convolution_s_gradient(grid: int, pool: int) -> None:
    convolution = Convolution(5, 6, 3, grid=grid, pool=pool, bias=False, key=jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (3, grid, grid, 5))
    probe = jax.random.normal(jax.random.key(2), (3, grid, grid, 6))
    ordered = windows(probe) if pool == 2 else probe

    def ours(layer: Convolution) -> jax.Array:
        flat = x.reshape(3, grid * grid, 5)
        return (on_grid(layer, flat) * ordered.reshape(3, -1, 6)).sum()

    def theirs(layer: Convolution) -> jax.Array:
        return (reference_convolution(x, layer) * probe).sum()

    got, want = (jax.jit(jax.grad(one))(convolution).weight for one in (ours, theirs))
    np.testing.assert_allclose(got, want, atol=1e-4)


def encoded(image: np.ndarray, variant: Variant) -> jax.Array:
    return channels_of(packed_cells(jnp.asarray(image), variant), variant, "float32")


def test_onehot_encoding() -> None:
    image = np.random.default_rng(0).integers(0, [11, 6, 3], (2, 7, 7, 3)).astype(np.uint8)
    got = np.asarray(encoded(image, "onehot"))
    assert got.shape == (2, 7, 7, 20)
    assert set(np.unique(got)) == {0.0, 1.0}
    np.testing.assert_array_equal(got[..., :11].argmax(-1), image[..., 0])
    np.testing.assert_array_equal(got[..., 11:17].argmax(-1), image[..., 1])
    np.testing.assert_array_equal(got[..., 17:].argmax(-1), image[..., 2])
    np.testing.assert_array_equal(got.sum(-1), 3)
    np.testing.assert_array_equal(encoded(image, "paper"), image)


def plain_norm(x: jax.Array, layer: eqx.Module) -> jax.Array:
    axes = tuple(range(1, x.ndim - 1))
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return jax.nn.relu((x - mean) / jnp.sqrt(variance + EPSILON) * layer.weight + layer.bias)


def test_trunk_against_a_plain_implementation() -> None:
    T, B, C, D = 2, 6, 8, 5
    stem, tail = eqx.filter_jit(
        lambda *keys: (
            Stem(C, "onehot", "batch", key=keys[0]),
            FiLMTail(D, C, "batch", key=keys[1]),
        )
    )(jax.random.key(0), jax.random.key(1))
    image = np.random.default_rng(0).integers(0, [11, 6, 3], (T, B, 7, 7, 3)).astype(np.uint8)
    instruction = jax.random.normal(jax.random.key(2), (T, B, D))

    def grid(x: jax.Array, convolution: Convolution) -> jax.Array:
        y = reference_convolution(x.reshape(T * B, *x.shape[2:]), convolution)
        return y.reshape(T, B, *y.shape[1:])

    def pool(x: jax.Array) -> jax.Array:
        return (
            windows(x.reshape(T * B, *x.shape[2:]))
            .max(2)
            .reshape(T, B, x.shape[2] // 2, x.shape[3] // 2, C)
        )

    @jax.jit
    def plain_stem(image: jax.Array) -> jax.Array:
        x = channels_of(packed_cells(image, "onehot"), "onehot", "float32")
        x = pool(plain_norm(grid(x, stem.first), stem.first_norm))
        x = pool(plain_norm(grid(x, stem.second), stem.second_norm))
        return grid(plain_norm(grid(x, stem.third), stem.third_norm), stem.fourth)

    want = plain_stem(image)
    got, _ = jax.jit(lambda image: stem(image, None))(image)
    np.testing.assert_allclose(got, want.reshape(T, B, 4, C), atol=1e-4)

    @jax.jit
    def plain_tail(x: jax.Array, instruction: jax.Array) -> jax.Array:
        flat = instruction @ tail.modulation.weight + tail.modulation.bias
        parts = jnp.split(flat[:, :, None, None], 4, axis=-1)
        x = plain_norm(x * parts[0] + parts[1], tail.norms[0])
        first, inner_norm, second = tail.inner[0]
        x = grid(plain_norm(grid(x, first), inner_norm), second)
        return plain_norm(x * parts[2] + parts[3], tail.norms[1]).max((2, 3))

    features, moments = jax.jit(lambda x, i: tail(x, tail.modulations(i), None))(got, instruction)
    np.testing.assert_allclose(features, plain_tail(want, instruction), atol=1e-4)
    assert len(moments) == len(tail.initial_statistics()) == 3


@pytest.mark.thorough
def test_frames_cross_with_instructions_in_evaluation() -> None:
    C, D = 8, 5
    stem = Stem(C, "paper", "batch", key=jax.random.key(0))
    tail = FiLMTail(D, C, "batch", key=jax.random.key(1))
    image = jnp.asarray(np.random.default_rng(0).integers(0, 3, (4, 1, 7, 7, 3)), jnp.uint8)
    modulations = tail.modulations(jax.random.normal(jax.random.key(2), (3, D)))
    features, _ = stem(image, stem.initial_statistics())
    crossed, _ = tail(features, modulations[None], tail.initial_statistics())
    assert crossed.shape == (4, 3, C)
    one, _ = tail(features[2:3], modulations[None, 1:2], tail.initial_statistics())
    np.testing.assert_allclose(crossed[2, 1], one[0, 0], atol=1e-6)


@pytest.mark.thorough
def test_steps_counted_together_are_as_each_alone() -> None:
    """A single step does not count, nor does a narrow stem."""
    stem = Stem(96, "onehot", "batch", key=jax.random.key(0))
    image = jnp.asarray(np.random.default_rng(0).integers(0, 3, (3, 6, 7, 7, 3)), jnp.uint8)
    together, moments = stem(image, None)
    for step in range(3):
        alone, moments_alone = stem(image[step : step + 1], None)
        np.testing.assert_allclose(together[step], alone[0], atol=1e-4)
        for one, other in zip(
            jax.tree.leaves(moments), jax.tree.leaves(moments_alone), strict=True
        ):
            np.testing.assert_allclose(one[step], other[0], rtol=1e-3, atol=1e-5)
