"""The latest successes of one seed, and how often each low-level instruction fires at all."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32, UInt32

from ella.shaping.relevance_dataset import WORD, pack, unpack

KEPT_AT_UPDATE = 0.5
"""Weight that the episodes counted before an update keep after it."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RecentSuccesses:
    """A ring of C places; a new success takes the place of the oldest."""

    ids: Int32[Array, " C"]
    """High-level instructions."""
    completed: UInt32[Array, "C words"]
    """Low-level instructions, as bits."""
    next_place: Int32[Array, ""]
    count: Int32[Array, ""]
    """Places in use; they come first."""


def empty(capacity: int, num_low_level: int) -> RecentSuccesses:
    """A ring without successes."""
    return RecentSuccesses(
        ids=jnp.zeros(capacity, jnp.int32),
        completed=jnp.zeros((capacity, -(-num_low_level // WORD)), jnp.uint32),
        next_place=jnp.zeros((), jnp.int32),
        count=jnp.zeros((), jnp.int32),
    )


def record(
    ring: RecentSuccesses,
    ids: Int32[Array, "T B"],
    completed: Bool[Array, "T B L"],
    success: Bool[Array, "T B"],
) -> RecentSuccesses:
    """Add the successes of a rollout in the order of time, then of environments; of more than C
    the last C."""
    capacity, success = ring.ids.size, success.reshape(-1)
    rank = jnp.cumsum(success, dtype=jnp.int32) - 1
    total = rank[-1] + 1
    kept = success & (rank >= total - capacity)
    place = jnp.where(kept, (ring.next_place + rank) % capacity, capacity)
    bits = pack(completed.reshape(-1, completed.shape[-1]))
    return RecentSuccesses(
        ids=ring.ids.at[place].set(ids.reshape(-1), mode="drop"),
        completed=ring.completed.at[place].set(bits, mode="drop"),
        next_place=(ring.next_place + total) % capacity,
        count=jnp.minimum(ring.count + total, capacity),
    )


def completions(ring: RecentSuccesses, num_low_level: int) -> Bool[Array, "C L"]:
    """What each success completed."""
    return unpack(ring.completed, num_low_level)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class FiringRates:
    """How often episodes complete each low-level instruction, successes or not."""

    fired: Float[Array, " L"]
    """Episodes that completed it, earlier ones with less weight."""
    episodes: Float[Array, ""]
    rate: Float[Array, " L"]
    """As of the latest update; 0 before the first."""


def no_episodes(num_low_level: int) -> FiringRates:
    """Rates before the first episode."""
    nothing = jnp.zeros(num_low_level)
    return FiringRates(nothing, jnp.zeros(()), nothing)


def count_episodes(
    rates: FiringRates, completed: Bool[Array, "T B L"], done: Bool[Array, "T B"]
) -> FiringRates:
    """Count the episodes that ended; the rates stay until `updated`."""
    fired = (completed & done[..., None]).sum((0, 1), dtype=jnp.float32)
    return FiringRates(
        rates.fired + fired, rates.episodes + done.sum(dtype=jnp.float32), rates.rate
    )


def updated(rates: FiringRates) -> FiringRates:
    """The rates of the episodes counted so far."""
    # Without new episodes weights stop at half an episode: in the end they would be 0.
    kept = jnp.where(rates.episodes >= 1, KEPT_AT_UPDATE, 1.0)
    return FiringRates(
        fired=kept * rates.fired,
        episodes=kept * rates.episodes,
        rate=rates.fired / jnp.maximum(rates.episodes, KEPT_AT_UPDATE),
    )
