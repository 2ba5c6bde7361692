"""LEARN: potential-based shaping by how well the actions so far go with the instruction."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32, PRNGKeyArray

from ella.measurement import Measurements, mean_of
from ella.networks.action_frequency import ActionFrequencyModel
from ella.shaping.shaper import AbstractRewardShaper, Number
from ella.trajectory import Trajectory
from ella.world.encoding import NUM_ACTIONS


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LearnState:
    """What each environment's running episode has done; survives rollouts."""

    counts: Int32[Array, "B A"]
    """How often each action was taken so far."""
    potential: Float[Array, " B"]
    """After the last action."""


class LearnShaper(AbstractRewardShaper):
    """Pays coefficient * (discount * potential after the action - potential before it).

    The potential is p(related) - p(unrelated) of the episode's action frequencies, those of an
    episode without actions being all zero. An episode's end is not treated specially.
    """

    model: ActionFrequencyModel
    coefficient: Number
    """Of the potential's change, in units of the scaled reward."""
    discount: Number
    """Of the new potential; must be the learner's discount, or the optimal policy may change."""

    def init(self, num_envs: int, *, key: PRNGKeyArray) -> LearnState:
        return LearnState(jnp.zeros((num_envs, NUM_ACTIONS), jnp.int32), jnp.zeros(num_envs))

    def shape(
        self, state: LearnState, trajectory: Trajectory
    ) -> tuple[LearnState, Float[Array, "T B"], Measurements]:
        T, B = trajectory.action.shape
        sentences = jax.vmap(self.model.classifier.read)(trajectory.instructions.tokens)
        counts = episode_counts(state.counts, trajectory)
        frequencies = counts / counts.sum(-1, keepdims=True)
        potential = self.model.relatedness(
            sentences[trajectory.instruction_row].reshape(T * B, -1),
            frequencies.reshape(T * B, NUM_ACTIONS),
        ).reshape(T, B)
        at_start = self.model.relatedness(
            sentences, jnp.zeros((sentences.shape[0], NUM_ACTIONS), sentences.dtype)
        )
        before = jnp.concatenate([state.potential[None], potential[:-1]])
        before = jnp.where(trajectory.first, at_start[trajectory.instruction_row], before)
        bonus = self.coefficient * (self.discount * potential - before)
        measurements = {
            "learn_bonus": mean_of(bonus),
            "learn_potential": mean_of(potential),
            "learn_final_potential": mean_of(potential, trajectory.done),
        }
        return LearnState(counts[-1], potential[-1]), bonus, measurements

    def fit(
        self,
        state: LearnState,
        trajectory: Trajectory,
        iteration: Int32[Array, ""],
        *,
        key: PRNGKeyArray,
    ) -> tuple[LearnState, Measurements]:
        return state, {}


def episode_counts(carried: Int32[Array, "B A"], trajectory: Trajectory) -> Int32[Array, "T B A"]:
    """How often each action was taken in the episode, each step's own action included; `carried`
    are the counts before the first step."""
    taken = jax.nn.one_hot(trajectory.action, NUM_ACTIONS, dtype=jnp.int32)
    total = jnp.cumsum(taken, axis=0, dtype=jnp.int32)
    # Totals never fall, so what was there when the latest episode began is a running maximum.
    base = jnp.where(trajectory.first[..., None], total - taken, -carried)
    return total - jax.lax.cummax(base, axis=0)
