"""Layers with orthogonal initial weights and zero biases, as exploration methods use them."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

RELU_GAIN = 2**0.5


def orthogonal(inputs: int, outputs: int, gain: float, *, key: PRNGKeyArray) -> Float[Array, "I O"]:
    """A random matrix with orthogonal rows or columns."""

    # One seed at a time under vmap: batched QR decompositions on a CPU wait for threads
    # of a pool that they fill themselves, and with few cores never end.
    @jax.custom_batching.sequential_vmap
    def draw(key: PRNGKeyArray) -> Array:
        return jax.nn.initializers.orthogonal(gain)(key, (inputs, outputs))

    return draw(key)


class OrthogonalLinear(eqx.Module):
    """A dense layer."""

    weight: Float[Array, "I O"]
    bias: Float[Array, " O"]

    def __init__(self, inputs: int, outputs: int, gain: float = RELU_GAIN, *, key: PRNGKeyArray):
        self.weight = orthogonal(inputs, outputs, gain, key=key)
        self.bias = jnp.zeros(outputs)

    def __call__(self, x: Float[Array, "*rows I"]) -> Float[Array, "*rows O"]:
        return x @ self.weight + self.bias


class TwoLayers(eqx.Module):
    """Two dense layers with a relu between."""

    hidden: OrthogonalLinear
    output: OrthogonalLinear

    def __init__(self, inputs: int, hidden: int, outputs: int, *, key: PRNGKeyArray):
        hidden_key, output_key = jax.random.split(key)
        self.hidden = OrthogonalLinear(inputs, hidden, key=hidden_key)
        self.output = OrthogonalLinear(hidden, outputs, 1.0, key=output_key)

    def __call__(self, x: Float[Array, "*rows I"]) -> Float[Array, "*rows O"]:
        return self.output(jax.nn.relu(self.hidden(x)))


class StridedConvolution(eqx.Module):
    """A 3x3 convolution padded by 1.

    A matrix product over patches: seeds have their own weights, and a convolution vmapped over
    weights is slow (1.78 times as fast, benchmarks/network_kernels.py).
    """

    linear: OrthogonalLinear
    """From 9 * I inputs, taps row by row."""
    stride: int = eqx.field(static=True)

    def __init__(self, inputs: int, outputs: int, stride: int, *, key: PRNGKeyArray):
        self.linear = OrthogonalLinear(9 * inputs, outputs, key=key)
        self.stride = stride

    def __call__(self, x: Float[Array, "*rows H W I"]) -> Float[Array, "*rows h w O"]:
        height, width = x.shape[-3:-1]
        padded = jnp.pad(x, [(0, 0)] * (x.ndim - 3) + [(1, 1), (1, 1), (0, 0)])
        taps = [
            padded[..., i : i + height : self.stride, j : j + width : self.stride, :]
            for i in range(3)
            for j in range(3)
        ]
        return self.linear(jnp.concatenate(taps, axis=-1))
