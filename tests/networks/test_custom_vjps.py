"""Every custom VJP at production width and under vmap over seeds.

The truth is a plain version in float32, called for one seed at a time and differentiated by JAX.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import ella.networks
import ella.ppo
import ella.shaping
from ella.networks import convolution, linear, normalisation, recurrence

SEEDS, WIDTH = 2, 128
TOLERANCE = {"float32": 1e-5, "bfloat16": 0.015}
"""Of |ours - plain| / |plain|: bfloat16 keeps 8 bits, a rounding error of up to 0.004."""


@dataclass(frozen=True)
class Case:
    """Both versions take `*learned, *data`, of which they are differentiated by the former."""

    ours: Callable[..., Array]
    plain: Callable[..., Array]
    learned: tuple[np.ndarray, ...]
    """In the dtype they are stored in; the seed axis comes first."""
    data: tuple[np.ndarray, ...] = ()


def normal(seed: int, *shape: int, scale: float = 1.0) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(scale=scale, size=(SEEDS, *shape))
    return drawn.astype(np.float32)


def gru_case(dtype: str) -> Case:
    steps, rows = 5, 6

    def ours(inputs: Array, weight: Array, new_bias: Array, present: Array) -> Array:
        return recurrence.read_words(inputs, present, weight, new_bias, dtype)

    def plain(inputs: Array, weight: Array, new_bias: Array, present: Array) -> Array:
        state = jnp.zeros((rows, WIDTH))
        for word, here in zip(inputs, present, strict=True):
            in_reset, in_update, in_new = jnp.split(word, 3, axis=-1)
            reset, update, new = jnp.split(state @ weight, 3, axis=-1)
            reset, update = jax.nn.sigmoid(in_reset + reset), jax.nn.sigmoid(in_update + update)
            new = jnp.tanh(in_new + reset * (new + new_bias))
            state = jnp.where(here[:, None], (1 - update) * new + update * state, state)
        return state

    lengths = np.random.default_rng(0).integers(0, steps + 1, (SEEDS, 1, rows))
    return Case(
        ours,
        plain,
        learned=(
            normal(1, steps, rows, 3 * WIDTH),
            normal(2, WIDTH, 3 * WIDTH, scale=WIDTH**-0.5),
            normal(3, WIDTH),
        ),
        data=(np.arange(steps)[:, None] < lengths,),
    )


def lstm_case(dtype: str) -> Case:
    steps, rows = 6, 4

    def ours(inputs: Array, hidden: Array, cell: Array, weight: Array, first: Array) -> Array:
        return recurrence.remember_sequence(inputs, first, hidden, cell, weight, dtype, 4)

    def plain(inputs: Array, hidden: Array, cell: Array, weight: Array, first: Array) -> Array:
        hiddens = []
        for now, starts in zip(inputs, first, strict=True):
            hidden, cell = (jnp.where(starts[:, None], 0, part) for part in (hidden, cell))
            enter, forget, candidate, leave = jnp.split(now + hidden @ weight, 4, axis=-1)
            cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(enter) * jnp.tanh(candidate)
            hidden = jax.nn.sigmoid(leave) * jnp.tanh(cell)
            hiddens.append(hidden)
        return jnp.stack(hiddens)

    return Case(
        ours,
        plain,
        learned=(
            normal(0, steps, rows, 4 * WIDTH),
            normal(1, rows, WIDTH),
            normal(2, rows, WIDTH),
            normal(3, WIDTH, 4 * WIDTH, scale=WIDTH**-0.5),
        ),
        data=(np.random.default_rng(4).random((SEEDS, steps, rows)) < 0.3,),
    )


def matmul_case(dtype: str) -> Case:
    def ours(x: Array, weight: Array) -> Array:
        return linear.matmul(x, weight, dtype)

    x, weight = normal(0, 3, 4, WIDTH), normal(1, WIDTH, 5, scale=WIDTH**-0.5)
    return Case(ours, jnp.matmul, (x, weight))


def look_up_case(dtype: str) -> Case:
    rows = np.random.default_rng(0).integers(0, 7, (SEEDS, 4, 5)).astype(np.int32)
    table = normal(1, 7, 2, WIDTH).astype(dtype)
    return Case(
        lambda table, rows: linear.look_up(table, rows, dtype),
        lambda table, rows: table[rows],
        (table,),
        (rows,),
    )


def grid_matrix_case(dtype: str, *, grid: int, pool: int) -> Case:
    def ours(x: Array, weight: Array) -> Array:
        return x.reshape(len(x), -1) @ convolution.grid_matrix(weight, grid, pool, dtype)

    def plain(x: Array, weight: Array) -> Array:
        layout = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(x, weight, (1, 1), "SAME", dimension_numbers=layout)
        side = grid // pool
        windows = y.reshape(len(x), side, pool, side, pool, WIDTH).transpose(0, 1, 3, 2, 4, 5)
        return windows.reshape(len(x), -1)

    x = normal(0, 3, grid, grid, WIDTH).astype(dtype)
    return Case(ours, plain, (x, normal(1, 3, 3, WIDTH, WIDTH, scale=0.1)))


def window_matrices_case(dtype: str) -> Case:
    def ours(weight: Array) -> Array:
        return convolution.window_matrices(weight, 4, dtype)

    def plain(weight: Array) -> Array:
        """The rows and columns of the whole grid's matrix that belong to each window."""
        whole = convolution.grid_matrix(weight, 4, 2, "float32").reshape(4, 4, WIDTH, 4, -1)
        seen = [whole[i : i + 3, j : j + 3] for i in (0, 1) for j in (0, 1)]
        return jnp.stack(
            [cells[..., window, :].reshape(9 * WIDTH, -1) for window, cells in enumerate(seen)]
        )

    return Case(ours, plain, (normal(0, 3, 3, WIDTH, WIDTH),))


def seen_by_windows_case(dtype: str) -> Case:
    def plain(x: Array) -> Array:
        cells = x.reshape(len(x), 4, 4, WIDTH)
        seen = [cells[:, i : i + 3, j : j + 3] for i in (0, 1) for j in (0, 1)]
        return jnp.stack(seen).reshape(4, len(x), -1)

    return Case(convolution.seen_by_windows, plain, (normal(0, 5, 16, WIDTH).astype(dtype),))


def flat(*arrays: Array) -> Array:
    return jnp.concatenate([array.astype(jnp.float32).reshape(-1) for array in arrays])


def product_with_means_case(dtype: str) -> Case:
    def ours(matrix: Array, patches: Array) -> Array:
        return flat(*convolution.product_with_means(patches, matrix))

    def plain(matrix: Array, patches: Array) -> Array:
        product = patches @ matrix
        return flat(product, product.mean((1, 2, 3)), jnp.square(product).mean((1, 2, 3)))

    patches = np.random.default_rng(0).random((SEEDS, 3, 5, 2, 4, 6)) < 0.4
    return Case(ours, plain, (normal(1, 6, WIDTH).astype(dtype),), (patches.astype(dtype),))


def first_of_highest(x: Array, signs: Array) -> Array:
    """Where values are equal, argmax finds the first."""
    chosen = jnp.argmax(x * signs, axis=-2, keepdims=True)
    return jnp.take_along_axis(x, chosen, axis=-2)[..., 0, :]


def maximum_case(dtype: str) -> Case:
    # Few different values, so that equal ones meet in a window.
    x = np.round(2 * normal(0, 5, 3, 4, WIDTH)).astype(dtype)
    signs = np.sign(normal(1, WIDTH)).astype(dtype)
    return Case(normalisation._signed_maximum, first_of_highest, (x,), (signs,))


def scaled_relu_case(dtype: str) -> Case:
    x, scale, shift = (normal(seed, 5, rows, WIDTH) for seed, rows in enumerate((6, 1, 1)))
    return Case(
        normalisation._scaled_relu,
        lambda x, scale, shift: jax.nn.relu(x * scale + shift),
        (x.astype(dtype), scale, shift),
    )


CASES: dict[str, tuple[Callable[..., Array], Callable[[str], Case]]] = {
    "gru": (recurrence.read_words, gru_case),
    "lstm": (recurrence.remember_sequence, lstm_case),
    "matmul": (linear.matmul, matmul_case),
    "look-up": (linear.look_up, look_up_case),
    "grid-matrix-4x4": (convolution.grid_matrix, partial(grid_matrix_case, grid=4, pool=2)),
    "grid-matrix-2x2": (convolution.grid_matrix, partial(grid_matrix_case, grid=2, pool=1)),
    "window-matrices": (convolution.window_matrices, window_matrices_case),
    "seen-by-windows": (convolution.seen_by_windows, seen_by_windows_case),
    "product-with-means": (convolution.product_with_means, product_with_means_case),
    "maximum": (normalisation._signed_maximum, maximum_case),
    "scaled-relu": (normalisation._scaled_relu, scaled_relu_case),
}


def pulled_back(
    call: Callable[..., Array], learned: tuple, data: tuple, cotangent: Array
) -> tuple[Array, ...]:
    """The output, then the gradient of each of `learned`."""
    output, back = jax.vjp(lambda *parts: call(*parts, *data), *learned)
    return output, *back(cotangent.astype(output.dtype))


def wide(arrays: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """Floating-point arrays in float32."""
    floating = (jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in arrays)
    return tuple(
        leaf.astype(np.float32) if is_float else leaf
        for leaf, is_float in zip(arrays, floating, strict=True)
    )


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_vmapped_value_and_gradient_at_production_width(name: str, dtype: str) -> None:
    case = CASES[name][1](dtype)
    output = jax.eval_shape(jax.vmap(case.ours), *case.learned, *case.data)
    cotangent = normal(9, *output.shape[1:]).astype(output.dtype)
    got = jax.jit(jax.vmap(partial(pulled_back, case.ours)))(case.learned, case.data, cotangent)
    plain = jax.jit(partial(pulled_back, case.plain))
    learned, data = wide(case.learned), wide(case.data)
    for seed in range(SEEDS):
        truth = plain(
            *jax.tree.map(lambda leaf, seed=seed: leaf[seed], (learned, data)),
            cotangent[seed].astype(np.float32),
        )
        for ours, theirs in zip(got, truth, strict=True):
            found, want = np.asarray(ours[seed], np.float64), np.asarray(theirs, np.float64)
            assert found.shape == want.shape
            size = np.linalg.norm(want)
            assert size > 1
            assert np.linalg.norm(found - want) < TOLERANCE[dtype] * size


def test_every_custom_vjp_is_tested() -> None:
    found = set()
    for package in (ella.networks, ella.ppo, ella.shaping):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            members = vars(importlib.import_module(module.name)).values()
            found |= {member for member in members if isinstance(member, jax.custom_vjp)}
    assert found == {function for function, _ in CASES.values()}
