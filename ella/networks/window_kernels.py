"""The first convolution of one-hot cells as GPU kernels.

Cells are unpacked where they are multiplied, and of a pooling window only the value chosen leaves
the kernel: neither the patches nor their products, the largest arrays of the network, are ever
written to memory.
"""

import math
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, Float, Int8, UInt32

from ella.networks.convolution import means_of_product, through_means

TAPS, POOL = 4, 4
"""Cells under the 2x2 kernel, and outputs in a pooling window."""
BITS = 32
"""Channels of a cell as the kernels multiply them, of which packed cells use the first."""
WIDTH = 128
"""Channels of the product, for which the sizes below were chosen."""
WINDOWS = 128
"""Pooling windows multiplied at a time in the forward pass."""
ADDED = 64
"""Rows whose products are added up at a time."""
LONGEST = {"windows": 1024, "rows": 4096}
"""The most windows, or rows, that one program adds up."""
HOPPER = "9."
"""Compute capability of the GPUs for which they were chosen."""
MOST_WINDOWS = 2**16
"""Of one seed. 32 seeds with 20,480 each train 1.05 times as fast with these kernels, one seed with
163,840 only 0.99 times (results/speed/h200-window-kernels.json)."""


def _triton() -> ModuleType | None:
    """Pallas's Triton backend, where this version of JAX has it."""
    try:
        from jax.experimental.pallas import triton
    except ImportError:
        return None
    return triton


def can_run(cells: UInt32[Array, "T B G P 4"], matrix: Float[Array, "K C"]) -> bool:
    """Whether there are kernels for these shapes, and a GPU for which they were tried."""
    windows = math.prod(cells.shape[:-2])
    return (
        jax.default_backend() == "gpu"
        and str(getattr(jax.local_devices()[0], "compute_capability", "")).startswith(HOPPER)
        and _triton() is not None
        and matrix.dtype == jnp.bfloat16
        and matrix.shape[1] == WIDTH
        and cells.shape[-2:] == (POOL, TAPS)
        and windows % WINDOWS == 0
        and windows <= MOST_WINDOWS
    )


@jax.custom_vjp
def chosen_with_means(
    cells: UInt32[Array, "T B G P 4"], matrix: Float[Array, "K C"], signs: Float[Array, " C"]
) -> tuple[Float[Array, "T B G C"], Float[Array, "T C"], Float[Array, "T C"]]:
    """Of the products of packed patches with a matrix the signed maximum of each pooling window,
    and the means at each step of the products and of their squares.

    What `product_with_means` and the choice of the highest compute together.
    """
    return _forward(cells, matrix, signs)[0]


def _forward(
    cells: Array, matrix: Array, signs: Array
) -> tuple[tuple[Array, Array, Array], tuple[Array, ...]]:
    steps, channels = len(cells), len(matrix) // TAPS
    highest, position = _chosen(cells.reshape(-1, POOL, TAPS), _padded(matrix), signs)
    rows = math.prod(cells.shape[1:-1])
    counts = _counts(cells.reshape(steps, rows, TAPS))
    counts = counts.reshape(steps, TAPS, BITS, TAPS, BITS)[:, :, :channels, :, :channels]
    shares = counts.reshape(steps, len(matrix), len(matrix)) / rows
    mean, square = means_of_product(shares, matrix)
    highest = highest.reshape(*cells.shape[:-2], -1)
    return (highest, mean, square), (cells, matrix, signs, shares, position)


def _backward(
    kept: tuple[Array, ...], gradient: tuple[Array, Array, Array]
) -> tuple[None, Array, Array]:
    cells, matrix, signs, shares, position = kept
    at_highest, at_mean, at_square = gradient
    flat = at_highest.reshape(-1, at_highest.shape[-1])
    direct = _weight_gradient(cells.reshape(-1, POOL, TAPS), position, flat)
    direct = direct.reshape(TAPS, BITS, -1)[:, : len(matrix) // TAPS].reshape(matrix.shape)
    of_mean, of_square = through_means(shares, matrix, at_mean, at_square)
    total = direct + of_mean + of_square
    return None, total.astype(matrix.dtype), jnp.zeros_like(signs)


chosen_with_means.defvjp(_forward, _backward)


def _padded(matrix: Float[Array, "K C"]) -> Float[Array, "M C"]:
    """With a row for each of a cell's `BITS`."""
    by_tap = matrix.reshape(TAPS, -1, matrix.shape[1])
    unused = [(0, 0), (0, BITS - by_tap.shape[1]), (0, 0)]
    return jnp.pad(by_tap, unused).reshape(TAPS * BITS, -1)


def _unpacked(cells: UInt32[Array, "N 4"], dtype: Any) -> Float[Array, "N M"]:
    bits = cells[:, :, None] >> jax.lax.broadcasted_iota(jnp.uint32, (1, 1, BITS), 2) & 1
    # Through float32; no other way from integers to bfloat16 was tried on a GPU.
    return bits.reshape(len(cells), TAPS * BITS).astype(jnp.float32).astype(dtype)


def _dot(x: Array, y: Array, *, transposed: bool = False) -> Array:
    contracted = ((0 if transposed else 1,), (0,))
    return jax.lax.dot_general(x, y, (contracted, ((), ())), preferred_element_type=jnp.float32)


def _kernel(body: Any, **options: Any) -> Any:
    triton: Any = _triton()
    on_cpu = jax.default_backend() == "cpu"
    parameters = None if triton is None else triton.CompilerParams(num_warps=8, num_stages=2)
    return pl.pallas_call(body, compiler_params=parameters, interpret=on_cpu, **options)


def _dividing(size: int, longest: int) -> int:
    """The largest power of two up to `longest` that divides `size`."""
    return math.gcd(size, longest)


def _chosen(
    cells: UInt32[Array, "N P 4"], matrix: Float[Array, "M C"], signs: Float[Array, " C"]
) -> tuple[Float[Array, "N C"], Int8[Array, "N C"]]:
    """The signed maximum over P of the products, and its position; of equal ones the first."""
    shape = (len(cells), matrix.shape[1])
    return _kernel(
        _choose,
        grid=(len(cells) // WINDOWS,),
        in_specs=[
            pl.BlockSpec((WINDOWS, POOL, TAPS), lambda i: (i, 0, 0)),
            pl.BlockSpec(matrix.shape, lambda i: (0, 0)),
            pl.BlockSpec(signs.shape, lambda i: (0,)),
        ],
        out_specs=[pl.BlockSpec((WINDOWS, shape[1]), lambda i: (i, 0))] * 2,
        out_shape=[
            jax.ShapeDtypeStruct(shape, matrix.dtype),
            jax.ShapeDtypeStruct(shape, jnp.int8),
        ],
        name="choose",
    )(cells, matrix, signs)


def _choose(cells: Any, matrix: Any, signs: Any, highest_out: Any, position_out: Any) -> None:
    weights, signed = matrix[...], signs[...][None]

    def product(output: int) -> Array:
        patches = _unpacked(cells[:, output, :], weights.dtype)
        return _dot(patches, weights).astype(weights.dtype) * signed

    highest = product(0)
    position = jnp.zeros(highest.shape, jnp.int8)
    for output in range(1, POOL):
        other = product(output)
        position = jnp.where(other > highest, jnp.int8(output), position)
        highest = jnp.maximum(highest, other)
    highest_out[...] = highest * signed
    position_out[...] = position


def _weight_gradient(
    cells: UInt32[Array, "N P 4"], position: Int8[Array, "N C"], gradient: Float[Array, "N C"]
) -> Float[Array, "M C"]:
    """Of the matrix, given the gradient of the values chosen."""
    channels = gradient.shape[1]
    size = _dividing(len(cells), LONGEST["windows"])
    parts = _kernel(
        _add_gradients,
        grid=(len(cells) // size,),
        in_specs=[
            pl.BlockSpec((size, POOL, TAPS), lambda i: (i, 0, 0)),
            pl.BlockSpec((size, channels), lambda i: (i, 0)),
            pl.BlockSpec((size, channels), lambda i: (i, 0)),
        ],
        out_specs=pl.BlockSpec((None, TAPS * BITS, channels), lambda i: (i, 0, 0)),
        out_shape=jax.ShapeDtypeStruct((len(cells) // size, TAPS * BITS, channels), jnp.float32),
        name="weight_gradient",
    )(cells, position, gradient)
    return parts.sum(0)


def _add_gradients(cells: Any, position: Any, gradient: Any, out: Any) -> None:
    def add(index: Array, total: Array) -> Array:
        at = pl.ds(index * ADDED, ADDED)
        chosen, values = position[at, :], gradient[at, :]
        for output in range(POOL):
            patches = _unpacked(cells[at, output, :], values.dtype)
            total += _dot(patches, jnp.where(chosen == output, values, 0), transposed=True)
        return total

    out[...] = jax.lax.fori_loop(0, len(position) // ADDED, add, jnp.zeros(out.shape, out.dtype))


def _counts(cells: UInt32[Array, "T N 4"]) -> Float[Array, "T M M"]:
    """How often any two channels of a patch are 1 together at each step."""
    steps, rows, _ = cells.shape
    size = _dividing(rows, LONGEST["rows"])
    inputs = TAPS * BITS
    parts = _kernel(
        _add_counts,
        grid=(steps * rows // size,),
        in_specs=[pl.BlockSpec((size, TAPS), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((None, inputs, inputs), lambda i: (i, 0, 0)),
        out_shape=jax.ShapeDtypeStruct((steps * rows // size, inputs, inputs), jnp.float32),
        name="counts",
    )(cells.reshape(-1, TAPS))
    return parts.reshape(steps, -1, inputs, inputs).sum(1)


def _add_counts(cells: Any, out: Any) -> None:
    def add(index: Array, total: Array) -> Array:
        patches = _unpacked(cells[pl.ds(index * ADDED, ADDED), :], jnp.bfloat16)
        return total + _dot(patches, patches, transposed=True)

    out[...] = jax.lax.fori_loop(0, len(cells) // ADDED, add, jnp.zeros(out.shape, out.dtype))
