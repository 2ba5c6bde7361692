"""Matrix products in the compute precision, and the layers that are little else."""

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


def matmul(x: Float[Array, "*rows I"], weight: Float[Array, "I O"], dtype: str) -> Array:
    """`x @ weight` with operands in the compute dtype and a result in at least float32."""
    return jnp.matmul(
        x.astype(dtype),
        weight.astype(dtype),
        preferred_element_type=wide_dtype(dtype),
    )


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


@jax.custom_vjp
def look_up(table: Float[Array, " R *row"], rows: Int32[Array, "*index"]) -> Array:
    """`table[rows]`, whose gradient is a matrix product.

    A scatter adds in an order that differs between runs on a GPU, so a resumed run would not be
    identical. That costs 2 % of an iteration (benchmarks/network_kernels.py).
    """
    return table[rows]


def _look_up_forward(table: Array, rows: Array) -> tuple[Array, tuple[Array, Array]]:
    return table[rows], (rows, table)


def _look_up_backward(residuals: tuple[Array, Array], gradient: Array) -> tuple[Array, None]:
    rows, table = residuals
    chosen = jax.nn.one_hot(rows.reshape(-1), table.shape[0], dtype=gradient.dtype, axis=0)
    flat = chosen @ gradient.reshape(rows.size, -1)
    return flat.reshape(table.shape), None


look_up.defvjp(_look_up_forward, _look_up_backward)
