"""Plays one episode and keeps what a video of it needs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from ella.episodes.video import Mark, VideoFrame, episode_frames
from ella.errors import InputError
from ella.world import Environment, Timestep, compiled, describe

Actor = Callable[[Timestep], int]
"""Chooses an action by the outcome of the last one; called once per step, in order."""


Marker = Callable[[Sequence[Timestep], Sequence[int]], Sequence[Sequence[Mark]]]
"""Of the T + 1 timesteps and T actions of a whole episode, what to mark at each timestep."""


@dataclass(frozen=True)
class Recording:
    """One recorded episode."""

    name: str
    """Of its files, without suffix."""
    frames: Sequence[VideoFrame]


@dataclass(frozen=True)
class Episode:
    """One whole episode."""

    timesteps: Sequence[Timestep]
    """T + 1: a reset's, and one after each action."""
    actions: Sequence[int]

    @property
    def reward(self) -> float:
        """The last step's; positive after a success."""
        return float(self.timesteps[-1].reward)

    def frames(self, marker: Marker | None = None) -> list[VideoFrame]:
        """The frames of a video."""
        return episode_frames(
            [describe(timestep.state) for timestep in self.timesteps],
            self.actions,
            views=[np.asarray(timestep.observation.image) for timestep in self.timesteps],
            marks=marker(self.timesteps, self.actions) if marker is not None else None,
            reward=self.reward,
        )


def play(world: Environment, actor: Actor, timestep: Timestep) -> Episode:
    """An episode from `timestep` (a reset's) to its end."""
    timesteps = [timestep]
    actions: list[int] = []
    while not (bool(timestep.terminated) or bool(timestep.truncated)):
        actions.append(actor(timestep))
        timestep = compiled.step(world, timestep.state, np.int32(actions[-1]))
        timesteps.append(timestep)
    return Episode(timesteps, actions)


def record(
    world: Environment, actor: Actor, timestep: Timestep, marker: Marker | None = None
) -> list[VideoFrame]:
    """The frames of an episode from `timestep` (a reset's) to its end."""
    return play(world, actor, timestep).frames(marker)


def seed_key(seed: int) -> PRNGKeyArray:
    """The key of a seed a person typed."""
    if not 0 <= seed < 2**31:
        raise InputError(f"a seed lies between 0 and {2**31 - 1}, got {seed}")
    return jax.random.key(seed)


def expert_actor(world: Environment) -> Actor:
    """The next action of a shortest plan."""
    return lambda timestep: int(compiled.expert_action(world, timestep.state))


def random_actor(seed: int) -> Actor:
    """Every action with the same chance, except 'done', which no task needs."""
    generator = np.random.default_rng(seed)
    return lambda timestep: int(generator.integers(6))
