"""PPO's loss on sequences, with a clipped ratio and a clipped value."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32, UInt8

from ella.networks.actor_critic import ActorCritic, Memory, RunningStatistics
from ella.networks.convolution import assembled
from ella.networks.linear import look_up
from ella.ppo.advantage import AdvantageEstimate
from ella.ppo.rollout import Rollout, gather_log_prob
from ella.ppo.settings import PPOSettings
from ella.trajectory import image_of


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sequences:
    """N sequences of L steps; the memory before each first step is the rollout's."""

    image: UInt8[Array, "L N 7 7 3"]
    first: Bool[Array, "L N"]
    instruction_row: Int32[Array, "L N"]
    action: Int32[Array, "L N"]
    log_prob: Float[Array, "L N"]
    value: Float[Array, "L N"]
    advantage: Float[Array, "L N"]
    returns: Float[Array, "L N"]
    memory: Memory
    """[N, M]"""

    def take(self, indices: Int32[Array, " M"]) -> "Sequences":
        """Some of the sequences."""
        memory = jax.tree.map(lambda leaf: leaf[indices], self.memory)
        steps = {name: leaf[:, indices] for name, leaf in vars(self).items() if name != "memory"}
        return Sequences(memory=memory, **steps)


def split_into_sequences(rollout: Rollout, target: AdvantageEstimate, length: int) -> Sequences:
    """The rollout as sequences of `length` steps; sequence k B + b is environment b's k-th."""
    trajectory = rollout.trajectory

    def split(leaf: Array) -> Array:
        steps, rows = leaf.shape[:2]
        pieces = leaf.reshape(steps // length, length, rows, *leaf.shape[2:])
        return jnp.moveaxis(pieces, 0, 1).reshape(length, -1, *leaf.shape[2:])

    return Sequences(
        image=split(image_of(trajectory.observation)),
        first=split(trajectory.first),
        instruction_row=split(trajectory.instruction_row),
        action=split(trajectory.action),
        log_prob=split(rollout.log_prob),
        value=split(rollout.value),
        advantage=split(target.advantage),
        returns=split(target.returns),
        memory=jax.tree.map(
            lambda leaf: leaf[::length].reshape(-1, leaf.shape[-1]), rollout.memory
        ),
    )


def present_instructions(
    tokens: Int32[Array, "R T"], rows: Int32[Array, "L N"], capacity: int
) -> tuple[Int32[Array, "K T"], Int32[Array, "L N"], Bool[Array, "L N"]]:
    """The instructions that occur in a minibatch, K = `capacity` of them at most: their tokens,
    the rows in these, and which frames have one; the others' rows mean nothing.

    The table of a rollout has room for the levels of the quickest episodes, a minibatch meets
    few of them.
    """
    occurs = jnp.zeros(len(tokens), bool).at[rows].set(True)
    place = jnp.cumsum(occurs, dtype=jnp.int32) - 1
    chosen = jnp.nonzero(occurs, size=capacity, fill_value=0)[0]
    found = place[rows]
    return tokens[chosen], jnp.minimum(found, capacity - 1), found < capacity


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Replay:
    """What the network makes of sequences now."""

    log_probs: Float[Array, "L N A"]
    value: Float[Array, "L N"]
    moments: RunningStatistics
    """Of the batches the normalisations saw, [L, C]."""


def replay(
    network: ActorCritic,
    tokens: Int32[Array, "R T"],
    sequences: Sequences,
    *,
    unroll: int = 1,
    running: RunningStatistics | None = None,
    detach_critic: bool = False,
) -> Replay:
    """Run the network over sequences from their first memories.

    Only the memory is a loop over time. Statistics are those of each step's N rows, or `running`.
    With `detach_critic` values have no gradient beyond the critic's head.
    """
    dtype = network.config.compute_dtype
    network = assembled(network, dtype)
    modulations = look_up(network.instruct(tokens), sequences.instruction_row, dtype)
    seen, moments = network.see(sequences.image, modulations, running)
    hidden = network.remember_all(seen, sequences.memory, sequences.first, unroll=unroll)
    log_probs = jax.nn.log_softmax(network.logits(hidden))
    value = network.value(jax.lax.stop_gradient(hidden) if detach_critic else hidden)
    return Replay(log_probs, value, moments)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LossParts:
    """What is measured while learning from one minibatch."""

    policy_loss: Float[Array, ""]
    value_loss: Float[Array, ""]
    entropy: Float[Array, ""]
    clip_fraction: Float[Array, ""]
    """Share of frames whose ratio lies outside the clipping range."""
    kl: Float[Array, ""]
    """Estimate of the divergence from the policy that acted."""
    ratio_deviation: Float[Array, ""]
    """Mean distance of the ratio from 1."""


def ppo_loss(
    network: ActorCritic,
    config: PPOSettings,
    tokens: Int32[Array, "R T"],
    sequences: Sequences,
    counted: Bool[Array, "L N"] | None = None,
) -> tuple[Float[Array, ""], tuple[LossParts, RunningStatistics]]:
    """The mean over all steps of all sequences of the clipped losses, or over the `counted` ones.
    Also what was measured and the normalisations' moments."""
    mean = partial(jnp.mean, where=counted)
    now = replay(
        network, tokens, sequences, unroll=config.unroll, detach_critic=config.detach_critic
    )
    log_ratio = gather_log_prob(now.log_probs, sequences.action) - sequences.log_prob
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - config.clip_range, 1 + config.clip_range)
    gain = jnp.minimum(ratio * sequences.advantage, clipped * sequences.advantage)
    change = jnp.clip(
        now.value - sequences.value, -config.value_clip_range, config.value_clip_range
    )
    error = jnp.maximum(
        jnp.square(now.value - sequences.returns),
        jnp.square(sequences.value + change - sequences.returns),
    )
    entropy = -mean((jnp.exp(now.log_probs) * now.log_probs).sum(axis=-1))
    parts = LossParts(
        policy_loss=-mean(gain),
        value_loss=mean(error),
        entropy=entropy,
        clip_fraction=mean(jnp.abs(ratio - 1) > config.clip_range),
        kl=mean(ratio - 1 - log_ratio),
        ratio_deviation=mean(jnp.abs(ratio - 1)),
    )
    loss = (
        parts.policy_loss
        - config.entropy_coefficient * entropy
        + config.value_coefficient * parts.value_loss
    )
    return loss, (parts, now.moments)
