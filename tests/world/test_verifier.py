"""The verifier's memory, and its specialisations; `tests/parity/test_quirks.py` has its habits."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

import ella
from ella.world.encoding import EMPTY, GREY, WALL
from ella.world.grammar import parse
from ella.world.state import State, Timestep
from ella.world.tasks import TASKS, TaskSpec

EVERYTHING = TaskSpec("everything", ("goto", "open", "pickup", "putnext"))
ALL_SEQUENCES = TaskSpec("all-sequences", ("goto", "open", "pickup", "putnext"), form="sequence")


@jax.jit(static_argnums=0)
def play(spec: TaskSpec, state: State, actions: Any) -> Timestep:
    """All timesteps of the actions, stacked."""
    env = ella.make(spec)

    def step(state: State, action: Any) -> tuple[State, Timestep]:
        timestep = env.step(state, action)
        return timestep.state, timestep

    return jax.lax.scan(step, state, actions)[1]


def crowded_level(mission: str) -> dict[str, Any]:
    """A level full of red and blue things round an agent next to a red door."""
    grid = np.zeros((15, 8, 3), np.uint8)
    grid[:] = (EMPTY, 0, 0)
    grid[[0, 7, 14]] = grid[:, [0, 7]] = (WALL, GREY, 0)
    grid[7, 3] = (4, 0, 1)
    for n, (x, y) in enumerate([(5, 2), (5, 4), (6, 5), (8, 2), (9, 3), (9, 5), (3, 3), (4, 5)]):
        grid[x, y] = (5 + n % 3, 2 * (n % 2), 0)
    return {"grid": grid, "agent_pos": (6, 3), "agent_dir": 0, "mission": mission}


@pytest.mark.parametrize(
    ("task", "mission"),
    [
        ("goto-maze", "go to a red ball"),
        ("open-maze", "open the red door"),
        ("pick-maze", "pick up a blue key"),
        ("putnext-maze", "put a red key next to a blue box"),
        ("combo-maze", "put a blue ball next to the red door"),
    ],
)
def test_a_narrow_language_verifies_like_the_full_one(task: str, mission: str) -> None:
    actions = np.random.default_rng(5).choice(7, 100, p=[0.15, 0.15, 0.3, 0.15, 0.1, 0.1, 0.05])
    narrow = play(TASKS[task], ella.world.load(TASKS[task], crowded_level(mission)), actions)
    full = play(EVERYTHING, ella.world.load(EVERYTHING, crowded_level(mission)), actions)
    for name in ("terminated", "truncated"):
        np.testing.assert_array_equal(getattr(narrow, name), getattr(full, name))
    np.testing.assert_array_equal(narrow.state.cells, full.state.cells)
    np.testing.assert_array_equal(narrow.state.clause_done, full.state.clause_done)


def test_remembered_cells_change_with_drop_actions_only() -> None:
    level = crowded_level("go to a red ball")
    actions = np.array([1, 1, 2, 0, 3, 4, 3, 5, 4])
    steps = play(EVERYTHING, ella.world.load(EVERYTHING, level), actions)
    remembered = np.asarray(steps.state.remembered_cells)
    changed = [(remembered[t] != remembered[t - 1]).any() for t in range(1, len(actions))]
    cells = np.asarray(steps.state.cells)
    for t, action in enumerate(actions):
        if action == 4:
            np.testing.assert_array_equal(remembered[t], cells[t])
        elif t > 0:
            assert not changed[t - 1]


def test_previous_carrying_waits_for_its_clause() -> None:
    mission = "open the red door, then pick up a red key"
    assert parse(mission).text == mission
    level = crowded_level(mission)
    # Face the red key at (5, 2) from (5, 3), pick it up, come back and open the door.
    actions = np.array([0, 0, 2, 1, 3, 1, 2, 5])
    steps = jax.device_get(play(ALL_SEQUENCES, ella.world.load(ALL_SEQUENCES, level), actions))
    red_key = 5
    assert steps.state.carrying.tolist() == [0] * 4 + [red_key] * 4
    assert steps.state.previous_carrying[:, 0].tolist() == [0] * 4 + [red_key] * 4
    assert steps.state.previous_carrying[:, 1].tolist() == [0] * 7 + [red_key]
    assert steps.state.clause_done[-1].tolist() == [True, False]


def test_reward_is_minigrids_in_single_precision() -> None:
    env = ella.make("open-maze")
    state = ella.world.load(env, crowded_level("open the red door"))
    pairs = [(t, horizon) for horizon in (64, 128, 256, 384, 512, 576) for t in range(horizon)]
    steps, horizons = np.array(pairs, np.int32).T

    def reward_at(t: Any, horizon: Any) -> Any:
        return env.step(replace(state, step_count=t, max_steps=horizon), 5).reward

    rewards = np.asarray(jax.jit(jax.vmap(reward_at))(steps, horizons))
    assert rewards.dtype == np.float32
    np.testing.assert_allclose(rewards, 1 - 0.9 * ((steps + 1) / horizons), rtol=0, atol=1.2e-7)
