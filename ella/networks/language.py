"""The instruction encoder: word embeddings and a GRU."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32, PRNGKeyArray

from ella.networks.linear import look_up, matmul, uniform
from ella.networks.recurrence import read_words
from ella.world.grammar import TOKEN_IDS, VOCABULARY_SIZE

_AFTER = TOKEN_IDS["after"]
_CONNECTIVES = tuple(TOKEN_IDS[word] for word in ("and", "then", "after"))
_NOT_OF_A_CLAUSE = (*_CONNECTIVES, TOKEN_IDS["you"])


def clauses_of(tokens: Int32[Array, "R L"]) -> Int32[Array, "R 2 L"]:
    """A sentence's two clauses in the order in which they are to be carried out, 'B after you A' as
    A and B; each in its place in the sentence, the rest being padding. A sentence of one clause is
    both."""
    begun = jnp.cumsum(jnp.isin(tokens, jnp.asarray(_CONNECTIVES)), axis=-1) > 0
    words = jnp.where(jnp.isin(tokens, jnp.asarray(_NOT_OF_A_CLAUSE)), 0, tokens)
    is_single = ~begun[..., -1:]
    second = jnp.where(begun | is_single, words, 0)
    parts = jnp.stack([jnp.where(begun, 0, words), second], axis=-2)
    swapped = (tokens == _AFTER).any(axis=-1)
    return jnp.where(swapped[:, None, None], parts[:, ::-1], parts)


class InstructionEncoder(eqx.Module):
    """Sentences of token ids to the GRU's output at their last words.

    PyTorch's GRU has a second, redundant bias for the reset and update gates, which is left out.
    """

    embedding: Float[Array, "V E"]
    input_weight: Float[Array, "E H3"]
    """Gates in the order reset, update, new."""
    input_bias: Float[Array, " H3"]
    hidden_weight: Float[Array, "H H3"]
    new_hidden_bias: Float[Array, " H"]
    """Inside the reset gate's product, so not redundant."""

    def __init__(
        self,
        embedding_width: int,
        width: int,
        *,
        vocabulary: int = VOCABULARY_SIZE,
        key: PRNGKeyArray,
    ):
        keys = jax.random.split(key, 6)
        self.embedding = jax.random.normal(keys[0], (vocabulary, embedding_width))
        self.input_weight = uniform((embedding_width, 3 * width), width, key=keys[1])
        self.hidden_weight = uniform((width, 3 * width), width, key=keys[2])
        # The sum of PyTorch's two biases, where it has two that act as one.
        second = uniform((2 * width,), width, key=keys[4])
        self.input_bias = uniform((3 * width,), width, key=keys[3]).at[: 2 * width].add(second)
        self.new_hidden_bias = uniform((width,), width, key=keys[5])

    def __call__(
        self, tokens: Int32[Array, "*rows T"], dtype: str = "float32"
    ) -> Float[Array, "*rows H"]:
        # There are few words, so project each once and look projections up: 1.21 times as fast as
        # embedding, then projecting (benchmarks/network_kernels.py).
        words = matmul(self.embedding, self.input_weight, dtype) + self.input_bias
        tokens = jnp.moveaxis(tokens, -1, 0)
        projected = look_up(words, tokens, dtype)
        return read_words(projected, tokens > 0, self.hidden_weight, self.new_hidden_bias, dtype)
