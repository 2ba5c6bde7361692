"""The agent's egocentric view, with what walls and closed doors hide left out."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32, UInt8

from ella.world.dynamics import cell_at, step_towards
from ella.world.encoding import (
    CLOSED_DOOR,
    EMPTY_CELL,
    UNSEEN_CELL,
    VIEW_SIZE,
    WALL,
    decode_cells,
    kind_of,
)
from ella.world.state import State

_AGENT_COLUMN, _AGENT_ROW = VIEW_SIZE // 2, VIEW_SIZE - 1
_ALL = (1 << VIEW_SIZE) - 1


def view_image(state: State) -> UInt8[Array, "7 7 3"]:
    """What the agent sees now, in minigrid's encoding [column, row, channel]."""
    return decode_cells(view_cells(state))


@jax.jit
def view_cells(state: State) -> UInt8[Array, "7 7"]:
    """What the agent sees now as cell codes [column, row]; the agent sits at (3, 6) and its own
    cell shows what it carries."""
    cells = _facing_cells(state)
    visible = _visible(cells)
    seen = jnp.where(visible, cells, jnp.uint8(UNSEEN_CELL))
    hand = jnp.where(state.carrying > 0, state.carrying, jnp.uint8(EMPTY_CELL))
    column, row = _columns_and_rows()
    is_agent = (column == _AGENT_COLUMN) & (row == _AGENT_ROW)
    return jnp.where(is_agent, hand, seen)


def _columns_and_rows() -> tuple[Int32[Array, "7 1"], Int32[Array, "1 7"]]:
    index = jnp.arange(VIEW_SIZE, dtype=jnp.int32)
    return index[:, None], index[None, :]


def _facing_cells(state: State) -> UInt8[Array, "7 7"]:
    """The 7x7 cells before and beside the agent, turned so that it looks up.

    The outermost cells of every grid are walls, so clipping a coordinate to the grid gives the
    wall that stands for everything outside.
    """
    column, row = _columns_and_rows()
    ahead, aside = _AGENT_ROW - row, column - _AGENT_COLUMN
    fx, fy = step_towards(state.agent_dir)
    x = state.agent_pos[0] + fx * ahead - fy * aside
    y = state.agent_pos[1] + fy * ahead + fx * aside
    width, height = state.cells.shape
    return cell_at(state.cells, jnp.clip(x, 0, width - 1), jnp.clip(y, 0, height - 1))


def _visible(cells: UInt8[Array, "7 7"]) -> Bool[Array, "7 7"]:
    """Which cells of the turned view light reaches.

    A row is a 7-bit number, bit i for column i. From the agent's row upwards light spreads right
    and then left through transparent cells of the row; every cell it passes lights the two
    nearest cells of the next row on that side.
    """
    kind = kind_of(cells)
    transparent = (kind != WALL) & (kind < CLOSED_DOOR)
    column, row = _columns_and_rows()
    clear_rows = jnp.sum(transparent.astype(jnp.int32) << column, axis=0)

    lit = jnp.int32(1 << _AGENT_COLUMN)
    lit_rows = [lit] * VIEW_SIZE
    for j in reversed(range(VIEW_SIZE)):
        clear = clear_rows[j]
        lit = _spread(lit, clear, left=False)
        rightward = lit & clear & (_ALL >> 1)
        lit = _spread(lit, clear, left=True)
        leftward = lit & clear & (_ALL - 1)
        lit_rows[j] = lit
        lit = rightward | rightward << 1 | leftward | leftward >> 1
    # Two words instead of a stack of rows: XLA then computes the chain once, not once per cell.
    far = lit_rows[0] | lit_rows[1] << 7 | lit_rows[2] << 14
    near = lit_rows[3] | lit_rows[4] << 7 | lit_rows[5] << 14 | lit_rows[6] << 21
    bit = VIEW_SIZE * jnp.where(row < 3, row, row - 3) + column
    return (jnp.where(row < 3, far, near) >> bit) & 1 == 1


def _spread(lit: Array, clear: Array, *, left: bool) -> Array:
    """Light one row along clear cells in one direction, by doubling distances."""

    def shift(bits: Array, by: int) -> Array:
        return bits >> by if left else bits << by

    passes = shift(clear, 1)
    for distance in (1, 2, 4):
        lit = lit | passes & shift(lit, distance)
        passes = passes & shift(passes, distance)
    return lit & _ALL
