"""Frames against minigrid's own renderer."""

import re

import numpy as np
import pytest
from minigrid.core.constants import COLOR_NAMES, COLORS
from minigrid.core.grid import Grid
from minigrid.core.world_object import Ball, Box, Door, Key, Wall
from minigrid.envs.babyai.core.levelgen import LevelGen

from ella.world.encoding import COLOUR_NAMES, encode_triples
from ella.world.render import COLOURS, cells_in_view, frame, text_frame, text_object, tile

SIZE = 16
OBJECTS = [None, Wall("grey")] + [
    thing
    for colour in COLOR_NAMES
    for thing in (
        Key(colour),
        Ball(colour),
        Box(colour),
        Door(colour, is_open=True),
        Door(colour),
        Door(colour, is_locked=True),
    )
]


def code_of(thing) -> int:
    triple = thing.encode() if thing is not None else (1, 0, 0)
    return int(encode_triples(np.array(triple)))


def difference(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    assert ours.shape == theirs.shape
    assert ours.dtype == np.uint8
    return np.abs(ours.astype(float) - theirs.astype(float))


def test_colours_are_minigrids():
    for name, rgb in zip(COLOUR_NAMES, COLOURS, strict=True):
        np.testing.assert_array_equal(rgb, COLORS[name])


@pytest.mark.parametrize("lit", [False, True])
@pytest.mark.parametrize("thing", OBJECTS, ids=lambda t: "empty" if t is None else f"{t.color}")
def test_every_object_looks_as_in_minigrid(thing, lit):
    theirs = Grid.render_tile(thing, highlight=lit, tile_size=SIZE).astype(np.uint8)
    gap = difference(tile(code_of(thing), None, lit, SIZE), theirs)
    assert gap.max() <= 1


@pytest.mark.parametrize("agent_dir", range(4))
@pytest.mark.parametrize("thing", [None, Door("blue", is_open=True)], ids=["floor", "door"])
def test_the_agent_looks_as_in_minigrid(thing, agent_dir):
    theirs = Grid.render_tile(thing, agent_dir=agent_dir, tile_size=SIZE).astype(np.uint8)
    gap = difference(tile(code_of(thing), agent_dir, False, SIZE), theirs)
    # Sample points that fall exactly on the triangle's edge may go either way.
    assert gap.mean() < 0.5
    other = tile(code_of(thing), (agent_dir + 1) % 4, False, SIZE)
    assert difference(other, theirs).mean() > 5


def test_different_things_have_different_pictures():
    pictures = {tile(code_of(thing), None, False, 16).tobytes() for thing in OBJECTS}
    assert len(pictures) == len(OBJECTS)


@pytest.fixture(scope="module")
def minigrid_level():
    env = LevelGen(
        room_size=8,
        num_rows=1,
        num_cols=2,
        num_dists=8,
        locations=False,
        unblocking=False,
        action_kinds=["pickup"],
        instr_kinds=["action"],
        render_mode="rgb_array",
    )
    env.tile_size = SIZE
    return env


@pytest.mark.parametrize("highlight", [False, True])
def test_whole_frames_along_random_walks(minigrid_level, highlight):
    env = minigrid_level
    env.highlight = highlight
    rng = np.random.default_rng(0)
    headings = set()
    for seed in range(3):
        observation, _ = env.reset(seed=seed)
        for _ in range(12):
            description = {
                "grid": env.grid.encode(),
                "agent_pos": env.agent_pos,
                "agent_dir": env.agent_dir,
            }
            ours = frame(
                description, view=observation["image"] if highlight else None, tile_size=SIZE
            )
            gap = difference(ours, env.render().astype(np.uint8))
            # Well under one grey level a pixel, and never more than a few edge pixels apart.
            assert gap.mean() < 0.05
            assert (gap.max(axis=-1) > 8).sum() < 64
            headings.add(env.agent_dir)
            observation = env.step(rng.choice([0, 1, 2, 2, 2, 3, 4, 5]))[0]
    assert headings == {0, 1, 2, 3}


def test_the_view_is_turned_into_the_level():
    view = np.zeros((7, 7, 3), np.uint8)
    view[3, 6, 0] = view[3, 5, 0] = view[4, 6, 0] = 1  # the agent, the cell ahead, one to the right
    for heading, ahead, right in [
        (0, (5, 4), (4, 5)),
        (1, (4, 5), (3, 4)),
        (2, (3, 4), (4, 3)),
        (3, (4, 3), (5, 4)),
    ]:
        lit = cells_in_view((8, 8), (4, 4), heading, view)
        assert {tuple(map(int, cell)) for cell in np.argwhere(lit)} == {(4, 4), ahead, right}


def test_cells_outside_the_level_are_not_lit():
    view = np.ones((7, 7, 3), np.uint8)
    assert cells_in_view((8, 8), (1, 1), 2, view).sum() == 2 * 5


def cells_of(line: str) -> list[tuple[str, str]]:
    """(escape sequences, two characters) of every cell in a line of `text_frame`."""
    return re.findall(r"((?:\x1b\[[0-9;]+m)+)(..)", line.removesuffix("\x1b[0m"))


def test_text_frames_tell_everything_apart():
    things = [thing for thing in OBJECTS if thing is not None]
    grid = np.full((len(things) + 1, 1, 3), (1, 0, 0), np.uint8)
    grid[1:, 0] = [thing.encode() for thing in things]
    pictures = set()
    for heading in range(4):
        description = {"grid": grid, "agent_pos": (0, 0), "agent_dir": heading}
        (line,) = text_frame(description).split("\n")
        agent, *others = cells_of(line)
        assert len(others) == len(things)
        assert len({agent, *others}) == len(things) + 1
        pictures.add(agent)
    assert len(pictures) == 4


def test_text_frames_highlight_the_view():
    grid = np.full((9, 9, 3), (1, 0, 0), np.uint8)
    description = {"grid": grid, "agent_pos": (4, 7), "agent_dir": 3}
    view = np.zeros((7, 7, 3), np.uint8)
    view[3, 4, 0] = 1  # two cells ahead
    lines = text_frame(description, view=view).split("\n")
    backgrounds = np.array([[cell[0] for cell in cells_of(line)] for line in lines])
    lit = np.argwhere(backgrounds != backgrounds[0, 0])
    assert {tuple(map(int, place)) for place in lit} == {(7, 4), (5, 4)}  # the agent, the lit cell


def test_a_carried_object_is_named():
    assert text_object("ball", "purple").endswith(" purple ball")
    assert "●" in text_object("ball", "purple")
