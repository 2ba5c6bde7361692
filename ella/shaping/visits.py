"""How often each environment's running episode has come to a state."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32, UInt32

from ella.trajectory import Trajectory
from ella.world.fingerprint import view_fingerprint


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Visits:
    """The states that running episodes have come to; survives rollouts."""

    fingerprints: UInt32[Array, "B H"]
    """In order; only the last H of an episode are remembered."""
    count: Int32[Array, " B"]
    """How many there have been."""


def no_visits(num_envs: int, horizon: int) -> Visits:
    """Before the first step; `horizon` is the length of the longest episode."""
    return Visits(jnp.zeros((num_envs, horizon), jnp.uint32), jnp.zeros(num_envs, jnp.int32))


def count_visits(visits: Visits, trajectory: Trajectory) -> tuple[Visits, Int32[Array, "T B"]]:
    """How often the episode has come, each step's action included, to the state after the action.

    An episode's first state is not counted before it is come back to. Where a trajectory has no
    fingerprints of states, those of views take their place.
    """
    prints = trajectory.fingerprint
    if prints is None:
        prints = view_fingerprint(trajectory.next_image)
    T, B = prints.shape
    horizon = visits.fingerprints.shape[1]
    episode = jnp.cumsum(trajectory.first, axis=0, dtype=jnp.int32)
    is_carried = episode == 0

    same = (prints[:, None] == prints[None]) & (episode[:, None] == episode[None])
    until_now = jnp.tril(jnp.ones((T, T), bool))[:, :, None]
    counted = (same & until_now).sum(1, dtype=jnp.int32)
    is_remembered = jnp.arange(horizon) < visits.count[:, None]
    before = (visits.fingerprints == prints[:, :, None]) & is_remembered
    counted += jnp.where(is_carried, before.sum(-1, dtype=jnp.int32), 0)

    is_last = episode == episode[-1]
    carried_on = jnp.where(is_carried[-1], visits.count, 0)
    rank = jnp.cumsum(is_last, axis=0, dtype=jnp.int32) - 1
    slot = jnp.where(is_last, (carried_on + rank) % horizon, horizon)
    columns = jnp.broadcast_to(jnp.arange(B), (T, B))
    kept = visits.fingerprints.at[columns, slot].set(prints, mode="drop")
    count = carried_on + is_last.sum(0, dtype=jnp.int32)
    # What earlier episodes left behind is cleared, so that equal histories have equal states.
    kept = jnp.where(jnp.arange(horizon) < count[:, None], kept, 0)
    return Visits(kept, count), counted
