"""The view against minigrid's rules written out cell by cell."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ella
from ella.world.encoding import (
    BALL,
    BOX,
    CLOSED_DOOR,
    DIRECTION_VECTORS,
    DOOR,
    EMPTY_CELL,
    KEY,
    LOCKED_DOOR,
    UNSEEN_CELL,
    WALL_CELL,
    cell_of,
    decode_cells,
)
from ella.world.observation import view_cells
from ella.world.state import State
from ella.world.tasks import TASKS

CODES = np.array(
    [EMPTY_CELL, WALL_CELL, *(cell_of(kind, 2) for kind in (DOOR, CLOSED_DOOR, LOCKED_DOOR)),
     cell_of(KEY, 1), cell_of(BALL, 3), cell_of(BOX, 4)], np.uint8,
)  # fmt: skip
OPAQUE = {WALL_CELL, cell_of(CLOSED_DOOR, 2), cell_of(LOCKED_DOOR, 2)}
N = 600


def random_states(wall_share: float, seed: int) -> State:
    """N 15x8 grids of random cells inside a wall, random agents and hands; the verifier's arrays
    are those of any instruction."""
    rng = np.random.default_rng(seed)
    weights = np.array([1, 0, 0.1, 0.05, 0.05, 0.1, 0.1, 0.1])
    weights *= (1 - wall_share) / weights.sum()
    weights[1] = wall_share
    cells = rng.choice(CODES, (N, 15, 8), p=weights)
    cells[:, [0, -1]] = cells[:, :, [0, -1]] = WALL_CELL
    some_grid = np.full((15, 8), EMPTY_CELL, np.uint8)
    some_grid[[0, -1]] = some_grid[:, [0, -1]] = WALL_CELL
    one = ella.world.load(
        TASKS["goto-maze"],
        {"grid": np.asarray(decode_cells(some_grid)), "agent_pos": (1, 1), "agent_dir": 0,
         "mission": "go to the red ball"},
    )  # fmt: skip
    many = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (N, *leaf.shape)), one)
    return replace(
        many,
        cells=jnp.asarray(cells),
        agent_pos=jnp.asarray(rng.integers([1, 1], [14, 7], (N, 2)).astype(np.int32)),
        agent_dir=jnp.asarray(rng.integers(0, 4, N).astype(np.int32)),
        carrying=jnp.asarray(rng.choice([0, cell_of(KEY, 1), cell_of(BOX, 0)], N).astype(np.uint8)),
    )


def expected_view(cells: np.ndarray, pos: np.ndarray, direction: int, hand: int) -> np.ndarray:
    """The view by minigrid's definition, one cell at a time."""
    forward = DIRECTION_VECTORS[direction]
    right = np.array([-forward[1], forward[0]])
    view = np.full((7, 7), WALL_CELL, np.uint8)
    for i, j in np.ndindex(7, 7):
        x, y = pos + forward * (6 - j) + right * (i - 3)
        if 0 <= x < cells.shape[0] and 0 <= y < cells.shape[1]:
            view[i, j] = cells[x, y]
    lit = np.zeros((7, 7), bool)
    lit[3, 6] = True
    for j in reversed(range(7)):
        for columns, side in ((range(6), 1), (range(6, 0, -1), -1)):
            for i in columns:
                if lit[i, j] and view[i, j] not in OPAQUE:
                    lit[i + side, j] = True
                    if j > 0:
                        lit[i + side, j - 1] = lit[i, j - 1] = True
    view[~lit] = UNSEEN_CELL
    view[3, 6] = hand or EMPTY_CELL
    return view


@pytest.mark.parametrize("wall_share", [0.05, 0.3, 0.5])
def test_view_of_random_grids(wall_share: float) -> None:
    states = random_states(wall_share, seed=int(100 * wall_share))
    views = np.asarray(jax.jit(jax.vmap(view_cells))(states))
    host = jax.device_get(states)
    for n in range(N):
        expected = expected_view(
            host.cells[n], host.agent_pos[n], int(host.agent_dir[n]), int(host.carrying[n])
        )
        np.testing.assert_array_equal(views[n], expected, f"state {n}")
