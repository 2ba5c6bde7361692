"""BabyAI 1.1's trunk."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ella.networks.actor_critic import ActorCritic
from ella.networks.settings import SMALL_NETWORK
from ella.world.encoding import NUM_COLOURS, NUM_TYPES

SETTINGS = dataclasses.replace(
    SMALL_NETWORK, trunk="residual", width=6, instruction_width=5, memory_width=4, blocks=2
)


def convolved(x: np.ndarray, convolution) -> np.ndarray:
    """A 3x3 convolution of [T, B, 7, 7, I], a cell at a time."""
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1), (0, 0)])
    weight = np.asarray(convolution.weight, np.float64)
    out = np.zeros((*x.shape[:-1], weight.shape[-1]))
    for i in range(7):
        for j in range(7):
            window = padded[:, :, i : i + 3, j : j + 3]
            out[:, :, i, j] = np.einsum("tbijc,ijco->tbo", window, weight)
    return out if convolution.bias is None else out + np.asarray(convolution.bias)


def normalised(x: np.ndarray, norm) -> np.ndarray:
    """relu after normalising with the statistics of each step's rows and cells."""
    mean, variance = x.mean((1, 2, 3), keepdims=True), x.var((1, 2, 3), keepdims=True)
    scaled = (x - mean) / np.sqrt(variance + 1e-5) * np.asarray(norm.weight)
    return np.maximum(scaled + np.asarray(norm.bias), 0)


def seen(network: ActorCritic, image: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    stem, tail = network.stem, network.tail
    offsets = [0, NUM_TYPES, NUM_TYPES + NUM_COLOURS]
    cells = np.asarray(stem.embedding, np.float64)[image.astype(int) + offsets].sum(-2)
    x = normalised(convolved(cells, stem.first), stem.first_norm)
    x = normalised(convolved(x, stem.second), stem.second_norm)
    read = np.asarray(network.language(jnp.asarray(tokens)), np.float64)
    modulation = read @ np.asarray(tail.modulation.weight) + np.asarray(tail.modulation.bias)
    modulation = modulation.reshape(len(tokens), len(tail.blocks), 2, -1)[:, :, :, None, None]
    for index, (first, first_norm, second, second_norm) in enumerate(tail.blocks):
        inner = convolved(normalised(convolved(x, first), first_norm), second)
        scale, shift = modulation[:, index, 0], modulation[:, index, 1]
        x = x + normalised(inner * scale + shift, second_norm)
    features = x.max((2, 3))
    return features @ np.asarray(network.memory.input_weight) + np.asarray(network.memory.bias)


@partial(jax.jit, static_argnums=0)
def network_of(settings, key: jax.Array) -> ActorCritic:
    network = ActorCritic(settings, key=key)
    # Biases and scales that are 0 and 1 at the start would hide what is left out.
    leaves, tree = jax.tree.flatten(network)
    keys = jax.random.split(key, len(leaves))
    return jax.tree.unflatten(
        tree,
        [
            leaf + 0.3 * jax.random.normal(k, leaf.shape)
            for leaf, k in zip(leaves, keys, strict=True)
        ],
    )


@pytest.mark.parametrize("blocks", [1, 2])
def test_sees_what_plain_numpy_sees(blocks: int) -> None:
    network = network_of(dataclasses.replace(SETTINGS, blocks=blocks), jax.random.key(0))
    rng = np.random.default_rng(0)
    image = rng.integers(0, [11, 6, 3], (2, 5, 7, 7, 3)).astype(np.uint8)
    tokens = rng.integers(1, 20, (5, 4)).astype(np.int32)

    @jax.jit
    def see(network: ActorCritic) -> jax.Array:
        modulations = network.instruct(jnp.asarray(tokens))
        return network.see(
            jnp.asarray(image), jnp.broadcast_to(modulations, (2, *modulations.shape))
        )[0]

    np.testing.assert_allclose(see(network), seen(network, image, tokens), rtol=1e-4, atol=1e-4)
