"""Matrix products in the compute precision, and the layers that are little else."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int32, PRNGKeyArray


def wide_dtype(dtype: DTypeLike) -> DTypeLike:
    """float64 where that is computed in, float32 elsewhere."""
    return jnp.float64 if jnp.dtype(dtype) == jnp.float64 else jnp.float32


def widened(x: Array) -> Array:
    """`x` in at least float32: statistics, softmax and losses are computed in it."""
    return x.astype(wide_dtype(x.dtype))


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def matmul(x: Float[Array, "*rows I"], weight: Float[Array, "I O"], dtype: str) -> Array:
    """`x @ weight` with operands in the compute dtype and a result in at least float32.

    So are the products of the backward pass, where JAX would take the gradient as it comes, in
    float32.
    """
    return jnp.matmul(
        x.astype(dtype),
        weight.astype(dtype),
        preferred_element_type=wide_dtype(dtype),
    )


def _matmul_forward(x: Array, weight: Array, dtype: str) -> tuple[Array, tuple[Array, Array]]:
    return matmul(x, weight, dtype), (x, weight)


def _matmul_backward(dtype: str, kept: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    x, weight = kept
    return (
        matmul(gradient, weight.T, dtype).astype(x.dtype),
        weight_gradient(x, gradient, dtype).astype(weight.dtype),
    )


matmul.defvjp(_matmul_forward, _matmul_backward)


def weight_gradient(
    inputs: Float[Array, "*rows I"], outputs: Float[Array, "*rows O"], dtype: str
) -> Float[Array, "I O"]:
    """Of a product of `inputs` with a weight, given the gradient of its `outputs`."""
    flat_inputs = inputs.reshape(-1, inputs.shape[-1])
    return matmul(flat_inputs.T, outputs.reshape(-1, outputs.shape[-1]), dtype)


def uniform(shape: tuple[int, ...], fan_in: int, *, key: PRNGKeyArray) -> Array:
    """PyTorch's default initialisation: uniform within 1 / sqrt(fan_in)."""
    limit = fan_in**-0.5
    return jax.random.uniform(key, shape, minval=-limit, maxval=limit)


class Linear(eqx.Module):
    """A dense layer. As in BabyAI, the weights into each output start on the unit sphere."""

    weight: Float[Array, "I O"]
    bias: Float[Array, " O"]

    def __init__(self, inputs: int, outputs: int, *, key: PRNGKeyArray):
        weight = jax.random.normal(key, (inputs, outputs))
        self.weight = weight / jnp.linalg.norm(weight, axis=0)
        self.bias = jnp.zeros(outputs)

    def __call__(self, x: Float[Array, "*rows I"], dtype: str) -> Float[Array, "*rows O"]:
        return matmul(x, self.weight, dtype) + self.bias


class TanhHead(eqx.Module):
    """Two dense layers with a tanh between."""

    hidden: Linear
    output: Linear

    def __init__(self, inputs: int, hidden: int, outputs: int, *, key: PRNGKeyArray):
        hidden_key, output_key = jax.random.split(key)
        self.hidden = Linear(inputs, hidden, key=hidden_key)
        self.output = Linear(hidden, outputs, key=output_key)

    def __call__(self, x: Float[Array, "*rows I"], dtype: str) -> Float[Array, "*rows O"]:
        return self.output(jnp.tanh(self.hidden(x, dtype)), dtype)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def look_up(
    table: Float[Array, " R *row"], rows: Int32[Array, "*index"], dtype: str = "float32"
) -> Array:
    """`table[rows]`, whose gradient is a matrix product with operands in the compute dtype.

    A scatter adds in an order that differs between runs on a GPU, so a resumed run would not be
    identical. That costs 2 % of an iteration (benchmarks/network_kernels.py).
    """
    return table[rows]


def _look_up_forward(table: Array, rows: Array, dtype: str) -> tuple[Array, tuple[Array, Array]]:
    return table[rows], (rows, table)


def _look_up_backward(
    dtype: str, residuals: tuple[Array, Array], gradient: Array
) -> tuple[Array, None]:
    rows, table = residuals
    chosen = jax.nn.one_hot(rows.reshape(-1), table.shape[0], dtype=dtype, axis=0)
    flat = matmul(chosen, gradient.reshape(rows.size, -1), dtype)
    return flat.reshape(table.shape).astype(table.dtype), None


look_up.defvjp(_look_up_forward, _look_up_backward)
