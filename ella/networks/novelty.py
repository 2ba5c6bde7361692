"""Networks whose disagreement is novelty: a fixed random target, and a predictor of it.

Their outputs are subtracted when they are nearly equal, so matrix products are never TF32, whatever
the default.
"""

from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ella.networks.linear import uniform
from ella.networks.orthogonal import OrthogonalLinear, StridedConvolution


class ConvolutionalEncoder(eqx.Module):
    """A 7x7 grid to a vector: convolutions, then dense layers with relus between."""

    convolutions: tuple[StridedConvolution, ...]
    dense: tuple[OrthogonalLinear, ...]

    def __init__(
        self,
        channels: tuple[int, ...],
        strides: tuple[int, ...],
        widths: tuple[int, ...],
        *,
        key: PRNGKeyArray,
    ):
        """`channels` and `strides` of the convolutions, `widths` of the dense layers' outputs."""
        keys = jax.random.split(key, len(channels) + len(widths))
        side = 7
        for stride in strides:
            side = -(-side // stride)
        self.convolutions = tuple(
            StridedConvolution(inputs, outputs, stride, key=layer_key)
            for (inputs, outputs), stride, layer_key in zip(
                pairwise((3, *channels)), strides, keys[: len(channels)], strict=True
            )
        )
        self.dense = tuple(
            OrthogonalLinear(inputs, outputs, key=layer_key)
            for (inputs, outputs), layer_key in zip(
                pairwise((side * side * channels[-1], *widths)), keys[len(channels) :], strict=True
            )
        )

    def __call__(self, x: Float[Array, "*rows 7 7 3"]) -> Float[Array, "*rows O"]:
        with jax.default_matmul_precision("highest"):
            for convolution in self.convolutions:
                x = jax.nn.elu(convolution(x))
            x = x.reshape(*x.shape[:-3], -1)
            for layer in self.dense[:-1]:
                x = jax.nn.relu(layer(x))
            return self.dense[-1](x)


class DenseLayers(eqx.Module):
    """Dense layers with relus between, initialised as PyTorch does."""

    weights: tuple[Float[Array, "I O"], ...]
    biases: tuple[Float[Array, " O"], ...]

    def __init__(self, widths: tuple[int, ...], *, key: PRNGKeyArray):
        keys = jax.random.split(key, 2 * (len(widths) - 1))
        pairs = list(pairwise(widths))
        self.weights = tuple(
            uniform((inputs, outputs), inputs, key=weight_key)
            for (inputs, outputs), weight_key in zip(pairs, keys[0::2], strict=True)
        )
        self.biases = tuple(
            uniform((outputs,), inputs, key=bias_key)
            for (inputs, outputs), bias_key in zip(pairs, keys[1::2], strict=True)
        )

    def __call__(self, x: Float[Array, "*rows I"]) -> Float[Array, "*rows O"]:
        with jax.default_matmul_precision("highest"):
            for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
                x = jax.nn.relu(jnp.matmul(x, weight) + bias)
            return jnp.matmul(x, self.weights[-1]) + self.biases[-1]
