"""An expert that knows the whole state: its next action, and whole episodes of it in batches."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, PRNGKeyArray, UInt8

from ella.errors import InputError
from ella.world.dynamics import cell_at, front_of
from ella.world.encoding import CLOSED_DOOR, DONE, DOOR, EMPTY, FORWARD, LEFT, RIGHT, TOGGLE, kind_of
from ella.world.environment import Environment
from ella.world.planning import NEVER, Plan, plan
from ella.world.state import State, pytree
from ella.world.tasks import TaskSpec

CHUNK = 1024
"""Episodes computed at once."""
LENGTH_STEP = 32
"""Replays are compiled for lengths that are multiples of this."""


def expert_action(spec: TaskSpec, state: State) -> Int32[Array, ""]:
    """The first action of a shortest plan from this state; one environment."""
    return _follow(plan(spec, state), state)[0]


def _follow(current: Plan, state: State) -> tuple[Int32[Array, ""], Bool[Array, ""]]:
    """(the next action of a plan, whether it ends the plan's stage)."""
    height = state.cells.shape[1]
    direction, cell = state.agent_dir, state.agent_pos[0] * height + state.agent_pos[1]
    x, y = front_of(state.agent_pos, direction)
    kind = kind_of(cell_at(state.cells, x, y))
    is_closed = kind == CLOSED_DOOR
    step_cost = jnp.where((kind == EMPTY) | (kind == DOOR), 1, jnp.where(is_closed, 2, NEVER))
    costs = jnp.stack(
        [
            current.goals[direction, cell],
            current.field[direction, x * height + y] + step_cost,
            current.field[(direction + 3) % 4, cell] + 1,
            current.field[(direction + 1) % 4, cell] + 1,
        ]
    )
    choice = jnp.where(jnp.min(costs) < NEVER, jnp.argmin(costs), 4)
    forward = jnp.where(is_closed, TOGGLE, FORWARD)
    actions = jnp.stack([current.action, forward, jnp.int32(LEFT), jnp.int32(RIGHT), jnp.int32(DONE)])
    return actions[choice].astype(jnp.int32), (choice == 0) | (choice == 4)


@pytree
@dataclass(frozen=True)
class Solutions:
    """The expert's episodes on N levels."""

    actions: UInt8[Array, "N T"]
    """Padded with the action 'done' after the end."""
    lengths: Int32[Array, "N"]
    success: Bool[Array, "N"]


@partial(jax.jit, static_argnums=(0, 2))
def solve(env: Environment, levels: State, max_length: int) -> Solutions:
    """The expert's episodes on N levels, T = max_length; longer ones are cut and not a success.

    Works stage by stage: all environments plan, then each walks to the end of its own stage.
    """
    N = levels.step_count.shape[0]
    plan_all = jax.vmap(partial(plan, env.spec))

    def step(carry: tuple) -> tuple:
        plans, state, walking, solutions = carry
        action, ends = jax.vmap(_follow)(plans, state)
        timestep = jax.vmap(env.step)(state, action)
        column = jnp.where(walking, solutions.lengths, max_length)
        lengths = solutions.lengths + walking
        success = solutions.success | (walking & timestep.terminated)
        actions = solutions.actions.at[jnp.arange(N), column].set(
            action.astype(jnp.uint8), mode="drop"
        )
        state = _where(walking, timestep.state, state)
        over = ends | timestep.terminated | timestep.truncated | (lengths >= max_length)
        return plans, state, walking & ~over, Solutions(actions, lengths, success)

    def run_stage(carry: tuple) -> tuple:
        state, playing, solutions = carry
        _, state, _, solutions = jax.lax.while_loop(
            lambda inner: jnp.any(inner[2]), step, (plan_all(state), state, playing, solutions)
        )
        limit = jnp.minimum(state.max_steps, max_length)
        return state, ~solutions.success & (solutions.lengths < limit), solutions

    nothing = Solutions(
        actions=jnp.full((N, max_length), DONE, jnp.uint8),
        lengths=jnp.zeros(N, jnp.int32),
        success=jnp.zeros(N, bool),
    )
    *_, solutions = jax.lax.while_loop(
        lambda carry: jnp.any(carry[1]), run_stage, (levels, jnp.ones(N, bool), nothing)
    )
    return solutions


def _where(condition: Bool[Array, "N"], chosen: State, other: State) -> State:
    def pick(a: Array, b: Array) -> Array:
        return jnp.where(condition.reshape(condition.shape + (1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(pick, chosen, other)
