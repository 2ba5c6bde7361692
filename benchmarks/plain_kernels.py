"""Plain versions of the hand-written kernels, for `network_kernels.py`.

About ten lines each that leave everything to JAX and the compiler, with the signature of what
they replace.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ella.networks import convolution, film, language, linear, recurrence, termination
from ella.networks.normalisation import Normalisation
from ella.networks.orthogonal import StridedConvolution
from ella.networks.settings import TerminationNetworkSettings, Variant
from ella.shaping.oracle import low_level_of
from ella.shaping.termination import AbstractTermination
from ella.world.state import GridObservation
from ella.world.tasks import TaskSpec

Patch = tuple[Any, str, Callable]
"""A module or class, the name of a function in it, and what replaces that."""


def gru(inputs: Array, present: Array, weight: Array, new_bias: Array, dtype: str) -> Array:
    def read(state: Array, word: tuple[Array, Array]) -> tuple[Array, None]:
        in_reset, in_update, in_new = jnp.split(word[0], 3, axis=-1)
        reset, update, new = jnp.split(linear.matmul(state, weight, dtype), 3, axis=-1)
        update = jax.nn.sigmoid(in_update + update)
        new = jnp.tanh(in_new + jax.nn.sigmoid(in_reset + reset) * (new + new_bias))
        return jnp.where(word[1][..., None], (1 - update) * new + update * state, state), None

    start = jnp.zeros((*inputs.shape[1:-1], weight.shape[0]))
    return jax.lax.scan(read, start, (inputs, present))[0]


def lstm(
    inputs: Array, first: Array, hidden: Array, cell: Array, weight: Array, dtype: str, unroll: int
) -> Array:
    def step(memory: tuple[Array, ...], now: tuple[Array, Array]) -> tuple[tuple, Array]:
        hidden, cell = (jnp.where(now[1][..., None], 0, part) for part in memory)
        memory = recurrence.lstm_step(now[0] + linear.matmul(hidden, weight, dtype), cell)
        return memory, memory[0]

    return jax.lax.scan(step, (hidden, cell), (inputs, first), unroll=unroll)[1]


def encoder(self: language.InstructionEncoder, tokens: Array, dtype: str = "float32") -> Array:
    words = self.embedding[jnp.moveaxis(tokens, -1, 0)]
    projected = linear.matmul(words, self.input_weight, dtype) + self.input_bias
    present = jnp.moveaxis(tokens, -1, 0) > 0
    return language.read_words(projected, present, self.hidden_weight, self.new_hidden_bias, dtype)


def grid_matrix(weight: Array, grid: int, pool: int, dtype: str) -> Array:
    taps = weight.reshape(convolution.NO_TAP, *weight.shape[2:]).astype(dtype)
    taps = jnp.concatenate([taps, jnp.zeros_like(taps[:1])])
    blocks = taps[convolution._tap_table(grid, pool)]
    return jnp.moveaxis(blocks, 1, 2).reshape(grid**2 * taps.shape[1], -1)


def xla_convolution(x: Array, weight: Array, stride: int = 1) -> Array:
    """XLA's convolution padded by 1, of images with any leading axes."""
    images = x.reshape(-1, *x.shape[-3:])
    layout = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_general_dilated(
        images, weight.astype(x.dtype), (stride, stride), ((1, 1), (1, 1)), dimension_numbers=layout
    )
    return y.reshape(*x.shape[:-3], *y.shape[1:])


def by_window(y: Array, pool: int) -> Array:
    """Images [..., H, W, C] as [..., windows, pool * pool, C]."""
    *lead, height, width, channels = y.shape
    y = y.reshape(*lead, height // pool, pool, width // pool, pool, channels)
    return jnp.moveaxis(y, -4, -3).reshape(*lead, -1, pool * pool, channels)


def by_convolution(layer: convolution.Convolution, x: Array) -> Array:
    return by_window(xla_convolution(x, layer.weight), layer.pool)


def by_patches(layer: convolution.Convolution, x: Array) -> Array:
    weight = layer.weight.reshape(-1, layer.weight.shape[-1]).astype(x.dtype)
    return jnp.matmul(convolution.pooled_patches(x, 3, layer.pool), weight)


def instead_of_grid_matrices(
    grid: int, convolve: Callable[[convolution.Convolution, Array], Array]
) -> tuple[Patch, ...]:
    """`convolve` for the convolutions of grids of this size; the others stay as they are."""
    ours, assemble = convolution.on_grid, convolution.Convolution.assemble

    def on_grid(layer: convolution.Convolution | convolution.ConvolutionMatrix, x: Array) -> Array:
        if not isinstance(layer, convolution.Convolution) or layer.grid != grid:
            return ours(layer, x)
        y = convolve(layer, x.reshape(*x.shape[:-2], grid, grid, -1)).reshape(*x.shape[:-1], -1)
        return y if layer.bias is None else y + layer.bias.astype(y.dtype)

    def unassembled(self: convolution.Convolution, dtype: str) -> PyTree:
        return self if self.grid == grid else assemble(self, dtype)

    return (
        (convolution, "on_grid", on_grid),
        (film, "on_grid", on_grid),
        (convolution.Convolution, "assemble", unassembled),
    )


def pooled(self: Normalisation, x: Array, running: PyTree) -> tuple[Array, PyTree]:
    y, found = self(x, running)
    return y.max(axis=-2), found


def convolved_windows(packed: Array, matrix: Array, variant: Variant) -> Array:
    kernel = matrix.reshape(2, 2, -1, matrix.shape[-1])
    image = film.channels_of(packed, variant, str(matrix.dtype))
    return by_window(xla_convolution(image, kernel), film.POOL)


def signed_maximum(x: Array, signs: Array) -> Array:
    return (x * signs).max(axis=-2) * signs


def scaled_relu(x: Array, scale: Array, shift: Array) -> Array:
    return jax.nn.relu(linear.widened(x) * scale + shift).astype(x.dtype)


def two_passes(x: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    return x.mean(axes, keepdims=True), x.var(axes, keepdims=True)


def strided_convolution(self: StridedConvolution, x: Array) -> Array:
    weight = self.linear.weight.reshape(3, 3, x.shape[-1], -1)
    return xla_convolution(x, weight, self.stride) + self.linear.bias


def rolled(function: Callable) -> Callable:
    """`function`, with every `unroll` of its scans left out."""
    scan = jax.lax.scan

    def call(*arguments: Any, **named: Any) -> Any:
        jax.lax.scan = lambda *a, unroll=1, **k: scan(*a, **k)
        try:
            return function(*arguments, **named)
        finally:
            jax.lax.scan = scan

    return call


def unrolled_once(*arguments: Any, ours: Callable = recurrence.remember_sequence) -> Array:
    return ours(*arguments[:-1], 1)


class Termination(AbstractTermination):
    """An untrained termination classifier, prepared for use and as training left it."""

    table: termination.TerminationTable
    classifier: termination.TerminationClassifier
    running: PyTree
    modulations: Array

    def __init__(
        self, task: TaskSpec, views: Array, width: int, dtype: termination.Precision, chunk: int
    ):
        low = low_level_of(task).language
        tokens = low.tokens(jnp.arange(low.num_ids))
        settings = TerminationNetworkSettings(width=width, instruction_width=width)
        self.classifier = termination.TerminationClassifier(settings, key=jax.random.key(0))
        self.modulations = self.classifier.instruct(tokens)
        rows = self.modulations[jnp.arange(views.shape[0]) % low.num_ids]
        # With the statistics of real views both decisions occur.
        _, moments = self.classifier(views, rows, None)
        self.running = self.classifier.initial_statistics().updated(moments, 1.0)
        self.table = termination.TerminationTable(
            self.classifier, self.running, tokens, dtype=dtype, chunk=chunk
        )

    def __call__(self, observation: GridObservation) -> Array:
        return self.table(observation.image)

    def unfolded(self, observation: GridObservation) -> Array:
        """The trunk's own code, views crossed with instructions after the stem."""
        image, dtype = observation.image, self.table.dtype
        network = convolution.assembled(self.classifier, dtype)

        def decide(image: Array) -> Array:
            features, _ = network.stem(image[:, None], self.running.stem, dtype)
            features, _ = network.tail(features, self.modulations[None], self.running.tail)
            scores = network.head(features, dtype)
            return scores[..., 1] > scores[..., 0]

        chunks = image.reshape(-1, self.table.chunk, *image.shape[1:])
        return jax.lax.map(decide, chunks).reshape(image.shape[0], -1)
