"""Plays one episode and keeps what a film of it needs."""

from collections.abc import Callable

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from ella.errors import InputError
from ella.report.film import Shot, episode_shots
from ella.world import Environment, Timestep, compiled, describe

Policy = Callable[[Timestep], int]
"""Chooses an action by the outcome of the last one; called once per step, in order."""


def record(world: Environment, policy: Policy, timestep: Timestep) -> list[Shot]:
    """The shots of an episode from `timestep` (a reset's) to its end."""
    descriptions = [describe(timestep.state)]
    views = [np.asarray(timestep.observation.image)]
    actions: list[int] = []
    while not bool(timestep.terminated | timestep.truncated):
        actions.append(policy(timestep))
        timestep = compiled.step(world, timestep.state, np.int32(actions[-1]))
        descriptions.append(describe(timestep.state))
        views.append(np.asarray(timestep.observation.image))
    return episode_shots(descriptions, actions, views=views, reward=float(timestep.reward))


def seed_key(seed: int) -> PRNGKeyArray:
    """The key of a seed a person typed."""
    if not 0 <= seed < 2**31:
        raise InputError(f"a seed lies between 0 and {2**31 - 1}, got {seed}")
    return jax.random.key(seed)


def expert_policy(world: Environment) -> Policy:
    """The next action of a shortest plan."""
    return lambda timestep: int(compiled.expert_action(world, timestep.state))


def random_policy(seed: int) -> Policy:
    """Every action with the same chance, except 'done', which no task needs."""
    generator = np.random.default_rng(seed)
    return lambda timestep: int(generator.integers(6))
