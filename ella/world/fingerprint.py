"""Short hashes of states and views, for counting visits."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, UInt8, UInt32

from ella.world.state import State


def state_fingerprint(state: State) -> UInt32[Array, ""]:
    """A hash of all that an agent can change in its world: grid, place, direction and hand.

    One environment. Two different states share a hash once in some 2^32 pairs.
    """
    agent = jnp.stack([*state.agent_pos, state.agent_dir, state.carrying.astype(jnp.int32)])
    return _hash(jnp.concatenate([state.cells.reshape(-1), agent.astype(jnp.uint8)]))


def view_fingerprint(image: UInt8[Array, "*rows 7 7 3"]) -> UInt32[Array, "*rows"]:
    """A hash of what is seen, for worlds that do not tell their whole state."""
    return _hash(image.reshape(*image.shape[:-3], -1))


def _hash(values: UInt8[Array, "*rows n"]) -> UInt32[Array, "*rows"]:
    """A sum modulo 2^32 with fixed random odd weights."""
    drawn = np.random.default_rng(0).integers(2**32, size=values.shape[-1], dtype=np.uint32)
    weighted = values.astype(jnp.uint32) * jnp.asarray(drawn | np.uint32(1))
    return weighted.sum(-1, dtype=jnp.uint32)
