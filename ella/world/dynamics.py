"""What an action does to the world, before anyone asks whether the task is solved."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32, UInt8

from ella.world.encoding import (
    BOX,
    CLOSED_DOOR,
    DOOR,
    DROP,
    EMPTY,
    EMPTY_CELL,
    FORWARD,
    KEY,
    LEFT,
    LOCKED_DOOR,
    PICKUP,
    RIGHT,
    TOGGLE,
    kind_of,
)
from ella.world.state import State


def step_towards(
    direction: Int32[Array, ""],
) -> tuple[Int32[Array, ""], Int32[Array, ""]]:
    """(dx, dy) of one step in `direction`."""
    right, down, left, up = ((direction == d).astype(jnp.int32) for d in range(4))
    return right - left, down - up


def front_of(
    pos: Int32[Array, "2"], direction: Int32[Array, ""]
) -> tuple[Int32[Array, ""], Int32[Array, ""]]:
    """(x, y) of the cell before an agent at `pos` that looks in `direction`."""
    dx, dy = step_towards(direction)
    return pos[0] + dx, pos[1] + dy


def cell_at(cells: UInt8[Array, "W H"], x: Array, y: Array) -> UInt8[Array, "*shape"]:
    """The cells at coordinates inside the grid (arrays of one shape)."""
    flat = cells.reshape(-1)
    return flat.at[x * cells.shape[1] + y].get(
        mode="promise_in_bounds", wrap_negative_indices=False
    )


def act(state: State, action: Int32[Array, ""]) -> State:
    """The state after one action: time, agent, hand and grid.

    What the verifier keeps (`remembered_cells`, `clause_done`, `previous_carrying`) is left as
    it was; `ella.world.verifier.verify` comes next.
    """
    action = jnp.asarray(action, jnp.int32)
    x, y = front_of(state.agent_pos, state.agent_dir)
    front = cell_at(state.cells, x, y)
    kind = kind_of(front)
    carrying = state.carrying
    turn = (action == RIGHT).astype(jnp.int32) - (action == LEFT).astype(jnp.int32)
    moves = (action == FORWARD) & ((kind == EMPTY) | (kind == DOOR))
    picks = (action == PICKUP) & (kind >= KEY) & (kind <= BOX) & (carrying == 0)
    drops = (action == DROP) & (kind == EMPTY) & (carrying > 0)

    left_in_front = jnp.where(action == TOGGLE, _toggled(front, carrying), front)
    left_in_front = jnp.where(picks, jnp.uint8(EMPTY_CELL), left_in_front)
    left_in_front = jnp.where(drops, carrying, left_in_front)
    return replace(
        state,
        cells=_with_cell(state.cells, x, y, left_in_front),
        agent_pos=jnp.where(moves, jnp.stack([x, y]), state.agent_pos),
        agent_dir=(state.agent_dir + turn) & 3,
        carrying=jnp.where(picks, front, jnp.where(drops, jnp.uint8(0), carrying)),
        step_count=state.step_count + 1,
    )


def _toggled(cell: UInt8[Array, ""], carrying: UInt8[Array, ""]) -> UInt8[Array, ""]:
    """What a toggle makes of a cell: a box vanishes with its (never any) contents, and a locked
    door opens to the key of its colour and stays unlocked."""
    kind, colour_bits = kind_of(cell), cell & 0xF0
    unlocks = (kind == LOCKED_DOOR) & (carrying == (KEY | colour_bits))
    opens = (kind == CLOSED_DOOR) | unlocks
    cell = jnp.where(kind == DOOR, CLOSED_DOOR | colour_bits, cell)
    cell = jnp.where(opens, DOOR | colour_bits, cell)
    return jnp.where(kind == BOX, jnp.uint8(EMPTY_CELL), cell)


def _with_cell(
    cells: UInt8[Array, "W H"], x: Array, y: Array, value: UInt8[Array, ""]
) -> UInt8[Array, "W H"]:
    """`cells` with one replaced. A select over the grid is cheaper than a batched scatter."""
    width, height = cells.shape
    here = jax.lax.iota(jnp.int32, width * height) == x * height + y
    return jnp.where(here.reshape(width, height), value, cells)
