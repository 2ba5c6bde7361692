"""Demonstrations: the expert's episodes on fresh levels, in batches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32, Key, PRNGKeyArray, UInt8

from ella.errors import InputError
from ella.world.encoding import DONE
from ella.world.environment import Environment
from ella.world.expert import Solutions, select_states, solve
from ella.world.observation import view_image
from ella.world.state import State

CHUNK = 1024
"""Episodes computed at once."""
LENGTH_STEP = 32
"""Replays are compiled for lengths that are multiples of this."""


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
class RecordedEpisodes:
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
    *,
    chunk: int = CHUNK,
    collected: Callable[[int], None] = lambda episodes: None,
) -> Demonstrations:
    """Expert episodes on fresh levels: the end, one random earlier moment, and the actions.
    `collected` is called with the number of episodes of each chunk."""
    parts = []
    for chunk_key in _chunk_keys(key, num_episodes, chunk):
        level_key, moment_key = jax.random.split(chunk_key)
        levels, found = _solve_fresh(env, level_key, chunk)
        steps = jax.random.randint(moment_key, (chunk,), 0, found.lengths)
        earlier = _replay(env, levels, found.actions, steps)
        parts.append(
            {
                **_summary(levels, found),
                "final_images": _images(found.final_states),
                "earlier_images": _images(earlier),
                "earlier_steps": steps,
            }
        )
        collected(min(chunk, num_episodes - (len(parts) - 1) * chunk))
    return Demonstrations(**_concatenate(parts, num_episodes))


def record_episodes(
    env: Environment, key: PRNGKeyArray, num_episodes: int, *, chunk: int = CHUNK
) -> RecordedEpisodes:
    """Expert episodes on fresh levels with everything that was seen; T is the longest's length,
    rounded up."""
    parts = []
    for chunk_key in _chunk_keys(key, num_episodes, chunk):
        levels, found = _solve_fresh(env, chunk_key, chunk)
        summary = _summary(levels, found)
        images, directions = _watch(env, levels, jnp.asarray(summary["actions"]), found.lengths)
        parts.append({**summary, "images": images, "directions": directions})
    return RecordedEpisodes(**_concatenate(parts, num_episodes))


@partial(jax.jit, static_argnums=0)
def _replay(
    env: Environment, levels: State, actions: UInt8[Array, "N T"], counts: Int32[Array, " N"]
) -> State:
    """The N states after the first `counts` of their actions."""

    def step(carry: tuple[Array, State]) -> tuple[Array, State]:
        t, states = carry
        moved = jax.vmap(env.step)(states, actions[:, t].astype(jnp.int32)).state
        return t + 1, select_states(t < counts, moved, states)

    last = jnp.max(counts)
    return jax.lax.while_loop(lambda carry: carry[0] < last, step, (jnp.int32(0), levels))[1]


def _chunk_keys(key: PRNGKeyArray, num_episodes: int, chunk: int) -> Key[Array, " chunks"]:
    if num_episodes < 1:
        raise InputError(f"num_episodes must be >= 1, got {num_episodes}")
    return jax.random.split(key, -(-num_episodes // chunk))


@partial(jax.jit, static_argnums=(0, 2))
def _solve_fresh(env: Environment, key: PRNGKeyArray, chunk: int) -> tuple[State, Solutions]:
    levels = env.generate(key, chunk)
    return levels, solve(env, levels)


def _summary(levels: State, found: Solutions) -> dict[str, np.ndarray]:
    """The small parts of a chunk, actions shortened to about its longest episode."""
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
        states = select_states(t < lengths, moved, states)
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


def _concatenate(parts: Sequence[dict[str, Any]], num_episodes: int) -> dict[str, np.ndarray]:
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
