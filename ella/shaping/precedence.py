"""The order of low-level instructions: which of them successes complete before which.

One instruction precedes another where nearly every success that completed the second had completed
the first at an earlier step. It is learned over all high-level instructions together, so it knows
what must come first ("pick up the key" before "open the door"), not what a sentence demands
("..., then ...").
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jax.tree_util import register_dataclass
from jaxtyping import Array, Bool, Float, Int32

SHARE = 0.9
"""Of the successes that completed an instruction: so many must have completed another one before
for that to precede it."""
FEWEST = 20
"""Successes that must have completed an instruction before anything precedes it."""
SUCCESSES_AT_ONCE = 512
"""The most successes of a rollout that are learned from."""


@register_dataclass
@dataclass(frozen=True)
class Precedence:
    """Counts over the successes of one seed."""

    before: Float[Array, "L L"]
    """[a, b]: successes that completed b and, at an earlier step, a."""
    completed: Float[Array, " L"]
    """Successes that completed each."""


def nothing_known(num_low_level: int) -> Precedence:
    """Before the first success."""
    shape = (num_low_level, num_low_level)
    return Precedence(jnp.zeros(shape), jnp.zeros(num_low_level))


def predecessors(known: Precedence) -> Bool[Array, "L L"]:
    """[a, b]: whether a precedes b."""
    often = known.before >= SHARE * jnp.maximum(known.completed, 1.0)
    return often & (known.completed >= FEWEST)


def first_steps(
    earlier: Int32[Array, "B L"],
    completed: Bool[Array, "B L"],
    terminates: Bool[Array, "B L"],
    step: Int32[Array, ""],
) -> Int32[Array, "B L"]:
    """The step of each first completion, after a step that completes `terminates`; undefined where
    nothing has been `completed` before nor is now."""
    return jnp.where(terminates & ~completed, step, earlier)


def must_wait(
    precedes: Bool[Array, "L L"], completed: Bool[Array, "B L"], relevant: Bool[Array, "B L"]
) -> Bool[Array, "B L"]:
    """Which instructions have a relevant predecessor that the episode has not completed."""
    missing = (relevant & ~completed).astype(jnp.float32)
    return missing @ precedes.astype(jnp.float32) > 0


def observe(
    known: Precedence,
    completed: Bool[Array, "T B L"],
    completed_at: Int32[Array, "T B L"],
    success: Bool[Array, "T B"],
) -> Precedence:
    """Learn from the successes of a rollout, given what each step's episode has completed so far
    and when."""
    num, num_low_level = success.size, completed.shape[-1]
    places = jnp.nonzero(success.reshape(-1), size=min(SUCCESSES_AT_ONCE, num), fill_value=num)[0]
    is_success = places < num
    rows = jnp.minimum(places, num - 1)
    has = completed.reshape(num, num_low_level)[rows] & is_success[:, None]
    at = completed_at.reshape(num, num_low_level)[rows]
    both = has[:, :, None] & has[:, None, :]
    earlier = both & (at[:, :, None] < at[:, None, :])
    return Precedence(
        before=known.before + earlier.sum(0, dtype=jnp.float32),
        completed=known.completed + has.sum(0, dtype=jnp.float32),
    )
