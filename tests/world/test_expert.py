"""The expert against a breadth-first search that knows only the rules of the game."""

from collections import deque
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ella
from ella.world import expert
from ella.world.encoding import DONE, DROP, encode_triples
from ella.world.state import State
from ella.world.tasks import TaskSpec

NUM_LEVELS = 300
"""As in the parity tests, so that one compiled program serves both."""
STEPS = ((1, 0), (0, 1), (-1, 0), (0, -1))
EMPTY, OPEN_DOOR, CLOSED_DOOR, LOCKED_DOOR, KEY = 1, 4, 11, 12, 5


def class_of(cell: int) -> int:
    return cell & 0xF0 | 4 if cell & 15 in (11, 12) else cell


def shortest_length(description: dict[str, Any], verb: str, target: int) -> int:
    """Fewest actions for one 'go to', 'open' or 'pick up', by search over whole game states.

    Only what the task needs is moved: the target, and the key of a locked door, which stays in
    hand until the door is unlocked. A game state is: pose, grid, hand.
    """
    grid = encode_triples(description["grid"])
    useful = {int(cell) & 0xF0 | KEY for cell in grid.flat if cell & 15 == LOCKED_DOOR}
    height = grid.shape[1]
    start = (*description["agent_pos"], description["agent_dir"], grid.tobytes(), 0)
    distance = {start: 0}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        x, y, direction, cells, hand = state
        fx, fy = x + STEPS[direction][0], y + STEPS[direction][1]
        index = fx * height + fy
        front = cells[index]
        if verb == "go to" and class_of(front) == target and distance[state] > 0:
            return distance[state]

        def with_front(cell: int, cells: bytes = cells, index: int = index) -> bytes:
            return cells[:index] + bytes([cell]) + cells[index + 1 :]

        following = [
            (x, y, (direction - 1) % 4, cells, hand),
            (x, y, (direction + 1) % 4, cells, hand),
        ]
        kind = front & 15
        if kind in (EMPTY, OPEN_DOOR):
            following.append((fx, fy, direction, cells, hand))
        if hand == 0 and front == target and verb == "pick up":
            return distance[state] + 1
        is_locked = any(cell & 15 == LOCKED_DOOR for cell in cells)
        if hand == 0 and front in useful and is_locked:
            following.append((x, y, direction, with_front(EMPTY), front))
        if hand and front == EMPTY and not is_locked:
            following.append((x, y, direction, with_front(hand), 0))
        if kind == CLOSED_DOOR or (kind == LOCKED_DOOR and hand == front & 0xF0 | KEY):
            if verb == "open" and class_of(front) == target:
                return distance[state] + 1
            following.append((x, y, direction, with_front(front & 0xF0 | OPEN_DOOR), hand))
        for state_after in following:
            if state_after not in distance:
                distance[state_after] = distance[state] + 1
                queue.append(state_after)
    raise AssertionError(f"no way to {description['mission']}")


@pytest.mark.parametrize(
    "task",
    [
        "unlock-maze",
        *(
            pytest.param(task, marks=pytest.mark.thorough)
            for task in ("goto-room", "goto-maze", "open-maze", "opengoto-maze", "pick-maze")
        ),
    ],
)
def test_plans_are_shortest(task: str) -> None:
    env = ella.make(task)
    levels = env.generate(jax.random.key(7), NUM_LEVELS)
    found = jax.device_get(expert.solve(env, levels))
    levels = jax.device_get(levels)
    assert 0.25 * found.lengths.mean() < env.spec.quick_episode < found.lengths.mean()
    for index in range(100):
        level = ella.world.describe(one(levels, index))
        verb = next(v for v in ("go to", "open", "pick up") if level["mission"].startswith(v))
        target = int(levels.instruction.objects[index, 0, 0])
        assert found.lengths[index] == shortest_length(level, verb, target), level


def one(batch: State, index: int) -> State:
    return jax.tree.map(lambda leaf: leaf[index], batch)


CROWDED = TaskSpec(
    "crowded",
    ("pickup", "putnext", "open"),
    rows=3,
    cols=3,
    room_size=5,
    distractors=18,
    lock_probability=1.0,
    implicit_unlock=True,
)


@pytest.mark.thorough
def test_crowded_levels_with_a_locked_room_are_solved() -> None:
    env = ella.make(CROWDED)
    levels = env.generate(jax.random.key(2), 64)
    found = jax.device_get(expert.solve(env, levels))
    assert found.success.all(), np.flatnonzero(~found.success)


@pytest.mark.thorough
def test_an_episode_is_the_same_planned_stage_by_stage_or_action_by_action() -> None:
    env = ella.make("unlock-maze")
    levels = env.generate(jax.random.key(7), NUM_LEVELS)
    some = slice(32)
    found = jax.tree.map(lambda leaf: leaf[some], jax.device_get(expert.solve(env, levels)))
    act = jax.jit(jax.vmap(partial(expert.expert_action, env.spec)))
    step = jax.jit(jax.vmap(env.step))
    states = jax.tree.map(lambda leaf: leaf[some], levels)
    terminated = np.zeros(len(found.lengths), bool)
    for t in range(int(found.lengths.max())):
        action = act(states)
        playing = t < found.lengths
        np.testing.assert_array_equal(np.asarray(action)[playing], found.actions[playing, t])
        timestep = step(states, action)
        states = timestep.state
        ends = np.asarray(timestep.terminated) & playing
        np.testing.assert_array_equal(ends, t == found.lengths - 1)
        terminated |= ends
    assert terminated.all()
    assert (
        found.actions[np.arange(found.actions.shape[1]) >= found.lengths[:, None]] == DONE
    ).all()


@pytest.mark.thorough
def test_hands_are_freed_before_an_object_is_fetched() -> None:
    spec = TaskSpec("fetch", ("pickup",), cols=1, room_size=6, distractors=2)
    env = ella.make(spec)
    state = env.reset(jax.random.key(0)).state
    state = replace(state, carrying=jnp.uint8(0x56))
    found = expert.solve(env, jax.tree.map(lambda leaf: leaf[None], state))
    actions = np.asarray(found.actions[0, : int(found.lengths[0])])
    assert bool(found.success[0])
    assert DROP in actions
