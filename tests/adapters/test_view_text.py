"""Views in words, on views made by hand and against minigrid's own state of the same levels."""

import re

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from ella.adapters.gymnasium_env import EllaEnv
from ella.adapters.minigrid_bridge import minigrid_environment
from ella.adapters.view_text import TextObservations, view_lines, view_text
from ella.errors import InputError
from ella.world import describe
from ella.world.encoding import COLOUR_NAMES, TYPE_NAMES
from ella.world.tasks import find


def view(*cells: tuple[int, int, str, str, int], ground: str = "empty") -> np.ndarray:
    """A view with cells at (steps forward, steps to the right)."""
    image = np.zeros((7, 7, 3), np.uint8)
    image[..., 0] = TYPE_NAMES.index(ground)
    image[3, 6] = (TYPE_NAMES.index("empty"), 0, 0)
    for forward, right, type_, colour, state in cells:
        image[3 + right, 6 - forward] = (
            TYPE_NAMES.index(type_), COLOUR_NAMES.index(colour), state,
        )  # fmt: skip
    return image


@pytest.mark.parametrize(
    ("image", "lines"),
    [
        (view(), ["You see nothing."]),
        (view(ground="unseen"), ["You see nothing."]),
        (view((2, -1, "ball", "red", 0)), ["You see a red ball 2 steps forward and 1 step left."]),
        (view((0, 3, "box", "grey", 0)), ["You see a grey box 3 steps right."]),
        (view((1, 0, "key", "blue", 0)), ["You see a blue key 1 step forward."]),
        (view((0, 0, "key", "blue", 0)), ["You carry a blue key."]),
        (view((6, 3, "door", "purple", 2)),
         ["You see a locked purple door 6 steps forward and 3 steps right."]),
        (view((1, 0, "door", "green", 0), (1, 1, "door", "green", 1)),
         ["You see an open green door 1 step forward.",
          "You see a closed green door 1 step forward and 1 step right."]),
        (view((3, 0, "goal", "green", 0)), ["You see a green goal square 3 steps forward."]),
        # Nearest first; at the same distance fewer steps forward first, then from left to right.
        (view((1, 1, "ball", "red", 0), (1, -1, "ball", "blue", 0), (0, 2, "key", "red", 0),
              (4, 0, "box", "red", 0), (0, 0, "box", "yellow", 0)),
         ["You carry a yellow box.", "You see a red key 2 steps right.",
          "You see a blue ball 1 step forward and 1 step left.",
          "You see a red ball 1 step forward and 1 step right.",
          "You see a red box 4 steps forward."]),
        # Of walls only the nearest straight ahead and to the sides.
        (view((2, 0, "wall", "grey", 0), (4, 0, "wall", "grey", 0), (0, -3, "wall", "grey", 0),
              (2, 1, "wall", "grey", 0)),
         ["You see a wall 2 steps forward.", "You see a wall 3 steps left."]),
        # A wall seen through an open door, with what lies between them.
        (view((1, 0, "door", "red", 0), (2, 0, "ball", "red", 0), (3, 0, "wall", "grey", 0),
              (0, 1, "wall", "grey", 0)),
         ["You see an open red door 1 step forward.", "You see a red ball 2 steps forward.",
          "You see a wall 3 steps forward.", "You see a wall 1 step right."]),
    ],
)  # fmt: skip
def test_views_made_by_hand(image, lines):
    assert view_lines(image) == lines
    assert view_text(image) == "\n".join(lines)


SEEN = re.compile(
    r"You see an? (?:(?P<state>open|closed|locked) )?(?:(?P<colour>\w+) )?(?P<type>\w+)"
    r"(?: (?P<forward>\d) steps? forward)?(?: and)?"
    r"(?: (?P<aside>\d) steps? (?P<side>left|right))?\."
)


def check_against_minigrid(env, text: str) -> int:
    """Every sentence holds in minigrid's grid at the place it names, and nothing that minigrid
    shows is left out; returns how many objects were seen."""
    shown = env.get_view_exts(env.agent_view_size)
    visible_grid, visible = env.gen_obs_grid()
    seen = 0
    carried = None
    for line in text.split("\n"):
        if line.startswith("You carry"):
            carried = line
            continue
        match = SEEN.fullmatch(line)
        if match is None:
            assert line == "You see nothing."
            continue
        forward, aside = (int(match[name] or 0) for name in ("forward", "aside"))
        aside = -aside if match["side"] == "left" else aside
        x, y = env.agent_pos + forward * env.dir_vec + aside * env.right_vec
        assert shown[0] <= x < shown[2]
        assert shown[1] <= y < shown[3]
        cell = env.grid.get(x, y)
        if match["type"] == "wall":
            assert cell is None or cell.type == "wall"
            if 0 <= x < env.grid.width and 0 <= y < env.grid.height:
                assert cell.type == "wall"
            continue
        seen += 1
        assert (cell.type, cell.color) == (match["type"], match["colour"])
        if cell.type == "door":
            state = "open" if cell.is_open else "locked" if cell.is_locked else "closed"
            assert match["state"] == state
    if env.carrying is None:
        assert carried is None
    else:
        assert carried == f"You carry a {env.carrying.color} {env.carrying.type}."
    cells = [
        visible_grid.get(i, j)
        for i in range(7)
        for j in range(7)
        if visible[i, j] and (i, j) != (3, 6)
    ]
    assert seen == sum(cell is not None and cell.type != "wall" for cell in cells)
    return seen


@pytest.mark.parametrize(
    "task", [pytest.param("pick-maze", marks=pytest.mark.thorough), "putnext-room"]
)
def test_text_is_what_minigrid_shows_of_the_same_level(task):
    pytest.importorskip("minigrid")
    env = TextObservations(EllaEnv(task))
    theirs = minigrid_environment(find(task))
    random, seen, texts = np.random.default_rng(0), 0, set()
    for seed in range(4):
        mine, _ = env.reset(seed=seed)
        level = describe(env.unwrapped._state)
        theirs.reset(options={"level": level})
        wrapped = TextObservations(theirs)
        for action in random.choice(6, size=60, p=(0.15, 0.15, 0.35, 0.15, 0.05, 0.15)):
            mine, _, terminated, truncated, _ = env.step(int(action))
            other, *_ = wrapped.step(int(action))
            assert mine == other
            assert mine["mission"] == level["mission"]
            assert env.observation_space.contains(mine)
            seen += check_against_minigrid(theirs, mine["text"])
            texts.add(mine["text"])
            if terminated or truncated:
                break
    assert seen > 200
    assert any("You carry" in text for text in texts)


def test_the_text_is_a_function_of_the_view():
    """Nothing but the view is read: equal views in different states have equal words."""
    plain, words = EllaEnv("goto-room"), TextObservations(EllaEnv("goto-room"))
    observation, _ = plain.reset(seed=2)
    in_words, _ = words.reset(seed=2)
    for action in np.random.default_rng(3).integers(3, size=25):
        assert in_words["text"] == view_text(observation["image"])
        observation, *_ = plain.step(int(action))
        in_words, *_ = words.step(int(action))


def test_gymnasiums_checker_is_content():
    check_env(TextObservations(EllaEnv("goto-room")), skip_render_check=True)


def test_minigrids_own_levels_in_words():
    pytest.importorskip("minigrid")
    env = TextObservations(gymnasium.make("BabyAI-UnlockLocal-v0"))
    observation, _ = env.reset(seed=0)
    assert observation["mission"] == "open the door"
    assert env.observation_space.contains(observation)
    seen = 0
    for action in np.random.default_rng(0).integers(6, size=60):
        observation, *_ = env.step(int(action))
        seen += check_against_minigrid(env.unwrapped, observation["text"])
    assert seen > 30


def test_other_observations_are_refused():
    with pytest.raises(InputError, match="needs observations with a view 'image'") as caught:
        TextObservations(gymnasium.make("CartPole-v1"))
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=r"a view is \[7, 7, 3\], got \[7, 7\]"):
        view_lines(np.zeros((7, 7)))
