"""The relevance classifier: does a low-level instruction support a high-level one?

Two networks. The paper's compares one vector per sentence. The other one compares a low-level
instruction with every window of words of the high-level one and takes the best match, so that what
it learns of a clause holds wherever the clause stands.
"""

from abc import abstractmethod
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32, PRNGKeyArray, PyTree

from ella.networks.language import InstructionEncoder
from ella.networks.settings import RelevanceNetworkSettings
from ella.world.grammar import VOCABULARY_SIZE

SMALLEST_DISTANCE = 1e-6
"""Keeps log(1 - p) finite where two instructions coincide."""
WINDOW_OFFSET = 2.0
"""Subtracted from the best match: of a dozen words that match nothing, the soft maximum is about
as large."""


class AbstractRelevanceClassifier(eqx.Module):
    """A network over two instructions, each of which is embedded on its own."""

    @abstractmethod
    def embed_high(self, tokens: Int32[Array, "R n"]) -> PyTree:
        """Embeddings of high-level instructions, arrays [R, ...]."""

    @abstractmethod
    def embed_low(self, tokens: Int32[Array, "L n"]) -> Float[Array, "L output"]:
        """Embeddings of low-level instructions."""

    @abstractmethod
    def compare(
        self, high: PyTree, low: Float[Array, " output"]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """(log p, log(1 - p)) of relevance for two embeddings."""


class RelevanceClassifier(AbstractRelevanceClassifier):
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
        linear = _unit_rows if settings.initialisation == "unit-rows" else eqx.nn.Linear
        self.high = linear(hidden, output, key=high_key)
        self.low = linear(hidden, output, key=low_key)
        self.joint = None
        if settings.comparison == "concat":
            self.joint = (
                linear(2 * output, output, key=joint_keys[0]),
                linear(output, 1, key=joint_keys[1]),
            )

    def embed_high(self, tokens: Int32[Array, "R n"]) -> Float[Array, "R output"]:
        return jax.vmap(self.high)(self.encoder(tokens))

    def embed_low(self, tokens: Int32[Array, "L n"]) -> Float[Array, "L output"]:
        return jax.vmap(self.low)(self.encoder(tokens))

    def compare(
        self, high: Float[Array, " output"], low: Float[Array, " output"]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        if self.joint is not None:
            hidden, output = self.joint
            logit = output(jax.nn.relu(hidden(jnp.concatenate([high, low]))))[0]
            return jax.nn.log_sigmoid(logit), jax.nn.log_sigmoid(-logit)
        distance = jnp.abs(high - low).sum()
        return -distance, jnp.log(-jnp.expm1(-jnp.maximum(distance, SMALLEST_DISTANCE)))


def _unit_rows(inputs: int, outputs: int, *, key: PRNGKeyArray) -> eqx.nn.Linear:
    """A linear map whose weights into each output start on the unit sphere, its biases at 0."""
    rows = jax.random.normal(key, (outputs, inputs))
    rows = rows / jnp.linalg.norm(rows, axis=1, keepdims=True)
    plain = eqx.nn.Linear(inputs, outputs, key=key)
    return eqx.tree_at(lambda map: (map.weight, map.bias), plain, (rows, jnp.zeros(outputs)))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class WordEmbeddings:
    """A sentence as one vector per word."""

    vectors: Float[Array, "*batch n output"]
    is_word: Bool[Array, "*batch n"]
    """False in the padding after the last word."""


class WindowRelevanceClassifier(AbstractRelevanceClassifier):
    """Every word of a sentence is embedded together with the words before it, up to a window.

    A low-level instruction is the embedding of its last word, by the same network, so that clauses
    that name the same object start alike. Its logit is the soft maximum over
    the high-level instruction's words of the dot product, minus `WINDOW_OFFSET`.
    """

    words: Float[Array, "V E"]
    hidden: eqx.nn.Linear
    output: eqx.nn.Linear
    window: int = eqx.field(static=True)

    def __init__(
        self,
        settings: RelevanceNetworkSettings,
        *,
        vocabulary: int = VOCABULARY_SIZE,
        key: PRNGKeyArray,
    ):
        word_key, hidden_key, output_key = jax.random.split(key, 3)
        hidden = settings.hidden_size
        self.window = settings.window
        self.words = jax.random.normal(word_key, (vocabulary, settings.word_size))
        self.hidden = eqx.nn.Linear(self.window * settings.word_size, hidden, key=hidden_key)
        self.output = eqx.nn.Linear(hidden, settings.output_size, key=output_key)

    def embed_high(self, tokens: Int32[Array, "R n"]) -> WordEmbeddings:
        return WordEmbeddings(self._windows(tokens), tokens > 0)

    def embed_low(self, tokens: Int32[Array, "L n"]) -> Float[Array, "L output"]:
        last = jnp.maximum((tokens > 0).sum(-1) - 1, 0)
        return jnp.take_along_axis(self._windows(tokens), last[:, None, None], axis=1)[:, 0]

    def compare(
        self, high: WordEmbeddings, low: Float[Array, " output"]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        matches = jnp.where(high.is_word, high.vectors @ low, -jnp.inf)
        logit = jax.nn.logsumexp(matches) - WINDOW_OFFSET
        return jax.nn.log_sigmoid(logit), jax.nn.log_sigmoid(-logit)

    def _windows(self, tokens: Int32[Array, "R n"]) -> Float[Array, "R n output"]:
        """The vector of every word; before a sentence's first word there are zeros."""
        # A product with a one-hot matrix, whose gradient is a product too and not a scatter.
        is_token = jax.nn.one_hot(tokens, self.words.shape[0], dtype=self.words.dtype)
        words = jnp.where(tokens[..., None] > 0, is_token @ self.words, 0.0)
        length = tokens.shape[1]
        before = jnp.pad(words, [(0, 0), (self.window - 1, 0), (0, 0)])
        shifted = [before[:, start : start + length] for start in range(self.window)]

        def embed(window: Float[Array, " inputs"]) -> Float[Array, " output"]:
            return self.output(jax.nn.relu(self.hidden(window)))

        return jax.vmap(jax.vmap(embed))(jnp.concatenate(shifted, axis=-1))


def relevance_classifier(
    settings: RelevanceNetworkSettings, *, vocabulary: int = VOCABULARY_SIZE, key: PRNGKeyArray
) -> AbstractRelevanceClassifier:
    """An untrained network of the settings' comparison."""
    if settings.comparison == "windows":
        return WindowRelevanceClassifier(settings, vocabulary=vocabulary, key=key)
    return RelevanceClassifier(settings, vocabulary=vocabulary, key=key)


def relevance_matrix(
    classifier: AbstractRelevanceClassifier, high: Int32[Array, "R n"], low: Int32[Array, "L m"]
) -> tuple[Float[Array, "R L"], Float[Array, "R L"]]:
    """(log p, log(1 - p)) of every pair; each instruction is embedded once."""
    high_embeddings = classifier.embed_high(high)
    low_embeddings = classifier.embed_low(low)
    across_low = jax.vmap(classifier.compare, in_axes=(None, 0))
    return jax.vmap(across_low, in_axes=(0, None))(high_embeddings, low_embeddings)
