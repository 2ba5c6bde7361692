"""Rollouts of random actions in a small room, for tests of shapers."""

from collections.abc import Callable
from dataclasses import fields
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np

import ella
from ella.shaping.shaper import AbstractRewardShaper
from ella.trajectory import Trajectory
from ella.world.encoding import NUM_ACTIONS
from ella.world.tasks import TaskSpec

HORIZON = 12
SMALL_ROOM = TaskSpec(
    "small-room-for-shapers", ("goto",), cols=1, room_size=6, distractors=3, agent_first=True,
    max_steps=HORIZON,
)  # fmt: skip
T, B, ROLLOUTS = 16, 32, 4
WELL_COMPILED = {"xla_backend_optimization_level": 1}
"""For programs that train for long: more optimisation than tests have otherwise."""


@cache
def random_rollouts(
    spec: TaskSpec = SMALL_ROOM, steps: int = T, envs: int = B, rollouts: int = ROLLOUTS
) -> list[Trajectory]:
    """Rollouts one after the other; environments and episodes continue from one to the next."""
    env = ella.make(spec)

    def rollout(vector, key):
        refill_key, action_key = jax.random.split(key)
        vector = env.refill(vector, refill_key)
        table = env.instruction_table(vector)

        def step(vector, action):
            after, moved = env.step_vector(vector, action)
            return after, {
                "observation": vector.observation.without_instruction,
                "first": vector.first,
                "instruction_row": vector.instruction_row,
                "action": action,
                "reward": moved.reward,
                "terminated": moved.terminated,
                "truncated": moved.truncated,
                "next_observation": moved.next_observation.without_instruction,
                "fingerprint": moved.fingerprint,
            }

        actions = jax.random.randint(action_key, (steps, envs), 0, NUM_ACTIONS)
        vector, taken = jax.lax.scan(step, vector, actions)
        return vector, Trajectory(**taken, instructions=table)

    @jax.jit
    def play(key):
        start_key, rollout_key = jax.random.split(key)
        vector = env.start(start_key, envs, 4 * envs)
        return jax.lax.scan(rollout, vector, jax.random.split(rollout_key, rollouts))[1]

    played = play(jax.random.key(0))
    return [jax.tree.map(lambda leaf, i=i: leaf[i], played) for i in range(rollouts)]


@partial(jax.jit, static_argnums=0, compiler_options=WELL_COMPILED)
def shaped(shaper: AbstractRewardShaper, state, rollout: Trajectory):
    """(state, bonus, measurements) of a shaper without arrays of its own."""
    return shaper.shape(state, rollout)


def steps_of(rollout: Trajectory, start: int, stop: int) -> Trajectory:
    """Some steps of a rollout."""
    parts = {field.name: getattr(rollout, field.name) for field in fields(rollout)}
    table = parts.pop("instructions")
    return Trajectory(**jax.tree.map(lambda part: part[start:stop], parts), instructions=table)


def assert_steps_equal_rollout(
    shaper: AbstractRewardShaper, state, rollout: Trajectory, tolerance: float = 1e-5
) -> np.ndarray:
    """`shape` over T steps equals T calls over one step, in bonus and state; gives the bonus."""
    shape: Callable = jax.jit(lambda state, part: shaper.shape(state, part)[:2])
    whole_state, whole = shape(state, rollout)
    bonuses = []
    for t in range(T):
        state, bonus = shape(state, steps_of(rollout, t, t + 1))
        bonuses.append(bonus)
    np.testing.assert_allclose(whole, jnp.concatenate(bonuses), rtol=tolerance, atol=tolerance)
    for one, other in zip(jax.tree.leaves(whole_state), jax.tree.leaves(state), strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
    return np.asarray(whole)
