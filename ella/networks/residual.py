"""BabyAI 1.1's trunk: embedded cells, no pooling before the end, residual modulated blocks.

Each cell is the sum of an embedding of its type, its colour and its state. Two convolutions see
the grid, each block adds to its input what an instruction makes of it, and one maximum over all
cells comes at the end. Everything is [T, B, ...]: time, rows. `ResidualStem` and `ResidualTail`
stand in for `ella.networks.film.Stem` and `FiLMTail`.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, UInt8

from ella.networks.convolution import Convolution, ConvolutionMatrix, pooled_patches, ready
from ella.networks.film import INPUT_CHANNELS, channels_of, modulations_of, packed_cells
from ella.networks.linear import Linear
from ella.networks.normalisation import Moments, Normalisation, initial_moments
from ella.networks.settings import Kind

SIDE = 7


def on_cells(
    convolution: Convolution | ConvolutionMatrix, x: Float[Array, "*rows 49 I"]
) -> Float[Array, "*rows 49 C"]:
    """A 3x3 convolution of the view, padded by 1."""
    kernel = ready(convolution, str(x.dtype))
    weight = kernel.matrix.reshape(3, 3, x.shape[-1], -1)
    flat = x.reshape(-1, SIDE, SIDE, x.shape[-1])
    outputs = jax.lax.conv_general_dilated(
        flat, weight, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    if kernel.bias is not None:
        outputs = outputs + kernel.bias.astype(outputs.dtype)
    return outputs.reshape(*x.shape[:-1], -1)


class ResidualStem(eqx.Module):
    """Everything before the first modulation: embedded cells and two convolutions."""

    embedding: Float[Array, "I C"]
    """Of every type, colour and state."""
    first: Convolution | ConvolutionMatrix
    first_norm: Normalisation
    second: Convolution | ConvolutionMatrix
    second_norm: Normalisation

    def __init__(self, width: int, normalisation: Kind, *, key: PRNGKeyArray):
        keys = jax.random.split(key, 3)
        self.embedding = jax.random.normal(keys[0], (INPUT_CHANNELS["onehot"], width))
        self.first = Convolution(width, width, 3, bias=False, key=keys[1])
        self.second = Convolution(width, width, 3, bias=False, key=keys[2])
        self.first_norm = Normalisation(width, normalisation)
        self.second_norm = Normalisation(width, normalisation)

    def initial_statistics(self) -> tuple[Moments, ...]:
        """Running statistics of both normalisations."""
        return (initial_moments(self.embedding.shape[1]),) * 2

    def __call__(
        self,
        image: UInt8[Array, "T B 7 7 3"],
        running: tuple[Moments, ...] | None,
        dtype: str = "float32",
    ) -> tuple[Float[Array, "T B 49 C"], tuple[Moments, ...]]:
        """Features of every cell, and the batch's moments. Given `running`, statistics are those
        instead of the batch's."""
        first, second = running or (None, None)
        x, first_moments = self.first_norm(self._seen(image, dtype), first)
        x, second_moments = self.second_norm(on_cells(self.second, x), second)
        return x, (first_moments, second_moments)

    def _seen(self, image: UInt8[Array, "T B 7 7 3"], dtype: str) -> Float[Array, "T B 49 C"]:
        """The first convolution of the embedded cells. No nonlinearity lies between the two, so
        their product is applied to one-hot cells: less than a sixth of the arithmetic."""
        matrix = ready(self.first, dtype).matrix
        taps = matrix.reshape(9, self.embedding.shape[1], -1)
        kernel = jnp.einsum("ie,keo->kio", self.embedding.astype(dtype), taps)
        patches = channels_of(
            pooled_patches(packed_cells(image, "onehot"), 3, 1)[..., 0, :], "onehot", dtype
        )
        return jnp.matmul(patches, kernel.reshape(-1, kernel.shape[-1]))


class ResidualTail(eqx.Module):
    """From the first modulation to one feature vector.

    A block adds to its input: convolution, normalisation, relu, convolution, modulation,
    normalisation, relu.
    """

    modulation: Linear
    """Instruction to scale and shift of every block."""
    blocks: tuple[
        tuple[
            Convolution | ConvolutionMatrix,
            Normalisation,
            Convolution | ConvolutionMatrix,
            Normalisation,
        ],
        ...,
    ]

    def __init__(
        self,
        instruction_width: int,
        width: int,
        normalisation: Kind,
        *,
        blocks: int = 2,
        key: PRNGKeyArray,
    ):
        keys = iter(jax.random.split(key, 2 * blocks + 1))
        self.modulation = Linear(instruction_width, blocks * 2 * width, key=next(keys))
        self.blocks = tuple(
            (
                Convolution(width, width, 3, bias=False, key=next(keys)),
                Normalisation(width, normalisation),
                Convolution(width, width, 3, key=next(keys)),
                Normalisation(width, normalisation),
            )
            for _ in range(blocks)
        )

    def initial_statistics(self) -> tuple[Moments, ...]:
        """Running statistics of the normalisations, in the order of computation."""
        width = self.blocks[0][1].weight.shape[0]
        return (initial_moments(width),) * (2 * len(self.blocks))

    def modulations(
        self, instruction: Float[Array, "*rows D"], dtype: str = "float32"
    ) -> Float[Array, "*rows N 2 C"]:
        """Per block (scale, shift) of embedded instructions; compute them once per instruction."""
        return modulations_of(self.modulation, len(self.blocks), instruction, dtype)

    def __call__(
        self,
        features: Float[Array, "T B 49 C"],
        modulations: Float[Array, "T B N 2 C"],
        running: tuple[Moments, ...] | None,
    ) -> tuple[Float[Array, "T B C"], tuple[Moments, ...]]:
        """The maximum over all cells, and the batch's moments."""
        statistics = iter(running or (None,) * (2 * len(self.blocks)))
        found = []
        x = features
        for index, (first, first_norm, second, second_norm) in enumerate(self.blocks):
            inner, moments = first_norm(on_cells(first, x), next(statistics))
            found.append(moments)
            inner = on_cells(second, inner)
            scale, shift = (modulations[..., index, i, None, :].astype(x.dtype) for i in range(2))
            inner, moments = second_norm(inner * scale + shift, next(statistics))
            found.append(moments)
            x = x + inner
        return x.max(axis=-2), tuple(found)
