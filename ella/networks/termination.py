"""The termination classifier: does one observation show a low-level instruction carried out?

The same trunk as the policy's, without memory, and a head for 'not yet' and 'done'. At use it is
factorised: what does not depend on the instruction is computed once per observation, what does
not depend on the observation once per instruction, and only the rest for every pair.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32, PRNGKeyArray, Shaped, UInt8

from ella.networks.actor_critic import RunningStatistics
from ella.networks.convolution import assembled, ready
from ella.networks.film import FiLMTail, Stem
from ella.networks.language import InstructionEncoder
from ella.networks.linear import TanhHead, widened
from ella.networks.normalisation import Moments, Normalisation
from ella.networks.settings import Precision, TerminationNetworkSettings


class TerminationClassifier(eqx.Module):
    """Scores of 'not yet' and 'done' for pairs of an observation and an instruction."""

    language: InstructionEncoder
    stem: Stem
    tail: FiLMTail
    head: TanhHead

    def __init__(self, settings: TerminationNetworkSettings, *, key: PRNGKeyArray):
        keys = jax.random.split(key, 4)
        width, instruction = settings.width, settings.instruction_width
        self.language = InstructionEncoder(instruction, instruction, key=keys[0])
        self.stem = Stem(width, settings.variant, "minibatch", key=keys[1])
        self.tail = FiLMTail(instruction, width, "minibatch", blocks=settings.blocks, key=keys[2])
        self.head = TanhHead(width, settings.head_width, 2, key=keys[3])

    def initial_statistics(self) -> RunningStatistics:
        return RunningStatistics(self.stem.initial_statistics(), self.tail.initial_statistics())

    def instruct(
        self, tokens: Int32[Array, "L n"], dtype: Precision = "float32"
    ) -> Float[Array, "L N 2 C"]:
        """What each instruction does to each modulated block."""
        return self.tail.modulations(self.language(tokens, dtype), dtype)

    def __call__(
        self,
        image: UInt8[Array, "B 7 7 3"],
        modulations: Float[Array, "B N 2 C"],
        running: RunningStatistics | None,
    ) -> tuple[Float[Array, "B 2"], RunningStatistics]:
        """Scores of B pairs, and the moments of the batch. Normalisation uses `running` where
        given (at use), the batch's own statistics otherwise (in training)."""
        stem, tail = (running.stem, running.tail) if running else (None, None)
        features, stem_moments = self.stem(image[None], stem)
        features, tail_moments = self.tail(features, modulations[None], tail)
        scores = self.head(features[0], "float32")
        return scores, RunningStatistics(stem_moments, tail_moments)


class FoldedBlock(eqx.Module):
    """The inside of a modulated block, with everything that is fixed at use multiplied out."""

    first: Float[Array, "C4 C4"]
    """A convolution of the whole grid and the normalisation after it."""
    first_bias: Float[Array, " C4"]
    second: Float[Array, "C4 C4"]
    scale: Float[Array, "L 1 C"]
    """Of each instruction: modulation and normalisation."""
    shift: Float[Array, "L 1 C"]


class TerminationTable(eqx.Module):
    """A trained classifier made ready for a fixed list of L instructions: 1.16 times as fast as
    the classifier's own code after a shared stem (benchmarks/network_kernels.py)."""

    stem: Stem
    statistics: tuple[Moments, ...]
    """Of the stem."""
    scale: Float[Array, "L 1 C"]
    """Of each instruction: the first block's modulation and normalisation."""
    shift: Float[Array, "L 1 C"]
    blocks: tuple[FoldedBlock, ...]
    """Every block after the first."""
    head: TanhHead
    threshold: Float[Array, ""] | None
    """What the score of 'done' must exceed that of 'not yet' by; None for 0."""
    dtype: Precision = eqx.field(static=True)
    chunk: int = eqx.field(static=True)
    """Observations crossed with all instructions at once; bounds memory."""

    def __init__(
        self,
        classifier: TerminationClassifier,
        statistics: RunningStatistics,
        tokens: Int32[Array, "L n"],
        *,
        threshold: Float[Array, ""] | None = None,
        dtype: Precision = "float32",
        chunk: int = 256,
    ):
        tail = classifier.tail
        modulations = classifier.instruct(tokens)
        self.stem = assembled(classifier.stem, dtype)
        self.statistics = statistics.stem
        self.scale, self.shift = _folded(modulations[:, 0], tail.norms[0], statistics.tail[0])
        blocks = []
        for block, (convolution, inner_norm, modulated) in enumerate(tail.inner, start=1):
            inner_moments, moments = statistics.tail[2 * block - 1 : 2 * block + 1]
            inner_scale, inner_shift = inner_norm.running_affine(inner_moments)
            whole = ready(convolution, "float32").matrix
            cells = whole.shape[-1] // inner_scale.shape[0]
            second = ready(modulated, "float32")
            scale, shift = _folded(modulations[:, block], tail.norms[block], moments, second.bias)
            blocks.append(
                FoldedBlock(
                    first=(whole * jnp.tile(inner_scale, cells)).astype(dtype),
                    first_bias=jnp.tile(inner_shift, cells).astype(dtype),
                    second=second.matrix.astype(dtype),
                    scale=scale,
                    shift=shift,
                )
            )
        self.blocks = tuple(blocks)
        self.head = classifier.head
        self.threshold = threshold
        self.dtype = dtype
        self.chunk = chunk

    def scores(self, image: UInt8[Array, "N 7 7 3"]) -> Float[Array, "N L 2"]:
        """Scores of every pair, all at once."""
        features, _ = self.stem(image[:, None], self.statistics, self.dtype)
        modulated = widened(features) * self.scale + self.shift
        for block in self.blocks:
            x = jax.nn.relu(modulated).astype(self.dtype)
            x = x.reshape(*x.shape[:-2], -1)
            # In one dtype, so that shift and relu can be done by the product itself.
            x = jax.nn.relu(jnp.matmul(x, block.first) + block.first_bias)
            x = jnp.matmul(x, block.second).reshape(modulated.shape)
            modulated = widened(x) * block.scale + block.shift
        pooled = jax.nn.relu(modulated.max(axis=-2)).astype(self.dtype)
        return self.head(pooled, self.dtype)

    def __call__(self, image: UInt8[Array, "N 7 7 3"]) -> Bool[Array, "N L"]:
        """Whether each observation shows each instruction carried out."""
        return self._in_chunks(self.at_once, image)

    def margins(self, image: UInt8[Array, "N 7 7 3"]) -> Float[Array, "N L"]:
        """By how much the score of 'done' exceeds that of 'not yet'."""
        return self._in_chunks(self._margin, image)

    def _in_chunks(
        self, judge: Callable[[Array], Array], image: UInt8[Array, "N 7 7 3"]
    ) -> Shaped[Array, "N L"]:
        num = image.shape[0]
        if num <= self.chunk:
            return judge(image)
        padding = -num % self.chunk
        padded = jnp.pad(image, [(0, padding), (0, 0), (0, 0), (0, 0)])
        chunks = padded.reshape(-1, self.chunk, *image.shape[1:])
        return jax.lax.map(judge, chunks).reshape(num + padding, -1)[:num]

    def at_once(self, image: UInt8[Array, "n 7 7 3"]) -> Bool[Array, "n L"]:
        """The same, without chunks."""
        if self.threshold is not None:
            return self._margin(image) > self.threshold
        scores = self.scores(image)
        return scores[..., 1] > scores[..., 0]

    def _margin(self, image: UInt8[Array, "n 7 7 3"]) -> Float[Array, "n L"]:
        scores = widened(self.scores(image))
        return scores[..., 1] - scores[..., 0]


def _folded(
    modulation: Float[Array, "L 2 C"],
    norm: Normalisation,
    moments: Moments,
    bias: Float[Array, " C"] | None = None,
) -> tuple[Float[Array, "L 1 C"], Float[Array, "L 1 C"]]:
    """(scale, shift) of a modulation and the normalisation after it as one, applied to what
    still lacks the convolution's `bias`."""
    norm_scale, norm_shift = norm.running_affine(moments)
    scale = modulation[:, 0] * norm_scale
    shift = modulation[:, 1] * norm_scale + norm_shift
    if bias is not None:
        shift = shift + scale * bias
    return scale[:, None], shift[:, None]


@eqx.filter_jit
def prepare(
    classifier: TerminationClassifier,
    statistics: RunningStatistics,
    tokens: Int32[Array, "L n"],
    threshold: Float[Array, ""] | None = None,
    dtype: Precision = "float32",
    chunk: int = 256,
) -> TerminationTable:
    """A `TerminationTable`, made in one compiled call."""
    return TerminationTable(
        classifier, statistics, tokens, threshold=threshold, dtype=dtype, chunk=chunk
    )
