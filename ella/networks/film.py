"""The convolutional trunk: a stem that sees the image, and blocks an instruction modulates.

Everything is [T, B, ...]: time, rows.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Shaped, UInt8, UInt32

from ella.networks.convolution import (
    Convolution,
    ConvolutionMatrix,
    on_grid,
    pooled_patches,
    product_with_means,
    ready,
)
from ella.networks.linear import Linear
from ella.networks.normalisation import Moments, Normalisation, initial_moments
from ella.networks.settings import Kind, Variant
from ella.world.encoding import NUM_COLOURS, NUM_STATES, NUM_TYPES

INPUT_CHANNELS = {"paper": 3, "onehot": NUM_TYPES + NUM_COLOURS + NUM_STATES}
POOL = 2


def packed_cells(image: UInt8[Array, "*rows 7 7 3"], variant: Variant) -> Array:
    """Cells (type, colour, state) as what `channels_of` unpacks: the three numbers, or one number
    with a bit for each of the one-hot channels. Nothing, as beyond the image's edge, is 0."""
    if variant == "paper":
        return image
    bit = image.astype(jnp.uint32) + np.cumsum([0, NUM_TYPES, NUM_COLOURS], dtype=np.uint32)
    return jnp.sum(jnp.uint32(1) << bit, axis=-1, keepdims=True, dtype=jnp.uint32)


def channels_of(
    packed: Shaped[Array, "*rows n"], variant: Variant, dtype: str
) -> Float[Array, "*rows I"]:
    """The network's input channels of packed cells, those of one cell after those of another."""
    if variant == "paper":
        return packed.astype(dtype)
    # The cells are moved into place first, in a pass of their own: the channels are many.
    cells = jax.lax.optimization_barrier(packed)
    bits = cells[..., None] >> jnp.arange(INPUT_CHANNELS[variant], dtype=jnp.uint32) & 1
    return bits.reshape(*packed.shape[:-1], -1).astype(dtype)


def convolved_windows(
    packed: Shaped[Array, "*rows 7 7 n"], matrix: Float[Array, "K C"], variant: Variant
) -> Float[Array, "*rows G P C"]:
    """A 2x2 convolution of packed cells, padded by 1, outputs grouped by pooling window. As one
    matrix product 2.1 times as fast as XLA's convolution (benchmarks/network_kernels.py)."""
    patches = channels_of(pooled_patches(packed, 2, POOL), variant, str(matrix.dtype))
    return jnp.matmul(patches, matrix)


class Stem(eqx.Module):
    """Everything before the first modulation: independent of the instruction.

    7x7 cells, 2x2 convolution to 8x8, pool to 4x4, 3x3 convolution, pool to 2x2, and the first
    block's two convolutions, the second not yet modulated.
    """

    first: Convolution | ConvolutionMatrix
    first_norm: Normalisation
    second: Convolution | ConvolutionMatrix
    second_norm: Normalisation
    third: Convolution | ConvolutionMatrix
    third_norm: Normalisation
    fourth: Convolution | ConvolutionMatrix
    variant: Variant = eqx.field(static=True)

    def __init__(self, width: int, variant: Variant, normalisation: Kind, *, key: PRNGKeyArray):
        keys = jax.random.split(key, 4)
        self.first = Convolution(INPUT_CHANNELS[variant], width, 2, bias=False, key=keys[0])
        self.second = Convolution(
            width, width, 3, grid=2 * POOL, pool=POOL, bias=False, key=keys[1]
        )
        self.third = Convolution(width, width, 3, grid=2, bias=False, key=keys[2])
        self.fourth = Convolution(width, width, 3, grid=2, key=keys[3])
        self.first_norm = Normalisation(width, normalisation)
        self.second_norm = Normalisation(width, normalisation)
        self.third_norm = Normalisation(width, normalisation)
        self.variant = variant

    def initial_statistics(self) -> tuple[Moments, ...]:
        """Running statistics of the three normalisations."""
        return (initial_moments(self.first_norm.weight.shape[0]),) * 3

    def __call__(
        self,
        image: UInt8[Array, "T B 7 7 3"],
        running: tuple[Moments, ...] | None,
        dtype: str = "float32",
    ) -> tuple[Float[Array, "T B 4 C"], tuple[Moments, ...]]:
        """Features on the 2x2 grid, and the batch's moments. Given `running`, statistics are those
        instead of the batch's, and the leading axes may be any two."""
        first, second, third = running or (None, None, None)
        cells = packed_cells(image, self.variant)
        matrix = ready(self.first, dtype).matrix
        # Counting costs less than going over the product where that is wider than the patches; not
        # at a single step, as in acting.
        is_wide = matrix.shape[1] > matrix.shape[0] and len(image) > 1
        if self.variant == "onehot" and self.first_norm.uses_batch and is_wide and first is None:
            x, first_moments = self._first_counted(pooled_patches(cells, 2, POOL), matrix)
        else:
            x = convolved_windows(cells, matrix, self.variant)
            x, first_moments = self.first_norm.pooled(x, first)
        x = on_grid(self.second, x)
        x = x.reshape(*x.shape[:-2], POOL * POOL, POOL * POOL, x.shape[-1])
        # As the windows' products leave them, so that nothing is moved.
        x, second_moments = self.second_norm.pooled_windows(jnp.moveaxis(x, 2, 0), second)
        x, third_moments = self.third_norm(on_grid(self.third, x), third)
        return on_grid(self.fourth, x), (first_moments, second_moments, third_moments)

    def _first_counted(
        self, packed: UInt32[Array, "T B G P 4"], matrix: Float[Array, "K C"]
    ) -> tuple[Float[Array, "T B G C"], Moments]:
        """The first convolution, normalised and pooled, its moments counted."""
        norm = self.first_norm
        patches = channels_of(packed, self.variant, str(matrix.dtype))
        product, mean, square = product_with_means(patches, matrix)
        return norm.given(norm.chosen(product), mean, square, packed.shape[-2])


def modulations_of(
    layer: Linear, blocks: int, instruction: Float[Array, "*rows D"], dtype: str
) -> Float[Array, "*rows N 2 C"]:
    """(scale, shift) of every block."""
    flat = layer(instruction, dtype)
    return flat.reshape(*flat.shape[:-1], blocks, 2, -1)


class FiLMTail(eqx.Module):
    """From the first modulation to one feature vector.

    A block is convolution, normalisation, relu, convolution, modulation, normalisation, relu; the
    first block's convolutions are the stem's.
    """

    modulation: Linear
    """Instruction to scale and shift of every block."""
    norms: tuple[Normalisation, ...]
    """One per block, after its modulation."""
    inner: tuple[
        tuple[Convolution | ConvolutionMatrix, Normalisation, Convolution | ConvolutionMatrix], ...
    ]
    """The inside of every block after the first."""

    def __init__(
        self,
        instruction_width: int,
        width: int,
        normalisation: Kind,
        *,
        blocks: int = 2,
        key: PRNGKeyArray,
    ):
        keys = iter(jax.random.split(key, 2 * blocks))
        self.modulation = Linear(instruction_width, blocks * 2 * width, key=next(keys))
        self.norms = tuple(Normalisation(width, normalisation) for _ in range(blocks))
        self.inner = tuple(
            (
                Convolution(width, width, 3, grid=2, bias=False, key=next(keys)),
                Normalisation(width, normalisation),
                Convolution(width, width, 3, grid=2, key=next(keys)),
            )
            for _ in range(blocks - 1)
        )

    def initial_statistics(self) -> tuple[Moments, ...]:
        """Running statistics of the normalisations, in the order of computation."""
        return (initial_moments(self.norms[0].weight.shape[0]),) * (2 * len(self.norms) - 1)

    def modulations(
        self, instruction: Float[Array, "*rows D"], dtype: str = "float32"
    ) -> Float[Array, "*rows N 2 C"]:
        """Per block (scale, shift) of embedded instructions; compute them once per instruction."""
        return modulations_of(self.modulation, len(self.norms), instruction, dtype)

    def __call__(
        self,
        features: Float[Array, "#T #B 4 C"],
        modulations: Float[Array, "#T #B N 2 C"],
        running: tuple[Moments, ...] | None,
    ) -> tuple[Float[Array, "T B C"], tuple[Moments, ...]]:
        """Pooled features, and the batch's moments. Given `running`, the two leading axes of both
        arguments may be any that broadcast (frames by instructions)."""
        statistics = iter(running or (None,) * (2 * len(self.norms) - 1))
        found = []
        x = features
        for block, norm in enumerate(self.norms):
            if block > 0:
                convolution, inner_norm, modulated = self.inner[block - 1]
                x, moments = inner_norm(on_grid(convolution, x), next(statistics))
                found.append(moments)
                x = on_grid(modulated, x)
            scale, shift = (modulations[..., block, i, None, :].astype(x.dtype) for i in range(2))
            x = x * scale + shift
            if block == len(self.norms) - 1:
                x, moments = norm.pooled(x, next(statistics))
            else:
                x, moments = norm(x, next(statistics))
            found.append(moments)
        return x, tuple(found)
