"""Replaying recorded minigrid episodes here, and comparing every step."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from minigrid_reference import Episode

import ella
from ella.world.grammar import tokenise
from ella.world.state import Observation, State, Timestep
from ella.world.tasks import TaskSpec

LANES = 32
"""Episodes replayed side by side; fixed, so that one program per task serves all batches."""


@lru_cache
def _replay(spec: TaskSpec, length: int) -> Any:
    env = ella.make(spec)

    def replay(states: State, actions: Any) -> tuple[Observation, Timestep]:
        def step(states: State, action: Any) -> tuple[State, Timestep]:
            timestep = jax.vmap(env.step)(states, action)
            return timestep.state, timestep

        first = jax.vmap(env.observe)(states)
        return first, jax.lax.scan(step, states, actions)[1]

    del length
    return jax.jit(replay)


def assert_same(spec: TaskSpec, episodes: Sequence[Episode], *, length: int | None = None) -> int:
    """Load the episodes' levels here, take the same actions and compare image, direction,
    mission, reward, terminated and truncated of every step. Returns the number of steps."""
    length = length or max(spec.horizons) + 3
    return sum(
        _assert_same_lanes(spec, episodes[start : start + LANES], length)
        for start in range(0, len(episodes), LANES)
    )


def _assert_same_lanes(spec: TaskSpec, episodes: Sequence[Episode], length: int) -> int:
    loaded = [ella.world.load(spec, episode.description) for episode in episodes]
    loaded += [loaded[0]] * (LANES - len(loaded))
    actions = np.zeros((length, LANES), np.int32)
    for lane, episode in enumerate(episodes):
        actions[: len(episode.actions), lane] = episode.actions
    states = jax.tree.map(lambda *leaves: np.stack(leaves), *jax.device_get(loaded))
    first, steps = jax.device_get(_replay(spec, length)(states, jnp.asarray(actions)))
    for lane, episode in enumerate(episodes):
        try:
            _assert_same_episode(spec, episode, lane, first, steps)
        except AssertionError as error:
            error.add_note(f"{spec.name}: {episode.description}, {episode.actions.tolist()}")
            raise
    return sum(len(episode.actions) for episode in episodes)


def _assert_same_episode(
    spec: TaskSpec, episode: Episode, lane: int, first: Observation, steps: Timestep
) -> None:
    count = len(episode.actions)

    def along(name: str) -> np.ndarray:
        start = getattr(first, name)[None, lane]
        return np.concatenate([start, getattr(steps.observation, name)[:count, lane]])

    np.testing.assert_array_equal(along("image"), episode.images)
    np.testing.assert_array_equal(along("direction"), episode.directions)
    np.testing.assert_array_equal(steps.terminated[:count, lane], episode.terminated)
    np.testing.assert_array_equal(steps.truncated[:count, lane], episode.truncated)
    np.testing.assert_allclose(steps.reward[:count, lane], episode.rewards, rtol=0, atol=1.2e-7)
    text = spec.language.text(int(first.instruction_id[lane]))
    tokens = tokenise(text)
    assert set(episode.missions) == {text}
    padded = np.array(tokens + [0] * (spec.language.max_tokens - len(tokens)))
    assert (along("mission") == padded).all()
    assert (along("instruction_id") == first.instruction_id[lane]).all()
