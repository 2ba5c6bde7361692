"""The instruction encoder: word embeddings and a GRU."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32, PRNGKeyArray

from ella.networks.linear import matmul, uniform
from ella.world.grammar import VOCABULARY_SIZE


class InstructionEncoder(eqx.Module):
    """A sentence of token ids to the GRU's output at its last word.

    One sentence per call; vmap for more. PyTorch's GRU has a second, redundant bias for the
    reset and update gates, which is left out.
    """

    embedding: Float[Array, "V E"]
    input_weight: Float[Array, "E 3*H"]
    """Gates in the order reset, update, new."""
    input_bias: Float[Array, "3*H"]
    hidden_weight: Float[Array, "H 3*H"]
    new_hidden_bias: Float[Array, "H"]
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

    def __call__(self, tokens: Int32[Array, "L"], dtype: str = "float32") -> Float[Array, "H"]:
        # There are few words, so project each once and look projections up; as a product with a
        # one-hot matrix, whose gradient is a product too and not a scatter.
        words = matmul(self.embedding, self.input_weight, dtype) + self.input_bias
        projected = jax.nn.one_hot(tokens, words.shape[0], dtype=words.dtype) @ words

        def read(hidden: Array, word: tuple[Array, Array]) -> tuple[Array, None]:
            inputs, is_word = word
            from_hidden = matmul(hidden, self.hidden_weight, dtype)
            in_reset, in_update, in_new = jnp.split(inputs, 3)
            hidden_reset, hidden_update, hidden_new = jnp.split(from_hidden, 3)
            reset = jax.nn.sigmoid(in_reset + hidden_reset)
            update = jax.nn.sigmoid(in_update + hidden_update)
            new = jnp.tanh(in_new + reset * (hidden_new + self.new_hidden_bias))
            return jnp.where(is_word, (1 - update) * new + update * hidden, hidden), None

        start = jnp.zeros(self.hidden_weight.shape[0], projected.dtype)
        hidden, _ = jax.lax.scan(read, start, (projected, tokens > 0))
        return hidden
