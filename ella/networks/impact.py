"""RIDE's networks: an embedding of views, and the dynamics models that shape it."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32, PRNGKeyArray, UInt8

from ella.networks.orthogonal import StridedConvolution, TwoLayers
from ella.world.encoding import NUM_ACTIONS

CHANNELS = (32, 32, 128)
EMBEDDING_WIDTH = CHANNELS[-1]
"""Three strides halve 7x7 to one position."""
HIDDEN_WIDTH = 256
LARGEST_BYTE = 255.0


class StateEmbedding(eqx.Module):
    """A view to a vector."""

    layers: tuple[StridedConvolution, ...]
    input_scale: float = eqx.field(static=True)
    """The numbers of a view, at most 10, are divided by it."""

    def __init__(self, input_scale: float = LARGEST_BYTE, *, key: PRNGKeyArray):
        self.input_scale = input_scale
        keys = jax.random.split(key, len(CHANNELS))
        inputs = (3, *CHANNELS[:-1])
        self.layers = tuple(
            StridedConvolution(channels, outputs, 2, key=layer_key)
            for channels, outputs, layer_key in zip(inputs, CHANNELS, keys, strict=True)
        )

    def __call__(self, image: UInt8[Array, "*rows 7 7 3"]) -> Float[Array, "*rows E"]:
        x = image.astype(jnp.float32) / self.input_scale
        for layer in self.layers:
            x = jax.nn.elu(layer(x))
        return x.reshape(*x.shape[:-3], EMBEDDING_WIDTH)


class ImpactNetworks(eqx.Module):
    """The embedding and the two models that are trained with it."""

    embedding: StateEmbedding
    forward: TwoLayers
    """From an embedding and an action to the next embedding."""
    inverse: TwoLayers
    """From two embeddings to scores of the action between them."""

    def predict(
        self, embedded: Float[Array, "*rows E"], action: Int32[Array, "*rows"]
    ) -> Float[Array, "*rows E"]:
        """What the embedding will be after an action."""
        chosen = jax.nn.one_hot(action, NUM_ACTIONS, dtype=embedded.dtype)
        return self.forward(jnp.concatenate([embedded, chosen], axis=-1))

    def recognise(
        self, embedded: Float[Array, "*rows E"], after: Float[Array, "*rows E"]
    ) -> Float[Array, "*rows A"]:
        """Scores of the action that led from one embedding to the other."""
        return self.inverse(jnp.concatenate([embedded, after], axis=-1))


def impact_networks(input_scale: float = LARGEST_BYTE, *, key: PRNGKeyArray) -> ImpactNetworks:
    """Untrained networks."""
    keys = jax.random.split(key, 3)
    return ImpactNetworks(
        embedding=StateEmbedding(input_scale, key=keys[0]),
        forward=TwoLayers(
            EMBEDDING_WIDTH + NUM_ACTIONS, HIDDEN_WIDTH, EMBEDDING_WIDTH, key=keys[1]
        ),
        inverse=TwoLayers(2 * EMBEDDING_WIDTH, HIDDEN_WIDTH, NUM_ACTIONS, key=keys[2]),
    )
