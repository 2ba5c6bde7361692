"""The room grid: where walls, doors and objects may stand, and what can be reached.

Sets of cells are bit columns, uint32[W, words]: bit `y % 32` of word `y // 32` in row `x` stands
for the cell (x, y). Everything about the geometry is a NumPy constant; random choices are made
from uint32 words given by the caller, so that one level costs one call of the generator.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, UInt32

from ella.world.encoding import DIRECTION_VECTORS, NUM_COLOURS

DILATIONS_PER_CHECK = 8
"""Flood-fill steps between two tests for the fixed point."""
NEVER = np.uint32(2**32 - 1)
"""Priority of a door that must not be added."""


class Doors(NamedTuple):
    """One entry per pair of neighbouring rooms, whether it has a door or not."""

    x: Int32[Array, " E"]
    y: Int32[Array, " E"]
    colour: Int32[Array, " E"]
    present: Bool[Array, " E"]
    locked: Bool[Array, " E"]


class Objects(NamedTuple):
    """The key of the locked room (where a spec may have one), then the distractors."""

    x: Int32[Array, " K"]
    y: Int32[Array, " K"]
    room: Int32[Array, " K"]
    present: Bool[Array, " K"]


def uniform_index(words: UInt32[Array, "*n"], count: Array | int) -> Int32[Array, "*n"]:
    """Uniform integers in [0, count) from 32-bit words; count below 2**16."""
    high, low = words >> 16, words & 0xFFFF
    count = jnp.asarray(count, jnp.uint32)
    return ((high * count + (low * count >> 16)) >> 16).astype(jnp.int32)


def distinct_indices(
    choices: Int32[Array, " K"],
    remaining: Int32[Array, " K"],
    earlier: Bool[Array, "K K"],
) -> Int32[Array, " K"]:
    """Draws without replacement, several pools at once.

    `earlier[m, t]`: draw t comes before draw m and from the same pool; `choices[m]` is uniform
    below `remaining[m]`, the elements left in its pool. As in a Fisher-Yates shuffle each draw
    moves the pool's last element into the gap it leaves; here the moves are replayed backwards.
    """
    values = choices
    for t in reversed(range(choices.shape[0])):
        moved = earlier[:, t] & (values == choices[t])
        values = jnp.where(moved, remaining[t] - 1, values)
    return values


def nth_set_bit(word: UInt32[Array, ""], n: Int32[Array, ""]) -> Int32[Array, ""]:
    """Position of the set bit that has n set bits below it."""
    position = jnp.zeros_like(n)
    for width in (16, 8, 4, 2, 1):
        below = word >> position.astype(jnp.uint32) & np.uint32((1 << width) - 1)
        count = jax.lax.population_count(below).astype(jnp.int32)
        above = n >= count
        n = jnp.where(above, n - count, n)
        position = jnp.where(above, position + width, position)
    return position


@dataclass(frozen=True)
class RoomGrid:
    """Geometry of rows x cols rooms; room r stands in row r // cols and column r % cols."""

    rows: int
    cols: int
    room_size: int

    @property
    def width(self) -> int:
        return self.cols * (self.room_size - 1) + 1

    @property
    def height(self) -> int:
        return self.rows * (self.room_size - 1) + 1

    @property
    def num_rooms(self) -> int:
        return self.rows * self.cols

    @property
    def side(self) -> int:
        """Cells along a room's side, walls not included."""
        return self.room_size - 2

    @property
    def words(self) -> int:
        return -(-self.height // 32)

    @cached_property
    def middle(self) -> tuple[int, int]:
        """Where the agent stands for the time being while objects are placed."""
        step, half = self.room_size - 1, self.room_size // 2
        return self.cols // 2 * step + half, self.rows // 2 * step + half

    @cached_property
    def interiors(self) -> np.ndarray:
        """int32[R, side^2, 2]: the cells (x, y) inside each room."""
        offsets = 1 + np.array([(x, y) for x in range(self.side) for y in range(self.side)])
        rooms = np.array([(r % self.cols, r // self.cols) for r in range(self.num_rooms)])
        corners = rooms[:, None] * (self.room_size - 1)
        return (corners + offsets).astype(np.int32)

    @cached_property
    def room_columns(self) -> np.ndarray:
        """uint32[R, W, words]: the inside of each room as bit columns."""
        columns = np.zeros((self.num_rooms, self.width, self.words), np.uint32)
        for room, cells in enumerate(self.interiors):
            for x, y in cells:
                columns[room, x, y // 32] |= np.uint32(1 << y % 32)
        return columns

    @cached_property
    def edges(self) -> np.ndarray:
        """int32[E, 2]: pairs of neighbouring rooms."""
        rooms = np.arange(self.num_rooms).reshape(self.rows, self.cols)
        beside = np.stack([rooms[:, :-1].ravel(), rooms[:, 1:].ravel()], axis=1)
        below = np.stack([rooms[:-1].ravel(), rooms[1:].ravel()], axis=1)
        return np.concatenate([beside, below]).astype(np.int32)

    @cached_property
    def walls(self) -> tuple[np.ndarray, np.ndarray]:
        """(int32[E, 2] first cell a door may take, int32[E, 2] step to the next) per edge."""
        step = self.room_size - 1
        first, second = self.edges.T
        across = first // self.cols == second // self.cols
        x = first % self.cols * step
        y = first // self.cols * step
        beside, below = np.stack([x + step, y + 1], 1), np.stack([x + 1, y + step], 1)
        start = np.where(across[:, None], beside, below)
        return start.astype(np.int32), np.where(across[:, None], [0, 1], [1, 0]).astype(np.int32)

    @cached_property
    def edge_between(self) -> np.ndarray:
        """int32[R, R]: the edge between two rooms, E where there is none."""
        table = np.full((self.num_rooms, self.num_rooms), len(self.edges), np.int32)
        for edge, (a, b) in enumerate(self.edges):
            table[a, b] = table[b, a] = edge
        return table

    @cached_property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """(int32[R, side^2, 2] cells, int32[R] counts) that may take an object while the agent
        stands in the middle."""
        return self._away_from([self.middle] * self.num_rooms, self.interiors)

    @cached_property
    def places_by_agent(self) -> tuple[np.ndarray, np.ndarray]:
        """The same inside room 0, per cell of that room that the agent may stand in."""
        cells = self.interiors[0]
        return self._away_from(cells, np.broadcast_to(cells, (len(cells), *cells.shape)))

    def _away_from(self, agents: object, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Per row, the cells at Manhattan distance at least 2 from that row's agent."""
        distance = np.abs(cells - np.asarray(agents)[:, None]).sum(-1)
        order = np.argsort(distance < 2, axis=1, kind="stable")
        kept = np.take_along_axis(cells, order[..., None], axis=1)
        return kept.astype(np.int32), (distance >= 2).sum(1).astype(np.int32)

    def bit_columns(self, x: Array, y: Array, present: Array) -> UInt32[Array, "W words"]:
        """The set of the cells (x, y)[K] that are present; no cell may be given twice."""
        column = jnp.arange(self.width)[:, None]
        word = jnp.arange(self.words)[None, :]
        here = present & (column[..., None] == x) & (word[..., None] == y >> 5)
        return jnp.sum(jnp.where(here, jnp.uint32(1) << (y & 31).astype(jnp.uint32), 0), axis=-1)


@lru_cache(maxsize=64)
def room_grid(rows: int, cols: int, room_size: int) -> RoomGrid:
    """The one RoomGrid of these sizes."""
    return RoomGrid(rows, cols, room_size)


def shifted(columns: UInt32[Array, "W words"], direction: int) -> UInt32[Array, "W words"]:
    """Every cell moved one step in a direction (0 right, 1 down, 2 left, 3 up)."""
    dx, dy = DIRECTION_VECTORS[direction]
    if dx:
        pad = ((1, 0), (0, 0)) if dx > 0 else ((0, 1), (0, 0))
        padded = jnp.pad(columns, pad)
        return padded[:-1] if dx > 0 else padded[1:]
    if dy > 0:
        carried = jnp.pad(columns[:, :-1] >> 31, ((0, 0), (1, 0)))
        return columns << 1 | carried
    carried = jnp.pad(columns[:, 1:] << 31, ((0, 0), (0, 1)))
    return columns >> 1 | carried


def dilated(columns: UInt32[Array, "W words"]) -> UInt32[Array, "W words"]:
    """The cells and their four neighbours."""
    result = columns
    for direction in range(4):
        result = result | shifted(columns, direction)
    return result


def reachable(
    passable: UInt32[Array, "W words"], start: UInt32[Array, "W words"]
) -> UInt32[Array, "W words"]:
    """The passable cells connected to `start`."""

    def grow(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        reached, _ = carry
        grown = reached
        for _ in range(DILATIONS_PER_CHECK):
            grown = dilated(grown) & passable
        return grown, jnp.any(grown != reached)

    reached, _ = jax.lax.while_loop(lambda carry: carry[1], grow, (start, jnp.bool_(True)))
    return reached


def connect_rooms(
    grid: RoomGrid,
    words: UInt32[Array, "3 E"],
    locked_edge: Int32[Array, ""],
    locked_room: Int32[Array, ""],
) -> tuple[Doors, Bool[Array, ""]]:
    """Doors until every room is connected, and whether that was possible.

    Minigrid adds doors between random neighbours, also between rooms already connected, and stops
    when all rooms are; a locked room gets no second door. That is adding edges in a random order
    up to the last one needed: the largest edge of a minimum spanning tree. Without a locked room,
    pass -1 for both.
    """
    places, colours, order = words
    locked = np.arange(len(grid.edges)) == locked_edge
    priority = order >> 1
    priority = jnp.where(jnp.any(grid.edges == locked_room, axis=1), NEVER, priority)
    priority = jnp.where(locked, jnp.uint32(0), priority)
    if grid.num_rooms == 2:
        needed = priority[0]
    else:
        # needed[a, b]: over all paths from a to b the least of their largest edges.
        weight = jnp.append(priority, NEVER)[grid.edge_between]
        weight = jnp.where(np.eye(grid.num_rooms, dtype=bool), jnp.uint32(0), weight)
        for k in range(grid.num_rooms):
            weight = jnp.minimum(weight, jnp.maximum(weight[:, k, None], weight[None, k, :]))
        needed = jnp.max(weight)
    start, step = grid.walls
    offset = uniform_index(places, grid.side)
    doors = Doors(
        x=start[:, 0] + step[:, 0] * offset,
        y=start[:, 1] + step[:, 1] * offset,
        colour=uniform_index(colours, NUM_COLOURS),
        present=(priority <= needed) & (priority != NEVER),
        locked=locked,
    )
    return doors, needed != NEVER


def place_objects(
    cells: Int32[Array, "R N 2"],
    counts: Int32[Array, " R"],
    room: Int32[Array, " K"],
    present: Bool[Array, " K"],
    words: UInt32[Array, " K"],
) -> tuple[Objects, Bool[Array, ""]]:
    """Objects on uniform free cells of their rooms, one after the other, and whether they fit."""
    num = words.shape[0]
    same_room = (room[:, None] == room[None, :]) & present[None, :]
    earlier = same_room & np.tri(num, k=-1, dtype=bool)
    remaining = counts[room] - jnp.sum(earlier, axis=1)
    choices = uniform_index(words, jnp.maximum(remaining, 1))
    place = cells[room, distinct_indices(choices, remaining, earlier)]
    fit = jnp.all((remaining > 0) | ~present)
    return Objects(x=place[:, 0], y=place[:, 1], room=room, present=present), fit


def place_agent(
    columns: UInt32[Array, "W words"],
    free: UInt32[Array, "W words"],
    blocking: UInt32[Array, "W words"],
    word: UInt32[Array, ""],
) -> tuple[Int32[Array, "2"], Int32[Array, ""], Bool[Array, ""]]:
    """(position, direction, whether there is one): uniform over the free cells in `columns` and
    the directions whose front cell is not `blocking` (an object or a door; a wall is fine)."""
    width, words = free.shape
    # Moving the unblocked cells against the direction brings each front cell to its agent's cell.
    fronts = [shifted(~blocking, (direction + 2) % 4) for direction in range(4)]
    choices = (jnp.stack(fronts) & free & columns).reshape(-1)
    totals = jnp.cumsum(jax.lax.population_count(choices).astype(jnp.int32))
    count = totals[-1]
    n = uniform_index(word, jnp.maximum(count, 1))
    slot = jnp.sum(totals <= n)
    chosen = jnp.arange(choices.shape[0]) == slot
    below = jnp.sum(jnp.where(chosen, totals, 0))
    bits = jnp.sum(jnp.where(chosen, choices, 0))
    before = below - jax.lax.population_count(bits).astype(jnp.int32)
    bit = nth_set_bit(bits, n - before)
    direction, rest = slot // (width * words), slot % (width * words)
    position = jnp.stack([rest // words, rest % words * 32 + bit]).astype(jnp.int32)
    return position, direction.astype(jnp.int32), count > 0
