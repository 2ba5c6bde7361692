"""An expert that knows the whole state: its next action, and whole episodes of it in batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, Key, PRNGKeyArray, UInt8

from ella.errors import InputError
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
from ella.world.observation import view_image
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


@partial(jax.jit, static_argnums=(0, 2))
def solve(env: Environment, levels: State, max_length: int | None = None) -> Solutions:
    """Play the expert from N states to the episodes' ends.

    T is `max_length`, by default the task's longest horizon; an episode that is not over by then
    is cut and no success. Works stage by stage: all environments plan, then each walks to the end
    of its own stage.
    """
    T = max_length or max(env.spec.horizons)
    N = levels.step_count.shape[0]
    rows = jnp.arange(N)
    plan_all = jax.vmap(partial(plan, env.spec))

    def step(carry: tuple[Array, Plan, Solutions]) -> tuple[Array, Plan, Solutions]:
        walking, plans, solutions = carry
        action, ends_stage = jax.vmap(_follow)(plans, solutions.final_states)
        timestep = jax.vmap(env.step)(solutions.final_states, action)
        column = jnp.where(walking, solutions.lengths, T)
        stepped = Solutions(
            actions=solutions.actions.at[rows, column].set(action.astype(jnp.uint8), mode="drop"),
            lengths=solutions.lengths + walking.astype(jnp.int32),
            success=solutions.success | (walking & timestep.terminated),
            final_states=_where(walking, timestep.state, solutions.final_states),
        )
        return walking & ~ends_stage & _is_playing(stepped, T), plans, stepped

    def run_stage(solutions: Solutions) -> Solutions:
        carry = (_is_playing(solutions, T), plan_all(solutions.final_states), solutions)
        return jax.lax.while_loop(lambda inner: jnp.any(inner[0]), step, carry)[2]

    start = Solutions(
        actions=jnp.full((N, T), DONE, jnp.uint8),
        lengths=jnp.zeros(N, jnp.int32),
        success=jnp.zeros(N, bool),
        final_states=levels,
    )
    return jax.lax.while_loop(lambda s: jnp.any(_is_playing(s, T)), run_stage, start)


def _is_playing(solutions: Solutions, max_length: int) -> Bool[Array, " N"]:
    state = solutions.final_states
    in_time = (state.step_count < state.max_steps) & (solutions.lengths < max_length)
    return ~solutions.success & in_time


def _where(condition: Bool[Array, " N"], chosen: State, other: State) -> State:
    def pick(a: Array, b: Array) -> Array:
        return jnp.where(condition.reshape(condition.shape + (1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(pick, chosen, other)


@partial(jax.jit, static_argnums=0)
def replay(
    env: Environment, levels: State, actions: UInt8[Array, "N T"], counts: Int32[Array, " N"]
) -> State:
    """The N states after the first `counts` of their actions."""

    def step(carry: tuple[Array, State]) -> tuple[Array, State]:
        t, states = carry
        moved = jax.vmap(env.step)(states, actions[:, t].astype(jnp.int32)).state
        return t + 1, _where(t < counts, moved, states)

    last = jnp.max(counts)
    return jax.lax.while_loop(lambda carry: carry[0] < last, step, (jnp.int32(0), levels))[1]


@dataclass(frozen=True)
class Demonstrations:
    """N expert episodes, of which two views each are kept. Host arrays."""

    instruction_ids: np.ndarray
    """int32[N]."""
    actions: np.ndarray
    """uint8[N, T], padded with 'done'."""
    lengths: np.ndarray
    """int32[N]."""
    success: np.ndarray
    """bool[N]."""
    final_images: np.ndarray
    """uint8[N, 7, 7, 3], after the last action."""
    earlier_images: np.ndarray
    """uint8[N, 7, 7, 3], before the action numbered `earlier_steps`."""
    earlier_steps: np.ndarray
    """int32[N], uniform over 0 .. lengths - 1."""


@dataclass(frozen=True)
class Episodes:
    """N whole expert episodes. Host arrays; after an episode's end its last view is repeated."""

    instruction_ids: np.ndarray
    """int32[N]."""
    images: np.ndarray
    """uint8[N, T + 1, 7, 7, 3]; [n, t] is what is seen before action t."""
    directions: np.ndarray
    """uint8[N, T + 1]."""
    actions: np.ndarray
    """uint8[N, T], padded with 'done'."""
    lengths: np.ndarray
    """int32[N]."""
    success: np.ndarray
    """bool[N]."""


def demonstrations(
    env: Environment,
    key: PRNGKeyArray,
    num_episodes: int,
    max_length: int | None = None,
    *,
    chunk: int = CHUNK,
) -> Demonstrations:
    """Expert episodes on fresh levels: the end, one random earlier moment, and the actions."""
    parts = []
    for chunk_key in _chunk_keys(key, num_episodes, chunk):
        level_key, moment_key = jax.random.split(chunk_key)
        levels, found = _solve_fresh(env, level_key, max_length, chunk)
        steps = jax.random.randint(moment_key, (chunk,), 0, found.lengths)
        earlier = replay(env, levels, found.actions, steps)
        parts.append(
            {
                **_summary(levels, found),
                "final_images": _images(found.final_states),
                "earlier_images": _images(earlier),
                "earlier_steps": steps,
            }
        )
    return Demonstrations(**_joined(parts, num_episodes))


def rollout(
    env: Environment,
    key: PRNGKeyArray,
    num_episodes: int,
    max_length: int | None = None,
    *,
    chunk: int = CHUNK,
) -> Episodes:
    """Expert episodes on fresh levels with everything that was seen; T is the longest's length,
    rounded up."""
    parts = []
    for chunk_key in _chunk_keys(key, num_episodes, chunk):
        levels, found = _solve_fresh(env, chunk_key, max_length, chunk)
        summary = _summary(levels, found)
        images, directions = _watch(env, levels, jnp.asarray(summary["actions"]), found.lengths)
        parts.append({**summary, "images": images, "directions": directions})
    return Episodes(**_joined(parts, num_episodes))


def _chunk_keys(key: PRNGKeyArray, num_episodes: int, chunk: int) -> Key[Array, " chunks"]:
    if num_episodes < 1:
        raise InputError(f"the number of episodes must be positive, got {num_episodes}")
    return jax.random.split(key, -(-num_episodes // chunk))


@partial(jax.jit, static_argnums=(0, 2, 3))
def _solve_fresh(
    env: Environment, key: PRNGKeyArray, max_length: int | None, chunk: int
) -> tuple[State, Solutions]:
    levels = env.generate(key, chunk)
    return levels, solve(env, levels, max_length)


def _summary(levels: State, found: Solutions) -> dict[str, np.ndarray]:
    """The small parts of a chunk, actions cut to about its longest episode."""
    lengths = np.asarray(found.lengths)
    longest = -(-int(lengths.max()) // LENGTH_STEP) * LENGTH_STEP
    return {
        "instruction_ids": np.asarray(levels.instruction_id),
        "actions": np.asarray(found.actions)[:, :longest],
        "lengths": lengths,
        "success": np.asarray(found.success),
    }


@jax.jit
def _images(states: State) -> UInt8[Array, "N 7 7 3"]:
    return jax.vmap(view_image)(states)


@partial(jax.jit, static_argnums=0)
def _watch(
    env: Environment, levels: State, actions: UInt8[Array, "N T"], lengths: Int32[Array, " N"]
) -> tuple[UInt8[Array, "N T+1 7 7 3"], UInt8[Array, "N T+1"]]:
    """(images, directions) before every action and after the last."""

    def step(states: State, now: tuple[Array, Array]) -> tuple[State, tuple[Array, Array]]:
        t, action = now
        moved = jax.vmap(env.step)(states, action.astype(jnp.int32)).state
        states = _where(t < lengths, moved, states)
        return states, _view(states)

    times = jnp.arange(actions.shape[1])
    _, later = jax.lax.scan(step, levels, (times, actions.T))
    return jax.tree.map(
        lambda first, rest: jnp.swapaxes(jnp.concatenate([first[None], rest]), 0, 1),
        _view(levels),
        later,
    )


def _view(states: State) -> tuple[Array, Array]:
    return jax.vmap(view_image)(states), states.agent_dir.astype(jnp.uint8)


def _joined(parts: Sequence[dict[str, Any]], num_episodes: int) -> dict[str, np.ndarray]:
    """Chunks one after the other: time axes padded to the longest, surplus episodes dropped."""
    longest = max(part["actions"].shape[1] for part in parts)
    return {
        name: np.concatenate([_padded(name, np.asarray(part[name]), longest) for part in parts])[
            :num_episodes
        ]
        for name in parts[0]
    }


def _padded(name: str, values: np.ndarray, longest: int) -> np.ndarray:
    if name == "actions":
        missing = longest - values.shape[1]
        return np.pad(values, ((0, 0), (0, missing)), constant_values=DONE)
    if name in ("images", "directions"):
        missing = longest + 1 - values.shape[1]
        return np.pad(values, ((0, 0), (0, missing)) + ((0, 0),) * (values.ndim - 2), mode="edge")
    return values
