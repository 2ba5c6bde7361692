"""How a mixture's levels are drawn: a learning-progress curriculum.

After every iteration a part's weight becomes, up to normalisation,

    its weight at the start x (floor + | recent success - earlier success |),

where both successes are exponential moving averages over the part's episodes, of a short and of a
long memory. So levels go to what is being learned (or forgotten), and where nothing changes, the
weights are those of the start. A part never gets less than floor / (1 + floor) of its share at the
start.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32

from ella.measurement import Mean, Measurements, mean_of
from ella.ppo.settings import CurriculumSettings
from ella.trajectory import Trajectory
from ella.world.mixtures import Mixture


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DecayingCount:
    """Episodes and successes of every part, older ones counting less."""

    successes: Float[Array, " parts"]
    episodes: Float[Array, " parts"]

    @property
    def rate(self) -> Float[Array, " parts"]:
        """Success; 0 where no episode has ended yet."""
        return self.successes / jnp.maximum(self.episodes, 1e-6)

    def add(
        self,
        successes: Float[Array, " parts"],
        episodes: Float[Array, " parts"],
        decay: Float[Array, ""],
    ) -> "DecayingCount":
        """What is there decays, then new episodes are added. A part of which none ended keeps its
        counts, so that its rate stays what it was."""
        decay = jnp.where(episodes > 0, decay, 1.0)
        return DecayingCount(self.successes * decay + successes, self.episodes * decay + episodes)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CurriculumState:
    """One seed's weights, and the moving averages of success they are computed from."""

    weights: Float[Array, " parts"]
    """With which the next levels are drawn; their sum is 1."""
    recent: DecayingCount
    earlier: DecayingCount


def start(mixture: Mixture) -> CurriculumState:
    """Before the first episode."""
    nothing = DecayingCount(*jnp.zeros((2, len(mixture.parts))))
    return CurriculumState(mixture.shares, nothing, nothing)


def parts_of(mixture: Mixture, trajectory: Trajectory) -> Int32[Array, "T B"]:
    """The part each step belongs to."""
    return mixture.language.part_of(trajectory.instruction_id)


def update(
    mixture: Mixture, settings: CurriculumSettings, state: CurriculumState, trajectory: Trajectory
) -> tuple[CurriculumState, Measurements]:
    """The weights after a rollout, and the success of every part in it."""
    part, done = parts_of(mixture, trajectory), trajectory.done
    measurements: Measurements = {}
    for index, spec in enumerate(mixture.parts):
        ended = done & (part == index)
        measurements[f"success_rate_{spec.name}"] = mean_of(trajectory.success, ended)
        share = state.weights[index]
        measurements[f"level_share_{spec.name}"] = Mean(share, jnp.ones_like(share))
    if not settings.learning_progress:
        return state, measurements
    ended_by_part: Bool[Array, "T B parts"] = done[..., None] & (
        part[..., None] == jnp.arange(len(mixture.parts), dtype=part.dtype)
    )
    episodes = ended_by_part.sum((0, 1), dtype=jnp.float32)
    successes = (ended_by_part & trajectory.success[..., None]).sum((0, 1), dtype=jnp.float32)
    frames = part.size
    recent = state.recent.add(successes, episodes, jnp.exp(-frames / settings.recent_frames))
    earlier = state.earlier.add(successes, episodes, jnp.exp(-frames / settings.earlier_frames))
    weights = progress_weights(settings, mixture.shares, recent.rate, earlier.rate)
    return CurriculumState(weights, recent, earlier), measurements


def progress_weights(
    settings: CurriculumSettings,
    shares: Float[Array, " parts"],
    recent: Float[Array, " parts"],
    earlier: Float[Array, " parts"],
) -> Float[Array, " parts"]:
    """The rule at the top of this file."""
    weights = shares * (settings.floor + jnp.abs(recent - earlier))
    return weights / weights.sum()
