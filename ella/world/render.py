"""RGB frames in minigrid's look, and coloured text for terminals (host, NumPy).

A tile is a stack of shapes on the unit square, x to the right and y downwards. Every pixel is
the mean of a few sample points, so edges come out smooth.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from ella.world.encoding import (
    BALL,
    BOX,
    CLOSED_DOOR,
    COLOUR_NAMES,
    DIRECTION_VECTORS,
    DOOR,
    KEY,
    LOCKED_DOOR,
    TYPE_NAMES,
    UNSEEN,
    VIEW_SIZE,
    WALL,
    colour_of,
    encode_triples,
    kind_of,
)

TILE_SIZE = 32
SAMPLES = 3
"""Sample points along each side of a pixel."""

COLOURS = np.array(
    [(255, 0, 0), (0, 255, 0), (0, 0, 255), (112, 39, 195), (255, 255, 0), (100, 100, 100)],
    dtype=np.float64,
)
"""RGB by colour number (`encoding.COLOUR_NAMES`)."""
GRID_LINE = np.array((100, 100, 100), dtype=np.float64)
AGENT_COLOUR = np.array((255, 0, 0), dtype=np.float64)
HIGHLIGHT = 0.3
"""How far a cell in view is pulled towards white."""

Rectangle = tuple[float, float, float, float]
"""(left, top, right, bottom)."""
Disc = tuple[float, float, float]
"""(centre x, centre y, radius)."""

FULL: Rectangle = (0.0, 0.0, 1.0, 1.0)
GRID_LINES: tuple[Rectangle, ...] = ((0.0, 0.0, 0.031, 1.0), (0.0, 0.0, 1.0, 0.031))
SHAPES: dict[int, tuple[tuple[Rectangle | Disc, float], ...]] = {
    WALL: ((FULL, 1.0),),
    DOOR: (((0.88, 0.0, 1.0, 1.0), 1.0), ((0.92, 0.04, 0.96, 0.96), 0.0)),
    CLOSED_DOOR: (
        (FULL, 1.0),
        ((0.04, 0.04, 0.96, 0.96), 0.0),
        ((0.08, 0.08, 0.92, 0.92), 1.0),
        ((0.12, 0.12, 0.88, 0.88), 0.0),
        ((0.75, 0.5, 0.08), 1.0),
    ),
    LOCKED_DOOR: (
        (FULL, 1.0),
        ((0.06, 0.06, 0.94, 0.94), 0.45),
        ((0.52, 0.5, 0.75, 0.56), 1.0),
    ),
    KEY: (
        ((0.5, 0.31, 0.63, 0.88), 1.0),
        ((0.38, 0.59, 0.5, 0.66), 1.0),
        ((0.38, 0.81, 0.5, 0.88), 1.0),
        ((0.56, 0.28, 0.19), 1.0),
        ((0.56, 0.28, 0.064), 0.0),
    ),
    BALL: (((0.5, 0.5, 0.31), 1.0),),
    BOX: (
        ((0.12, 0.12, 0.88, 0.88), 1.0),
        ((0.18, 0.18, 0.82, 0.82), 0.0),
        ((0.16, 0.47, 0.84, 0.53), 1.0),
    ),
}
"""Per kind, shapes from bottom to top with the brightness of the object's colour they get."""

AGENT_NOSE, AGENT_TAIL, AGENT_HALF_WIDTH = 0.37, -0.38, 0.31
"""The agent's triangle, relative to the tile's centre, along and across its heading."""

GLYPHS = {DOOR: "▏▕", CLOSED_DOOR: "▐▌", LOCKED_DOOR: "▓▓", KEY: "o╤", BALL: "● ", BOX: "▣ "}
"""Two characters per kind in `text_frame`; locked doors are filled, open ones hollow."""
AGENT_GLYPHS = (" ►", "▼ ", "◄ ", "▲ ")
TEXT_COLOURS = (196, 46, 33, 135, 226, 250)
"""Terminal palette entries by colour number, bright enough on a dark floor."""
WALL_SHADE, LIT_WALL_SHADE, FLOOR_SHADE, LIT_FLOOR_SHADE = 240, 246, 233, 238
AGENT_SHADE, AGENT_INK = 160, 231


def frame(
    description: Mapping[str, Any], *, view: np.ndarray | None = None, tile_size: int = TILE_SIZE
) -> np.ndarray:
    """A picture uint8[H * tile_size, W * tile_size, 3] of a whole level.

    `description` is what `ella.world.describe` returns. With `view`, the observation's image
    uint8[7, 7, 3] at that moment, the cells the agent sees are highlighted.
    """
    cells, (x, y), heading, lit = _parts(description, view)
    columns = [
        np.concatenate(
            [
                tile(int(cells[i, j]), heading if (i, j) == (x, y) else None, lit[i, j], tile_size)
                for j in range(cells.shape[1])
            ]
        )
        for i in range(cells.shape[0])
    ]
    return np.concatenate(columns, axis=1)


def text_frame(description: Mapping[str, Any], *, view: np.ndarray | None = None) -> str:
    """A level as lines of coloured text, two characters a cell; arguments as for `frame`."""
    cells, (x, y), heading, lit = _parts(description, view)
    lines = []
    for j in range(cells.shape[1]):
        line = []
        for i in range(cells.shape[0]):
            kind, colour = kind_of(int(cells[i, j])), colour_of(int(cells[i, j]))
            shade = LIT_FLOOR_SHADE if lit[i, j] else FLOOR_SHADE
            glyph, ink = GLYPHS.get(kind, "  "), TEXT_COLOURS[colour]
            if kind == WALL:
                shade = LIT_WALL_SHADE if lit[i, j] else WALL_SHADE
            if (i, j) == (x, y):
                glyph, ink, shade = AGENT_GLYPHS[heading], AGENT_INK, AGENT_SHADE
            line.append(f"\x1b[48;5;{shade}m\x1b[38;5;{ink}m{glyph}")
        lines.append("".join(line) + "\x1b[0m")
    return "\n".join(lines)


def text_object(type_name: str, colour_name: str) -> str:
    """An object's coloured glyph and its name, as `text_frame` shows it."""
    colour = TEXT_COLOURS[COLOUR_NAMES.index(colour_name)]
    glyph = GLYPHS[TYPE_NAMES.index(type_name)].strip()
    return f"\x1b[38;5;{colour}m{glyph}\x1b[0m {colour_name} {type_name}"


def _parts(
    description: Mapping[str, Any], view: np.ndarray | None
) -> tuple[np.ndarray, tuple[int, int], int, np.ndarray]:
    """(cell codes [W, H], agent position, heading, cells in view bool[W, H])."""
    cells = encode_triples(description["grid"])
    x, y = (int(value) for value in description["agent_pos"])
    heading = int(description["agent_dir"])
    if view is None:
        return cells, (x, y), heading, np.zeros(cells.shape, bool)
    return cells, (x, y), heading, cells_in_view(cells.shape, (x, y), heading, view)


def cells_in_view(
    shape: tuple[int, ...], agent_pos: tuple[int, int], agent_dir: int, view: np.ndarray
) -> np.ndarray:
    """Which cells bool[W, H] of a level the agent sees in its egocentric image uint8[7, 7, 3]."""
    ahead = DIRECTION_VECTORS[agent_dir]
    right = DIRECTION_VECTORS[(agent_dir + 1) % 4]
    column, row = np.nonzero(np.asarray(view)[..., 0] != UNSEEN)
    positions = (
        np.asarray(agent_pos)
        + (VIEW_SIZE - 1 - row)[:, None] * ahead
        + (column - VIEW_SIZE // 2)[:, None] * right
    )
    inside = np.all((positions >= 0) & (positions < np.asarray(shape[:2])), axis=1)
    lit = np.zeros(shape[:2], bool)
    lit[tuple(positions[inside].T)] = True
    return lit


@lru_cache(maxsize=4096)
def tile(cell: int, agent_dir: int | None, lit: bool, tile_size: int) -> np.ndarray:
    """One cell's picture uint8[tile_size, tile_size, 3]; `agent_dir` draws the agent on it."""
    samples = tile_size * SAMPLES
    centres = (np.arange(samples) + 0.5) / samples
    x, y = np.meshgrid(centres, centres)
    canvas = np.zeros((samples, samples, 3))
    for line in GRID_LINES:
        canvas[_covers(line, x, y)] = GRID_LINE
    for shape, brightness in SHAPES.get(int(kind_of(cell)), ()):
        canvas[_covers(shape, x, y)] = np.floor(brightness * COLOURS[colour_of(cell)])
    if agent_dir is not None:
        canvas[_agent_covers(agent_dir, x, y)] = AGENT_COLOUR
    if lit:
        canvas = np.floor(canvas + HIGHLIGHT * (255 - canvas))
    pixels = canvas.reshape(tile_size, SAMPLES, tile_size, SAMPLES, 3).mean(axis=(1, 3))
    picture = pixels.astype(np.uint8)
    picture.flags.writeable = False
    return picture


def _covers(shape: Rectangle | Disc, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if len(shape) == 4:
        left, top, right, bottom = shape
        return (left <= x) & (x <= right) & (top <= y) & (y <= bottom)
    centre_x, centre_y, radius = shape
    return np.hypot(x - centre_x, y - centre_y) <= radius


def _agent_covers(agent_dir: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    ahead_x, ahead_y = DIRECTION_VECTORS[agent_dir]
    along = (x - 0.5) * ahead_x + (y - 0.5) * ahead_y
    across = (y - 0.5) * ahead_x - (x - 0.5) * ahead_y
    half_width = AGENT_HALF_WIDTH * (AGENT_NOSE - along) / (AGENT_NOSE - AGENT_TAIL)
    return (along >= AGENT_TAIL) & (np.abs(across) <= half_width)
