"""The termination classifier: does one observation show a low-level instruction carried out?

The same trunk as the policy's, without memory, and a head for 'not yet' and 'done'. At use it is
factorised: what does not depend on the instruction is computed once per observation, what does
not depend on the observation once per instruction, and only the rest for every pair.
"""

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32, PRNGKeyArray, UInt8

from ella.errors import InputError
from ella.networks.actor_critic import RunningStatistics
from ella.networks.film import INPUT_CHANNELS, FiLMTail, Stem, Variant, assembled
from ella.networks.language import InstructionEncoder
from ella.networks.linear import TanhHead

Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class TerminationNetworkSettings:
    """Sizes and variants of the termination classifier; the defaults are the paper's."""

    variant: Variant = "paper"
    """Cells as raw integers (paper) or one-hot (onehot)."""
    width: int = 128
    """Channels of the convolutions."""
    instruction_width: int = 128
    """Width of word embeddings and of the instruction encoder."""
    head_width: int = 64
    """Hidden width of the head."""
    blocks: int = 2
    """Modulated blocks."""

    def __post_init__(self) -> None:
        if self.variant not in INPUT_CHANNELS:
            raise InputError(f"variant must be paper or onehot, not '{self.variant}'")
        for name in ("width", "instruction_width", "head_width", "blocks"):
            if getattr(self, name) < 1:
                raise InputError(f"termination {name} must be at least 1")


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
        embedded = jax.vmap(lambda sentence: self.language(sentence, dtype))(tokens)
        return self.tail.modulations(embedded, dtype)

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


class TerminationTable(eqx.Module):
    """A trained classifier made ready for a fixed list of L instructions."""

    stem: Stem
    tail: FiLMTail
    head: TanhHead
    statistics: RunningStatistics
    modulations: Float[Array, "L N 2 C"]
    dtype: Precision = eqx.field(static=True)
    chunk: int = eqx.field(static=True)
    """Observations crossed with all instructions at once; bounds memory."""

    def __init__(
        self,
        classifier: TerminationClassifier,
        statistics: RunningStatistics,
        tokens: Int32[Array, "L n"],
        *,
        dtype: Precision = "float32",
        chunk: int = 256,
    ):
        self.stem = assembled(classifier.stem, dtype)
        self.tail = assembled(classifier.tail, dtype)
        self.head = classifier.head
        self.statistics = statistics
        self.modulations = classifier.instruct(tokens)
        self.dtype = dtype
        self.chunk = chunk

    def scores(self, image: UInt8[Array, "N 7 7 3"]) -> Float[Array, "N L 2"]:
        """Scores of every pair, all at once."""
        features, _ = self.stem(image[:, None], self.statistics.stem, self.dtype)
        crossed, _ = self.tail(features, self.modulations[None], self.statistics.tail)
        return self.head(crossed, self.dtype)

    def __call__(self, image: UInt8[Array, "N 7 7 3"]) -> Bool[Array, "N L"]:
        """Whether each observation shows each instruction carried out."""
        num = image.shape[0]
        if num <= self.chunk:
            return self._decide(image)
        padding = -num % self.chunk
        padded = jnp.pad(image, [(0, padding), (0, 0), (0, 0), (0, 0)])
        chunks = padded.reshape(-1, self.chunk, *image.shape[1:])
        return jax.lax.map(self._decide, chunks).reshape(num + padding, -1)[:num]

    def _decide(self, image: UInt8[Array, "n 7 7 3"]) -> Bool[Array, "n L"]:
        scores = self.scores(image)
        return scores[..., 1] > scores[..., 0]


@eqx.filter_jit
def prepare(
    classifier: TerminationClassifier,
    statistics: RunningStatistics,
    tokens: Int32[Array, "L n"],
    dtype: Precision = "float32",
    chunk: int = 256,
) -> TerminationTable:
    """A `TerminationTable`, made in one compiled call."""
    return TerminationTable(classifier, statistics, tokens, dtype=dtype, chunk=chunk)
