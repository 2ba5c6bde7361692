"""An expert that knows the whole state: its next action, and its episodes on many levels."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32, UInt8

from ella.world.dynamics import cell_at, front_of
from ella.world.encoding import (
    CLOSED_DOOR,
    DONE,
    DOOR,
    EMPTY,
    FORWARD,
    LEFT,
    RIGHT,
    TOGGLE,
    kind_of,
)
from ella.world.environment import Environment
from ella.world.planning import NEVER, Plan, plan
from ella.world.state import State, pytree
from ella.world.tasks import TaskSpec


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
    actions = jnp.stack(
        [current.action, forward, jnp.int32(LEFT), jnp.int32(RIGHT), jnp.int32(DONE)]
    )
    return actions[choice].astype(jnp.int32), (choice == 0) | (choice == 4)


@pytree
@dataclass(frozen=True)
class Solutions:
    """The expert's episodes on N levels."""

    actions: UInt8[Array, "N T"]
    """Padded with the action 'done' after the end."""
    lengths: Int32[Array, " N"]
    success: Bool[Array, " N"]
    final_states: State
    """[N], after the last action."""


@partial(jax.jit, static_argnums=0)
def solve(env: Environment, levels: State) -> Solutions:
    """Play the expert from N states to the episodes' ends.

    T is the task's longest horizon. Works stage by stage: all environments plan, then each walks to
    the end of its own stage.
    """
    T = max(env.spec.horizons)
    N = levels.step_count.shape[0]
    rows = jnp.arange(N)
    plan_all = jax.vmap(partial(plan, env.one_task))

    def step(carry: tuple[Array, Plan, Solutions]) -> tuple[Array, Plan, Solutions]:
        walking, plans, solutions = carry
        action, ends_stage = jax.vmap(_follow)(plans, solutions.final_states)
        timestep = jax.vmap(env.step)(solutions.final_states, action)
        column = jnp.where(walking, solutions.lengths, T)
        stepped = Solutions(
            actions=solutions.actions.at[rows, column].set(action.astype(jnp.uint8), mode="drop"),
            lengths=solutions.lengths + walking.astype(jnp.int32),
            success=solutions.success | (walking & timestep.terminated),
            final_states=select_states(walking, timestep.state, solutions.final_states),
        )
        return walking & ~ends_stage & _is_playing(stepped), plans, stepped

    def run_stage(solutions: Solutions) -> Solutions:
        carry = (_is_playing(solutions), plan_all(solutions.final_states), solutions)
        return jax.lax.while_loop(lambda inner: jnp.any(inner[0]), step, carry)[2]

    start = Solutions(
        actions=jnp.full((N, T), DONE, jnp.uint8),
        lengths=jnp.zeros(N, jnp.int32),
        success=jnp.zeros(N, bool),
        final_states=levels,
    )
    return jax.lax.while_loop(lambda s: jnp.any(_is_playing(s)), run_stage, start)


def _is_playing(solutions: Solutions) -> Bool[Array, " N"]:
    state = solutions.final_states
    return ~solutions.success & (state.step_count < state.max_steps)


def select_states(condition: Bool[Array, " N"], where_true: State, where_false: State) -> State:
    """`jnp.where` on every array of N states."""

    def select(a: Array, b: Array) -> Array:
        return jnp.where(condition.reshape(condition.shape + (1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(select, where_true, where_false)
