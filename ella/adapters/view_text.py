"""What the agent sees, in words: for agents that read language."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ella.errors import InputError
from ella.world.encoding import COLOUR_NAMES, DOOR, EMPTY, TYPE_NAMES, UNSEEN, VIEW_SIZE, WALL

SQUARES = ("floor", "goal", "lava")
"""Types of minigrid's that are ground rather than objects."""

AGENT_COLUMN, AGENT_ROW = VIEW_SIZE // 2, VIEW_SIZE - 1
DOOR_STATES = ("open", "closed", "locked")
NOTHING = "You see nothing."
CHARACTERS = "abcdefghijklmnopqrstuvwxyzY0123456789 .,-'\n"
LONGEST_LINE = len("You see a locked purple door 6 steps forward and 3 steps right.")
LONGEST_TEXT = (VIEW_SIZE**2 + 3) * (LONGEST_LINE + 1)
LONGEST_MISSION = 512
"""Characters; minigrid's longest missions have fewer than 300."""


def view_lines(image: np.ndarray) -> list[str]:
    """A view uint8[7, 7, 3] in minigrid's encoding as sentences, from the view alone.

    In this order: what is carried; every door and object in view, the nearest first (by steps, then
    by steps forward, then from left to right); the nearest wall straight ahead, to the left and to
    the right. Distances are steps forward and to the side from the agent's own cell.
    """
    image = np.asarray(image)
    if image.shape != (VIEW_SIZE, VIEW_SIZE, 3):
        raise InputError(f"a view is [{VIEW_SIZE}, {VIEW_SIZE}, 3], got {list(image.shape)}")
    carried = image[AGENT_COLUMN, AGENT_ROW]
    lines = [] if carried[0] in (EMPTY, UNSEEN) else [f"You carry {_name(carried)}."]
    things = [
        (forward, aside, _name(image[AGENT_COLUMN + aside, AGENT_ROW - forward]))
        for forward in range(VIEW_SIZE)
        for aside in range(-AGENT_COLUMN, AGENT_COLUMN + 1)
        if (forward, aside) != (0, 0)
        and image[AGENT_COLUMN + aside, AGENT_ROW - forward, 0] not in (UNSEEN, EMPTY, WALL)
    ]
    things.sort(key=lambda thing: (thing[0] + abs(thing[1]), thing[0], thing[1]))
    lines += [f"You see {name} {_place(forward, aside)}." for forward, aside, name in things]
    for forward, aside in ((1, 0), (0, -1), (0, 1)):
        distance = _distance_to_wall(image, forward, aside)
        if distance:
            lines.append(f"You see a wall {_place(forward * distance, aside * distance)}.")
    return lines or [NOTHING]


def view_text(image: np.ndarray) -> str:
    """`view_lines`, a sentence a line."""
    return "\n".join(view_lines(image))


class TextObservations(gymnasium.Wrapper[dict[str, Any], Any, dict[str, Any], Any]):
    """Observations in words: `mission`, the instruction, and `text`, what `view_text` says of the
    view.

    For ELLA's tasks, and for minigrid's own environments with views of seven by seven cells.
    """

    def __init__(self, env: gymnasium.Env[dict[str, Any], Any]) -> None:
        super().__init__(env)
        space = env.observation_space
        image = space.spaces.get("image") if isinstance(space, spaces.Dict) else None
        if image is None or image.shape != (VIEW_SIZE, VIEW_SIZE, 3):
            raise InputError(
                f"text needs observations with a view 'image' [{VIEW_SIZE}, {VIEW_SIZE}, 3], got "
                f"{space}"
            )
        self.observation_space = spaces.Dict(
            {
                "mission": spaces.Text(LONGEST_MISSION, charset=CHARACTERS),
                "text": spaces.Text(LONGEST_TEXT, charset=CHARACTERS),
            }
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, str], dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return self._words(observation), info

    def step(self, action: Any) -> tuple[dict[str, str], Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._words(observation), reward, terminated, truncated, info

    def _words(self, observation: dict[str, Any]) -> dict[str, str]:
        return {
            "mission": str(self.get_wrapper_attr("mission")),
            "text": view_text(observation["image"]),
        }


def _name(cell: np.ndarray) -> str:
    """An object with its article: 'a red ball', 'an open grey door'."""
    type_, colour, state = (int(number) for number in cell)
    words = [COLOUR_NAMES[colour], TYPE_NAMES[type_]]
    if type_ == DOOR:
        words.insert(0, DOOR_STATES[state])
    if TYPE_NAMES[type_] in SQUARES:
        words.append("square")
    return f"{'an' if words[0][0] in 'aeiou' else 'a'} {' '.join(words)}"


def _place(forward: int, aside: int) -> str:
    """'2 steps forward and 1 step left'."""
    parts = [_steps(forward, "forward")] if forward else []
    if aside:
        parts.append(_steps(abs(aside), "left" if aside < 0 else "right"))
    return " and ".join(parts)


def _steps(count: int, where: str) -> str:
    return f"{count} step{'s' * (count > 1)} {where}"


def _distance_to_wall(image: np.ndarray, forward: int, aside: int) -> int:
    """Steps to the first wall in view along a straight line, 0 if there is none."""
    column, row = AGENT_COLUMN + aside, AGENT_ROW - forward
    steps = 1
    while 0 <= column < VIEW_SIZE and row >= 0:
        if image[column, row, 0] == WALL:
            return steps
        column, row, steps = column + aside, row - forward, steps + 1
    return 0
