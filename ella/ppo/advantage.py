"""Generalised advantage estimation."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ella.ppo.rollout import Rollout
from ella.ppo.settings import PPOSettings

SMALLEST_DEVIATION = 1e-8
"""Added to the deviation that advantages are divided by."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class AdvantageEstimate:
    """What the policy and the value are trained towards."""

    advantage: Float[Array, "T B"]
    returns: Float[Array, "T B"]


def estimate(
    reward: Float[Array, "T B"],
    value: Float[Array, "T B"],
    last_value: Float[Array, " B"],
    done: Bool[Array, "T B"],
    *,
    discount: float,
    gae_lambda: float,
) -> AdvantageEstimate:
    """Advantages of T steps. `value` is of the observation before each step, `last_value` of the
    one after the last; nothing flows back across a step that is `done`."""
    continues = 1.0 - done.astype(value.dtype)
    next_value = jnp.concatenate([value[1:], last_value[None]])
    delta = reward + discount * next_value * continues - value

    def earlier(later: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, continues = step
        advantage = delta + discount * gae_lambda * continues * later
        return advantage, advantage

    # Unrolled, the loop of additions becomes one kernel, 12 times as fast
    # (benchmarks/network_kernels.py).
    _, advantage = jax.lax.scan(
        earlier, jnp.zeros_like(last_value), (delta, continues), reverse=True, unroll=True
    )
    return AdvantageEstimate(advantage, advantage + value)


def estimate_rollout(
    config: PPOSettings, rollout: Rollout, reward: Float[Array, "T B"]
) -> AdvantageEstimate:
    """Advantages of a rollout under scaled and shaped rewards.

    Nothing flows back across an episode's end. A timeout that is not also a success is worth
    nothing more, as in the original, unless `bootstrap_truncation` adds the value of the last
    observation.
    """
    trajectory = rollout.trajectory
    if rollout.cut_value is not None:
        timed_out = trajectory.truncated & ~trajectory.terminated
        reward = reward + config.discount * jnp.where(timed_out, rollout.cut_value, 0.0)
    found = estimate(
        reward,
        rollout.value,
        rollout.last_value,
        trajectory.done,
        discount=config.discount,
        gae_lambda=config.gae_lambda,
    )
    return normalised(found) if config.normalise_advantages else found


def normalised(found: AdvantageEstimate) -> AdvantageEstimate:
    """The advantages with mean 0 and deviation 1; the returns as they were."""
    advantage = found.advantage - found.advantage.mean()
    return replace(found, advantage=advantage / (advantage.std() + SMALLEST_DEVIATION))
