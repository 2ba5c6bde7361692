"""Convolutions of tiny grids as matrix products.

Every seed has its own weights: vmapped over seeds, products of patches or of whole grids with a
matrix stay batched products.
"""

import math
from functools import partial
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from ella.networks.linear import uniform, weight_gradient, wide_dtype, widened

Module = TypeVar("Module")


def pooled_patches(
    x: Shaped[Array, "*rows H W C"], kernel: int, pool: int
) -> Shaped[Array, "*rows G P K"]:
    """What a convolution padded by 1 sees at each output, outputs grouped by pooling window.

    G windows row by row, then the P outputs inside each, then K = kernel * kernel * C inputs.
    """
    lead, (height, width, channels) = x.shape[:-3], x.shape[-3:]
    padded = jnp.pad(x, [(0, 0)] * len(lead) + [(1, 1), (1, 1), (0, 0)])
    height, width = height + 3 - kernel, width + 3 - kernel
    taps = [
        padded[..., i : i + height, j : j + width, :] for i in range(kernel) for j in range(kernel)
    ]
    patches = jnp.concatenate(taps, axis=-1)
    rows, columns, depth = height // pool, width // pool, kernel * kernel * channels
    patches = patches.reshape(*lead, rows, pool, columns, pool, depth)
    patches = jnp.moveaxis(patches, -4, -3)
    return patches.reshape(*lead, rows * columns, pool * pool, depth)


COUNTED_ROWS = 4096
"""Rows in each of the products that are added up to patches' counts: enough of them to fill a
GPU."""


@jax.custom_vjp
def product_with_means(
    patches: Float[Array, "T B G P K"], matrix: Float[Array, "K C"]
) -> tuple[Float[Array, "T B G P C"], Float[Array, "T C"], Float[Array, "T C"]]:
    """Patches of zeros and ones times a matrix, and the means at each step of the product and of
    its square.

    Those follow from how often any two inputs are 1 together, which is a smaller array to go over
    than the product; and a gradient of theirs reaches the matrix without being spread over it.
    """
    return _product_with_means_forward(patches, matrix)[0]


def _product_with_means_forward(
    patches: Array, matrix: Array
) -> tuple[tuple[Array, Array, Array], tuple[Array, ...]]:
    wide = wide_dtype(matrix.dtype)
    steps, inputs = len(patches), patches.shape[-1]
    rows = math.prod(patches.shape[1:-1])
    parts = rows // COUNTED_ROWS if rows % COUNTED_ROWS == 0 else 1
    counted = patches.reshape(steps * parts, -1, inputs)
    together = jnp.einsum("tni,tnj->tij", counted, counted, preferred_element_type=wide)
    shares = together.reshape(steps, parts, inputs, inputs).sum(1) / rows
    mean, square = means_of_product(shares, matrix)
    return (jnp.matmul(patches, matrix), mean, square), (patches, matrix, shares)


def _product_with_means_backward(
    kept: tuple[Array, ...], gradient: tuple[Array, ...]
) -> tuple[Array, Array]:
    patches, matrix, shares = kept
    at_product, at_mean, at_square = gradient
    direct = weight_gradient(patches, at_product, str(matrix.dtype))
    of_mean, of_square = through_means(shares, matrix, at_mean, at_square)
    total = direct + of_mean + of_square
    return jnp.zeros_like(patches), total.astype(matrix.dtype)


product_with_means.defvjp(_product_with_means_forward, _product_with_means_backward)


def means_of_product(
    shares: Float[Array, "T K K"], matrix: Float[Array, "K C"]
) -> tuple[Float[Array, "T C"], Float[Array, "T C"]]:
    """Means of the product of patches with a matrix and of its square, given in what share of the
    patches any two inputs are 1 together."""
    matrix_wide = widened(matrix)
    mean = jnp.matmul(jnp.diagonal(shares, axis1=1, axis2=2), matrix_wide, precision="highest")
    spread = jnp.matmul(shares, matrix_wide, precision="highest")
    return mean, (spread * matrix_wide).sum(1)


def through_means(
    shares: Float[Array, "T K K"],
    matrix: Float[Array, "K C"],
    at_mean: Float[Array, "T C"],
    at_square: Float[Array, "T C"],
) -> tuple[Float[Array, "K C"], Float[Array, "K C"]]:
    """The gradients of the matrix that come through both of `means_of_product`."""
    ones = jnp.diagonal(shares, axis1=1, axis2=2)
    through_mean = jnp.matmul(ones.T, at_mean, precision="highest")
    weighted = widened(matrix) * at_square[:, None, :]
    through_square = jnp.einsum("tij,tjc->ic", shares, weighted, precision="highest")
    return through_mean, 2 * through_square


class ConvolutionMatrix(eqx.Module):
    """A convolution made ready for matrix products, in the compute dtype."""

    matrix: Float[Array, "*W K O"]
    """One for each window, where the layer works window by window."""
    bias: Float[Array, " C"] | None


NO_TAP = 9
"""Follows the taps of a 3x3 kernel, which count from 0."""


def _tap_table(grid: int, pool: int) -> np.ndarray:
    """[input cell, output cell]: the tap of a 3x3 kernel that joins the two, or `NO_TAP`."""
    side = range(0, grid, pool)
    within = [(i, j) for i in range(pool) for j in range(pool)]
    outputs = [(row + i, column + j) for row in side for column in side for i, j in within]
    table = np.full((grid**2, grid**2), NO_TAP)
    for cell, (row, column) in enumerate(np.ndindex(grid, grid)):
        for output, (out_row, out_column) in enumerate(outputs):
            i, j = row - out_row + 1, column - out_column + 1
            if 0 <= i < 3 and 0 <= j < 3:
                table[cell, output] = 3 * i + j
    return table


def _corners(grid: int) -> list[tuple[int, int]]:
    """The first row and column of what the outputs in each quarter of a grid see, which is
    grid / 2 + 1 cells a side."""
    starts = (0, grid // 2 - 1)
    return [(row, column) for row in starts for column in starts]


def _window_table(grid: int) -> np.ndarray:
    """[window, cell seen, output]: a `_tap_table` for each quarter of a grid."""
    cells = np.arange(grid**2).reshape(grid, grid)
    size = grid // 2 + 1
    by_window = np.split(_tap_table(grid, grid // 2), 4, axis=1)
    return np.stack(
        [
            table[cells[row : row + size, column : column + size].reshape(-1)]
            for table, (row, column) in zip(by_window, _corners(grid), strict=True)
        ]
    )


def _from_taps(weight: Array, table: np.ndarray, dtype: str) -> Array:
    """The matrix, or matrices, whose blocks are the taps in `table`."""
    _, _, inputs, outputs = weight.shape
    taps = weight.reshape(NO_TAP, inputs, outputs).astype(dtype)
    taps = jnp.concatenate([taps, jnp.zeros_like(taps[:1])])
    # One gather in the order of the result: assembling blocks and then transposing them costs
    # two more passes over a matrix that may be larger than everything else in a step. 2.89 times
    # as fast, with the backward pass below (benchmarks/network_kernels.py).
    matrix = taps[table[..., None, :], np.arange(inputs)[:, None]]
    *lead, cells, cells_out = table.shape
    return matrix.reshape(*lead, cells * inputs, cells_out * outputs)


def _taps_gradient(weight: Array, table: np.ndarray, gradient: Array) -> Array:
    """Of each tap the sum over the blocks it fills."""
    table = table.reshape(-1, *table.shape[-2:])
    windows, cells, cells_out = table.shape
    blocks = gradient.reshape(windows, cells, weight.shape[2], cells_out, weight.shape[3])
    # Slices at fixed places, which compilers add up in one pass; a gather they do not.

    def block(window: int, cell: int, output: int) -> Array:
        return widened(blocks[window : window + 1, cell : cell + 1, :, output : output + 1, :])

    taps = [
        sum(block(*place) for place in np.argwhere(table == tap).tolist()) for tap in range(NO_TAP)
    ]
    return jnp.stack(taps).reshape(weight.shape).astype(weight.dtype)


@partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3))
def grid_matrix(
    weight: Float[Array, "3 3 I C"], grid: int, pool: int, dtype: str
) -> Float[Array, "K O"]:
    """A 3x3 convolution as one matrix from all cells of a grid to all cells."""
    return _from_taps(weight, _tap_table(grid, pool), dtype)


def _grid_matrix_forward(weight: Array, grid: int, pool: int, dtype: str) -> tuple[Array, Array]:
    return grid_matrix(weight, grid, pool, dtype), weight


def _grid_matrix_backward(
    grid: int, pool: int, dtype: str, weight: Array, gradient: Array
) -> tuple[Array]:
    return (_taps_gradient(weight, _tap_table(grid, pool), gradient),)


grid_matrix.defvjp(_grid_matrix_forward, _grid_matrix_backward)


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def window_matrices(
    weight: Float[Array, "3 3 I C"], grid: int, dtype: str
) -> Float[Array, "4 K O"]:
    """A 3x3 convolution as a matrix for each quarter of a grid, from the cells it sees to its
    cells."""
    return _from_taps(weight, _window_table(grid), dtype)


def _window_matrices_forward(weight: Array, grid: int, dtype: str) -> tuple[Array, Array]:
    return window_matrices(weight, grid, dtype), weight


def _window_matrices_backward(
    grid: int, dtype: str, weight: Array, gradient: Array
) -> tuple[Array]:
    return (_taps_gradient(weight, _window_table(grid), gradient),)


window_matrices.defvjp(_window_matrices_forward, _window_matrices_backward)


@jax.custom_vjp
def seen_by_windows(x: Float[Array, "*rows G I"]) -> Float[Array, "4 *rows K"]:
    """What the outputs in each quarter of a grid see of it, flattened. The gradients of a cell
    that several see are added up in at least float32."""
    grid = math.isqrt(x.shape[-2])
    size = grid // 2 + 1
    cells = x.reshape(*x.shape[:-2], grid, grid, x.shape[-1])
    seen = [
        cells[..., row : row + size, column : column + size, :] for row, column in _corners(grid)
    ]
    return jnp.stack(seen).reshape(4, *x.shape[:-2], -1)


def _seen_by_windows_forward(x: Array) -> tuple[Array, Array]:
    # Of `x` the backward pass needs only the shape.
    return seen_by_windows(x), jnp.zeros((*x.shape[-2:], 0))


def _seen_by_windows_backward(shaped: Array, gradient: Array) -> tuple[Array]:
    cells, channels, _ = shaped.shape
    grid, rows = math.isqrt(cells), gradient.shape[1:-1]
    size = grid // 2 + 1
    parts = gradient.reshape(4, *rows, size, size, channels)

    def placed(part: Array, start: tuple[int, int]) -> Array:
        around = [(first, grid - size - first) for first in start]
        return jnp.pad(widened(part), [(0, 0)] * len(rows) + [*around, (0, 0)])

    total, *others = (placed(*each) for each in zip(parts, _corners(grid), strict=True))
    for other in others:
        total = total + other
    return (total.astype(gradient.dtype).reshape(*rows, cells, channels),)


seen_by_windows.defvjp(_seen_by_windows_forward, _seen_by_windows_backward)


class Convolution(eqx.Module):
    """Weights of a convolution padded by 1.

    With a `grid`, the layer works on whole grids of that many cells a side, as one matrix from
    all inputs to all outputs: on a 2x2 grid every output of a 3x3 kernel sees every input. Where
    its outputs are to be pooled, the grid is two windows of `pool` by `pool` cells a side, its
    outputs are ordered by them, and each has a matrix from the cells it sees: of a 4x4 grid 9, so
    that no more is multiplied than by patches, which would be many more to copy. Where a
    normalisation follows, its shift is all the `bias` a convolution needs.
    """

    weight: Float[Array, "k k I C"]
    bias: Float[Array, " C"] | None
    grid: int | None = eqx.field(static=True)
    pool: int = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        grid: int | None = None,
        pool: int = 1,
        bias: bool = True,
        key: PRNGKeyArray,
    ):
        weight_key, bias_key = jax.random.split(key)
        fan_in = kernel * kernel * inputs
        self.weight = uniform((kernel, kernel, inputs, outputs), fan_in, key=weight_key)
        self.bias = uniform((outputs,), fan_in, key=bias_key) if bias else None
        self.grid = grid
        self.pool = pool

    def assemble(self, dtype: str) -> ConvolutionMatrix:
        """Inputs to outputs: of one position, or of the whole grid."""
        if self.grid is None:
            matrix = self.weight.reshape(-1, self.weight.shape[-1]).astype(dtype)
        elif self.pool > 1:
            matrix = window_matrices(self.weight, self.grid, dtype)
        else:
            matrix = grid_matrix(self.weight, self.grid, self.pool, dtype)
        return ConvolutionMatrix(matrix, self.bias)


def ready(convolution: Convolution | ConvolutionMatrix, dtype: str) -> ConvolutionMatrix:
    """Assembled, unless it is already."""
    return convolution.assemble(dtype) if isinstance(convolution, Convolution) else convolution


def convolved(
    convolution: Convolution | ConvolutionMatrix, patches: Float[Array, "*rows K"]
) -> Float[Array, "*rows O"]:
    """Patches times matrix plus bias, in the patches' dtype.

    Of a convolution with a grid, patches and outputs are whole grids, flattened; or windows' parts
    of it, the windows coming first.
    """
    convolution = ready(convolution, str(patches.dtype))
    if convolution.matrix.ndim == 2:
        outputs = jnp.matmul(patches, convolution.matrix)
    else:
        of_windows = patches.reshape(len(patches), -1, patches.shape[-1])
        outputs = jnp.matmul(of_windows, convolution.matrix).reshape(*patches.shape[:-1], -1)
    if convolution.bias is None:
        return outputs
    bias = convolution.bias.astype(outputs.dtype)
    return outputs + jnp.tile(bias, outputs.shape[-1] // bias.shape[0])


def assembled(module: Module, dtype: str) -> Module:
    """`module` with every convolution made ready for matrix products, to be done outside loops."""
    result: Any = jax.tree.map(
        lambda leaf: leaf.assemble(dtype) if isinstance(leaf, Convolution) else leaf,
        module,
        is_leaf=lambda leaf: isinstance(leaf, Convolution),
    )
    return result


def on_grid(
    convolution: Convolution | ConvolutionMatrix, x: Float[Array, "*rows G I"]
) -> Float[Array, "*rows G C"]:
    """A convolution of whole grids of G cells, as one matrix product: 1.44 times as fast as XLA's
    convolution on 4x4 cells, 6.28 times on 2x2 (benchmarks/network_kernels.py)."""
    convolution = ready(convolution, str(x.dtype))
    if convolution.matrix.ndim == 2:
        outputs = convolved(convolution, x.reshape(*x.shape[:-2], -1))
    else:
        outputs = jnp.moveaxis(convolved(convolution, seen_by_windows(x)), 0, -2)
    return outputs.reshape(*x.shape[:-1], -1)
