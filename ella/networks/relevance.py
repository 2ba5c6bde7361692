"""The relevance classifier: does a low-level instruction support a high-level one?"""

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32, PRNGKeyArray

from ella.errors import InputError
from ella.networks.language import InstructionEncoder
from ella.world.grammar import VOCABULARY_SIZE

SMALLEST_DISTANCE = 1e-6
"""Keeps log(1 - p) finite where two instructions coincide."""


@dataclass(frozen=True)
class RelevanceNetworkSettings:
    """The shape of the relevance classifier."""

    comparison: Literal["l1", "concat"] = "l1"
    """l1: p = exp(-|high - low|_1), the released scripts' choice; concat: two layers over both."""
    hidden_size: int = 128
    """Of word embeddings and of the encoder both sentences share."""
    output_size: int = 64
    """Of the two linear maps, one for high-level and one for low-level instructions."""

    def __post_init__(self) -> None:
        if self.comparison not in ("l1", "concat"):
            raise InputError(f"comparison must be l1 or concat, not '{self.comparison}'")
        if self.hidden_size < 1 or self.output_size < 1:
            raise InputError("relevance hidden_size and output_size must be positive")


class RelevanceClassifier(eqx.Module):
    """A Siamese network over two instructions."""

    encoder: InstructionEncoder
    high: eqx.nn.Linear
    low: eqx.nn.Linear
    joint: tuple[eqx.nn.Linear, eqx.nn.Linear] | None
    """Two layers over both embeddings, for the comparison by concatenation."""

    def __init__(
        self,
        settings: RelevanceNetworkSettings,
        *,
        vocabulary: int = VOCABULARY_SIZE,
        key: PRNGKeyArray,
    ):
        encoder_key, high_key, low_key, *joint_keys = jax.random.split(key, 5)
        hidden, output = settings.hidden_size, settings.output_size
        self.encoder = InstructionEncoder(hidden, hidden, vocabulary=vocabulary, key=encoder_key)
        self.high = eqx.nn.Linear(hidden, output, key=high_key)
        self.low = eqx.nn.Linear(hidden, output, key=low_key)
        self.joint = None
        if settings.comparison == "concat":
            self.joint = (
                eqx.nn.Linear(2 * output, output, key=joint_keys[0]),
                eqx.nn.Linear(output, 1, key=joint_keys[1]),
            )

    def embed_high(self, tokens: Int32[Array, "R n"]) -> Float[Array, "R output"]:
        return jax.vmap(self.high)(self.encoder(tokens))

    def embed_low(self, tokens: Int32[Array, "L n"]) -> Float[Array, "L output"]:
        return jax.vmap(self.low)(self.encoder(tokens))

    def compare(
        self, high: Float[Array, " output"], low: Float[Array, " output"]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """(log p, log(1 - p)) of relevance for two embeddings."""
        if self.joint is not None:
            hidden, output = self.joint
            logit = output(jax.nn.relu(hidden(jnp.concatenate([high, low]))))[0]
            return jax.nn.log_sigmoid(logit), jax.nn.log_sigmoid(-logit)
        distance = jnp.abs(high - low).sum()
        return -distance, jnp.log(-jnp.expm1(-jnp.maximum(distance, SMALLEST_DISTANCE)))


def relevance_matrix(
    classifier: RelevanceClassifier, high: Int32[Array, "R n"], low: Int32[Array, "L m"]
) -> tuple[Float[Array, "R L"], Float[Array, "R L"]]:
    """(log p, log(1 - p)) of every pair; each instruction is embedded once."""
    high_embeddings = classifier.embed_high(high)
    low_embeddings = classifier.embed_low(low)
    across_low = jax.vmap(classifier.compare, in_axes=(None, 0))
    return jax.vmap(across_low, in_axes=(0, None))(high_embeddings, low_embeddings)
