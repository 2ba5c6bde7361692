"""One action at a time on a level built by hand; `tests/parity` compares whole episodes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ella
from ella.world.dynamics import act, cell_at, front_of
from ella.world.encoding import (
    ACTION_NAMES,
    BALL,
    BOX,
    CLOSED_DOOR,
    COLOUR_NAMES,
    DOOR,
    EMPTY,
    EMPTY_CELL,
    GREY,
    KEY,
    LOCKED_DOOR,
    WALL,
    WALL_CELL,
    cell_of,
    decode_cells,
)
from ella.world.state import State
from ella.world.tasks import TASKS

RED, BLUE = COLOUR_NAMES.index("red"), COLOUR_NAMES.index("blue")
EAST_FRONT = (3, 2)
compiled_act = jax.jit(act)


def state_with(front: int, carrying: int = 0) -> State:
    """An 8x8 room; the agent at (2, 2) looks right at a cell with the given code."""
    cells = np.full((8, 8), EMPTY_CELL, np.uint8)
    cells[[0, -1]] = cells[:, [0, -1]] = WALL_CELL
    description = {
        "grid": np.asarray(decode_cells(cells)),
        "agent_pos": (2, 2),
        "agent_dir": 0,
        "mission": "go to the red ball",
    }
    state = ella.world.load(TASKS["goto-room"], description)
    cells[EAST_FRONT] = front
    return jax.tree.map(
        jnp.asarray,
        State(**{**vars(state), "cells": jnp.asarray(cells), "carrying": jnp.uint8(carrying)}),
    )


def outcome(front: int, action: str, carrying: int = 0) -> tuple[Any, ...]:
    """(front cell, hand, agent position, direction) after one action."""
    after = compiled_act(state_with(front, carrying), jnp.int32(ACTION_NAMES.index(action)))
    return (
        int(after.cells[EAST_FRONT]),
        int(after.carrying),
        tuple(after.agent_pos.tolist()),
        int(after.agent_dir),
    )


HERE, AHEAD = (2, 2), EAST_FRONT
BALL_CELL, BLUE_KEY, RED_KEY, BOX_CELL = (
    cell_of(BALL, RED), cell_of(KEY, BLUE), cell_of(KEY, RED), cell_of(BOX, RED),
)  # fmt: skip
OPEN_CELL, CLOSED_CELL, LOCKED_CELL = (
    cell_of(kind, RED) for kind in (DOOR, CLOSED_DOOR, LOCKED_DOOR)
)


@pytest.mark.parametrize(
    ("front", "action", "carrying", "expected"),
    [
        (EMPTY_CELL, "left", 0, (EMPTY_CELL, 0, HERE, 3)),
        (EMPTY_CELL, "right", 0, (EMPTY_CELL, 0, HERE, 1)),
        (EMPTY_CELL, "forward", 0, (EMPTY_CELL, 0, AHEAD, 0)),
        (OPEN_CELL, "forward", 0, (OPEN_CELL, 0, AHEAD, 0)),
        *((cell, "forward", 0, (cell, 0, HERE, 0))
          for cell in (WALL_CELL, CLOSED_CELL, LOCKED_CELL, BALL_CELL, RED_KEY, BOX_CELL)),
        *((cell, "pickup", 0, (EMPTY_CELL, cell, HERE, 0))
          for cell in (BALL_CELL, RED_KEY, BOX_CELL)),
        (BALL_CELL, "pickup", BLUE_KEY, (BALL_CELL, BLUE_KEY, HERE, 0)),
        *((cell, "pickup", 0, (cell, 0, HERE, 0))
          for cell in (EMPTY_CELL, WALL_CELL, OPEN_CELL, CLOSED_CELL, LOCKED_CELL)),
        (EMPTY_CELL, "drop", BLUE_KEY, (BLUE_KEY, 0, HERE, 0)),
        (EMPTY_CELL, "drop", 0, (EMPTY_CELL, 0, HERE, 0)),
        *((cell, "drop", BLUE_KEY, (cell, BLUE_KEY, HERE, 0))
          for cell in (WALL_CELL, OPEN_CELL, CLOSED_CELL, BALL_CELL)),
        (CLOSED_CELL, "toggle", 0, (OPEN_CELL, 0, HERE, 0)),
        (OPEN_CELL, "toggle", 0, (CLOSED_CELL, 0, HERE, 0)),
        (LOCKED_CELL, "toggle", 0, (LOCKED_CELL, 0, HERE, 0)),
        (LOCKED_CELL, "toggle", BLUE_KEY, (LOCKED_CELL, BLUE_KEY, HERE, 0)),
        (LOCKED_CELL, "toggle", BALL_CELL, (LOCKED_CELL, BALL_CELL, HERE, 0)),
        (LOCKED_CELL, "toggle", RED_KEY, (OPEN_CELL, RED_KEY, HERE, 0)),
        (BOX_CELL, "toggle", 0, (EMPTY_CELL, 0, HERE, 0)),
        *((cell, "toggle", RED_KEY, (cell, RED_KEY, HERE, 0))
          for cell in (EMPTY_CELL, WALL_CELL, BALL_CELL, BLUE_KEY)),
        *((cell, "done", RED_KEY, (cell, RED_KEY, HERE, 0))
          for cell in (EMPTY_CELL, CLOSED_CELL, BALL_CELL, BOX_CELL)),
    ],
)  # fmt: skip
def test_action(front: int, action: str, carrying: int, expected: tuple) -> None:
    assert outcome(front, action, carrying) == expected


@pytest.mark.parametrize("action", range(7))
def test_an_action_changes_the_front_cell_only_and_counts_time(action: int) -> None:
    before = state_with(BOX_CELL)
    after = compiled_act(before, jnp.int32(action))
    changed = np.argwhere(np.asarray(before.cells != after.cells)).tolist()
    assert changed in ([], [list(EAST_FRONT)])
    assert int(after.step_count) == 1
    for kept in ("remembered_cells", "clause_done", "previous_carrying", "max_steps"):
        np.testing.assert_array_equal(getattr(before, kept), getattr(after, kept))


def test_turning_four_times_comes_round() -> None:
    for action in (0, 1):
        state = state_with(EMPTY_CELL)
        seen = []
        for _ in range(4):
            state = compiled_act(state, jnp.int32(action))
            seen.append(int(state.agent_dir))
        assert seen == ([3, 2, 1, 0] if action == 0 else [1, 2, 3, 0])


@pytest.mark.parametrize(
    ("direction", "front"), [(0, (5, 5)), (1, (4, 6)), (2, (3, 5)), (3, (4, 4))]
)
def test_directions_are_right_down_left_up(direction: int, front: tuple[int, int]) -> None:
    x, y = front_of(jnp.array([4, 5]), jnp.int32(direction))
    assert (int(x), int(y)) == front


def test_cells_are_indexed_x_then_y() -> None:
    cells = jnp.arange(15 * 8, dtype=jnp.uint8).reshape(15, 8)
    assert int(cell_at(cells, jnp.int32(3), jnp.int32(5))) == 3 * 8 + 5


def test_cell_codes_decode_to_minigrids_triples() -> None:
    cells = np.array([WALL_CELL, EMPTY_CELL, OPEN_CELL, CLOSED_CELL, LOCKED_CELL, BLUE_KEY, 0])
    assert np.asarray(decode_cells(cells)).tolist() == [
        [WALL, GREY, 0], [EMPTY, 0, 0], [DOOR, RED, 0], [DOOR, RED, 1], [DOOR, RED, 2],
        [KEY, BLUE, 0], [0, 0, 0],
    ]  # fmt: skip
