"""Minigrid's numbers, and the one-byte cell code the world computes with.

A minigrid cell is a triple (type, colour, state). Only doors have a state, so a
cell fits in one byte: the low four bits are the *kind* and the high four bits
the colour. Kinds are minigrid's type numbers, plus two for doors that are not
open; an open door's kind is the type `DOOR`.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

UNSEEN, EMPTY, WALL, FLOOR, DOOR, KEY, BALL, BOX, GOAL, LAVA, AGENT = range(11)
CLOSED_DOOR, LOCKED_DOOR = 11, 12
"""Kinds of doors that are not open; `kind - 10` is minigrid's door state."""

TYPE_NAMES = (
    "unseen", "empty", "wall", "floor", "door", "key", "ball", "box", "goal", "lava", "agent",
)  # fmt: skip
MOVABLE_TYPES = (KEY, BALL, BOX)
COLOUR_NAMES = ("red", "green", "blue", "purple", "yellow", "grey")
GREY = 5
NUM_TYPES, NUM_COLOURS, NUM_STATES = 11, 6, 3

OPEN, CLOSED, LOCKED = 0, 1, 2

LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE, DONE = range(7)
ACTION_NAMES = ("left", "right", "forward", "pickup", "drop", "toggle", "done")
NUM_ACTIONS = 7

DIRECTION_VECTORS = np.array([(1, 0), (0, 1), (-1, 0), (0, -1)], dtype=np.int32)
"""(dx, dy) for directions 0 (right), 1 (down), 2 (left), 3 (up)."""

VIEW_SIZE = 7

UNSEEN_CELL = UNSEEN
EMPTY_CELL = EMPTY
WALL_CELL = WALL | GREY << 4


def cell_of(kind: Any, colour: Any) -> Any:
    """The cell code of a kind and a colour (both arrays or integers)."""
    return kind | colour << 4


def kind_of(cell: Any) -> Any:
    """The kind (0..12) of a cell code."""
    return cell & 15


def colour_of(cell: Any) -> Any:
    """The colour (0..5) of a cell code."""
    return cell >> 4


def object_class(cell: Any) -> Any:
    """The (type, colour) class of a cell as a cell code: every door counts as open."""
    return jnp.where(kind_of(cell) > AGENT, cell & 0xF0 | DOOR, cell)


def encode_triples(triples: np.ndarray) -> np.ndarray:
    """uint8[..., 3] in minigrid's encoding to cell codes uint8[...] (host)."""
    triples = np.asarray(triples)
    type_, colour, state = triples[..., 0], triples[..., 1], triples[..., 2]
    kind = np.where((type_ == DOOR) & (state > 0), state + 10, type_)
    return (kind | colour << 4).astype(np.uint8)


def decode_cells(cells: Any) -> Any:
    """Cell codes uint8[...] to minigrid's uint8[..., 3] (traced or host)."""
    xp: Any = np if isinstance(cells, np.ndarray) else jnp
    cells = xp.asarray(cells, xp.uint8)[..., None]
    kind = kind_of(cells)
    not_open = kind > AGENT
    type_ = xp.where(not_open, DOOR, kind)
    state = xp.where(not_open, kind - 10, 0)
    # A select by channel fuses into the loop over cells; a stack of channels does not.
    channel = xp.arange(3)
    decoded = xp.where(channel == 0, type_, xp.where(channel == 1, colour_of(cells), state))
    return decoded.astype(xp.uint8)
