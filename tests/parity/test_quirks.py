"""Minigrid's habits that one would not guess, each on a level built to show it.

Every case plays the same actions in minigrid and here, compares all outputs of every step, and
then checks that minigrid did what the test's name says.
"""

import numpy as np
import pytest
from comparison import assert_same
from minigrid_reference import (
    Episode,
    record,
    reference_environment,
    scripted,
    start_level,
    without_output,
)

from ella.world.encoding import (
    ACTION_NAMES,
    COLOUR_NAMES,
    DOOR,
    EMPTY,
    GREY,
    KEY,
    TYPE_NAMES,
    WALL,
)
from ella.world.tasks import TaskSpec

KINDS = ("goto", "open", "pickup", "putnext")
SPECS = {
    "single": TaskSpec("quirks", KINDS),
    "and": TaskSpec("quirks-and", KINDS, form="and"),
    "sequence": TaskSpec("quirks-sequence", KINDS, form="sequence"),
}
DOOR_STATES = {"open": 0, "closed": 1, "locked": 2}
LETTERS = {"L": "left", "R": "right", "F": "forward", "P": "pickup",
           "D": "drop", "T": "toggle", "N": "done"}  # fmt: skip
DOOR_CELL = (7, 3)
IN_FRONT, AGENT_CELL = (3, 5), (3, 6)


def play(
    form: str,
    mission: str,
    actions: str,
    things: dict[tuple[int, int], str],
    agent: tuple[int, int, int] = (6, 3, 0),
    max_steps: int = 128,
) -> Episode:
    """Two rooms with walls at x = 0, 7, 14; `things` are like 'red ball' or 'locked red door'. The
    agent stands at (6, 3) and looks right, to where a door may be. Actions are letters."""
    grid = np.zeros((15, 8, 3), np.uint8)
    grid[:] = (EMPTY, 0, 0)
    grid[[0, 7, 14]] = grid[:, [0, 7]] = (WALL, GREY, 0)
    for cell, text in things.items():
        *state, colour, type_ = text.split()
        grid[cell] = (
            TYPE_NAMES.index(type_), COLOUR_NAMES.index(colour),
            DOOR_STATES[state[0]] if state else 0,
        )  # fmt: skip
    description = {
        "grid": grid, "agent_pos": agent[:2], "agent_dir": agent[2], "carrying": None,
        "mission": mission, "step_count": 0, "max_steps": max_steps,
    }  # fmt: skip
    spec = SPECS[form]
    env = reference_environment(spec)
    numbers = [ACTION_NAMES.index(LETTERS[letter]) for letter in actions]
    with without_output():
        env.reset(seed=0)
        episode = record(
            env, start_level(env, description), scripted(numbers), np.random.default_rng(0),
            steps_after_end=len(numbers),
        )  # fmt: skip
    assert episode.missions[0] == mission
    assert assert_same(spec, [episode], length=16) == len(numbers)
    return episode


def success_steps(episode: Episode) -> list[int]:
    """The steps (from 1) at which minigrid said the task is solved."""
    return (1 + np.flatnonzero(episode.terminated)).tolist()


@pytest.mark.parametrize(
    ("things", "actions"),
    [
        # The ball is picked up, or the box deleted, before its place is looked at again.
        ({(6, 4): "red ball"}, "RPLTR"),
        ({(6, 4): "red box"}, "RTLTR"),
    ],
)
def test_goto_target_that_is_gone_leaves_a_ghost(things: dict, actions: str) -> None:
    kind = things[6, 4].split()[1]
    mission = f"open the green door, then go to the red {kind}"
    episode = play("sequence", mission, actions, {DOOR_CELL: "closed green door", **things})
    assert success_steps(episode) == [5]


def test_pick_up_then_go_to_is_one_action_because_of_the_ghost() -> None:
    mission = "pick up the red ball, then go to the red ball"
    assert success_steps(play("sequence", mission, "P", {(5, 3): "red ball"}, (6, 3, 2))) == [1]


def test_failed_drop_renews_the_goto_positions() -> None:
    things = {DOOR_CELL: "closed green door", (6, 4): "red ball"}
    mission = "open the green door, then go to the red ball"
    episode = play("sequence", mission, "RPLDTRND", things)
    assert success_steps(episode) == [8]


def test_goto_does_not_follow_a_target_until_a_drop() -> None:
    things = {DOOR_CELL: "closed green door", (6, 4): "red ball", (6, 2): "blue key"}
    mission = "open the green door, then go to the red ball"
    # The ball is carried away and dropped elsewhere: its new place counts, the old one no more.
    episode = play("sequence", mission, "RPRDLLTRRL", things)
    assert success_steps(episode) == [9]


def test_toggle_deletes_a_box() -> None:
    episode = play("single", "pick up the red box", "TPF", {(5, 3): "red box"}, (6, 3, 2))
    assert episode.images[0][IN_FRONT].tolist() == [7, 0, 0]
    assert episode.images[1][IN_FRONT].tolist() == [EMPTY, 0, 0]
    assert success_steps(episode) == []


def test_task_without_its_box_runs_on_to_the_horizon() -> None:
    things = {(5, 3): "red box"}
    episode = play("single", "pick up the red box", "TLLP", things, (6, 3, 2), max_steps=4)
    assert episode.truncated.tolist() == [False, False, False, True]
    assert not episode.terminated.any()


def test_open_door_under_the_agent_does_not_show() -> None:
    episode = play("single", "open the green door", "TFF", {DOOR_CELL: "closed green door"})
    assert episode.images[1][IN_FRONT].tolist() == [DOOR, 1, 0]
    assert episode.images[2][AGENT_CELL].tolist() == [EMPTY, 0, 0]


def test_carried_object_shows_in_place_of_the_door_under_the_agent() -> None:
    things = {DOOR_CELL: "closed green door", (5, 3): "red key"}
    episode = play("single", "open the green door", "PLLTF", things, (6, 3, 2))
    assert episode.images[5][AGENT_CELL].tolist() == [KEY, 0, 0]


def test_locked_door_unlocks_and_opens_and_the_key_stays_in_hand() -> None:
    things = {DOOR_CELL: "locked red door", (5, 3): "red key"}
    episode = play("single", "open the red door", "PLLTTT", things, (6, 3, 2))
    front = [image[IN_FRONT].tolist() for image in episode.images]
    assert front[3:] == [[DOOR, 0, 2], [DOOR, 0, 0], [DOOR, 0, 1], [DOOR, 0, 0]]
    assert episode.images[-1][AGENT_CELL].tolist() == [KEY, 0, 0]
    assert success_steps(episode) == [4, 6]


@pytest.mark.parametrize("held", ["blue key", "red ball"])
def test_locked_door_ignores_anything_but_its_key(held: str) -> None:
    things = {DOOR_CELL: "locked red door", (5, 3): held}
    episode = play("single", "open the red door", "PLLTF", things, (6, 3, 2))
    assert episode.images[-1][IN_FRONT].tolist() == [DOOR, 0, 2]
    assert success_steps(episode) == []


def test_drop_into_an_open_door_is_refused() -> None:
    things = {DOOR_CELL: "open green door", (5, 3): "red ball"}
    episode = play("single", "open the green door", "PLLD", things, (6, 3, 2))
    assert episode.images[-1][IN_FRONT].tolist() == [DOOR, 1, 0]
    assert episode.images[-1][AGENT_CELL].tolist() == [6, 0, 0]


def test_door_that_is_open_must_be_closed_and_reopened() -> None:
    episode = play("single", "open the green door", "NTT", {DOOR_CELL: "open green door"})
    assert success_steps(episode) == [3]


def test_pickup_needs_hands_that_were_empty() -> None:
    things = {(5, 3): "blue key", (6, 4): "red ball"}
    # The key is in hand, so the ball stays where it is until the key is put down.
    episode = play("single", "pick up the red ball", "PLPRDLP", things, (6, 3, 2))
    assert success_steps(episode) == [7]


@pytest.mark.parametrize(
    ("key_cell", "solved"), [((4, 3), [2]), ((5, 4), [2]), ((4, 4), []), ((3, 3), [])]
)
def test_putnext_needs_distance_exactly_one(key_cell: tuple[int, int], solved: list[int]) -> None:
    things = {(5, 3): "red ball", key_cell: "blue key"}
    mission = "put the red ball next to the blue key"
    assert success_steps(play("single", mission, "PD", things, (6, 3, 2))) == solved


def test_putnext_counts_doors() -> None:
    things = {DOOR_CELL: "closed green door", (4, 3): "red ball"}
    mission = "put the red ball next to the green door"
    episode = play("single", mission, "PLLFD", things, (5, 3, 2))
    assert success_steps(episode) == []
    episode = play("single", mission, "PLLD", things, (5, 3, 2))
    assert success_steps(episode) == [4]


def test_putnext_counts_the_open_door_under_the_agent() -> None:
    things = {DOOR_CELL: "open green door", (5, 3): "red ball"}
    mission = "put the red ball next to the green door"
    assert success_steps(play("single", mission, "PLLFLLD", things, (6, 3, 2))) == [7]


def test_moving_the_fixed_object_does_not_count() -> None:
    things = {(5, 3): "blue key", (5, 5): "red ball"}
    mission = "put the red ball next to the blue key"
    # The key is dropped beside the ball: nothing. The ball, lifted and put back, counts.
    episode = play("single", mission, "PLFRDLFRPD", things, (6, 3, 2))
    assert episode.images[5][IN_FRONT].tolist() == [KEY, 2, 0]
    assert success_steps(episode) == [10]


def test_open_then_open_the_same_door_is_one_action() -> None:
    mission = "open the green door, then open the green door"
    assert success_steps(play("sequence", mission, "T", {DOOR_CELL: "closed green door"})) == [1]


def test_pick_then_pick_the_same_object_is_one_action() -> None:
    mission = "pick up the red ball, then pick up the red ball"
    assert success_steps(play("sequence", mission, "P", {(5, 3): "red ball"}, (6, 3, 2))) == [1]


def test_put_then_put_cannot_be_one_drop() -> None:
    things = {(5, 3): "red ball", (4, 3): "blue key", (5, 4): "grey box"}
    mission = "put the red ball next to the blue key, then put the red ball next to the grey box"
    episode = play("sequence", mission, "PDNPD", things, (6, 3, 2))
    assert success_steps(episode) == [5]


def test_object_already_in_hand_must_be_picked_up_again() -> None:
    things = {DOOR_CELL: "closed green door", (5, 3): "red ball"}
    mission = "open the green door, then pick up the red ball"
    episode = play("sequence", mission, "PLLTPRDP", things, (6, 3, 2))
    assert success_steps(episode) == [8]


def test_object_already_in_hand_can_be_put() -> None:
    things = {DOOR_CELL: "closed green door", (5, 3): "red ball", (6, 5): "blue key"}
    mission = "open the green door, then put the red ball next to the blue key"
    episode = play("sequence", mission, "PLLTRD", things, (6, 3, 2))
    assert success_steps(episode) == [6]


def test_after_runs_backwards() -> None:
    things = {DOOR_CELL: "closed green door", (6, 4): "red ball"}
    mission = "open the green door after you pick up the red ball"
    episode = play("sequence", mission, "TRPLTT", things)
    assert success_steps(episode) == [6]


def test_second_clause_done_first_does_not_count() -> None:
    things = {DOOR_CELL: "closed green door", (6, 4): "red ball"}
    mission = "pick up the red ball, then open the green door"
    episode = play("sequence", mission, "TTRPLT", things)
    assert success_steps(episode) == [6]


def test_success_at_the_horizon_pays_a_tenth_and_sets_both_flags() -> None:
    things = {DOOR_CELL: "closed green door"}
    episode = play("single", "open the green door", "LRT", things, max_steps=3)
    assert episode.rewards[-1] == pytest.approx(0.1)
    assert episode.terminated[-1]
    assert episode.truncated[-1]


def test_done_runs_the_verifier() -> None:
    episode = play("single", "go to the red ball", "N", {(5, 3): "red ball"}, (6, 3, 2))
    assert success_steps(episode) == [1]


@pytest.mark.parametrize("actions", ["TTRP", "RPLT"])
def test_and_latches_each_clause_in_any_order(actions: str) -> None:
    things = {DOOR_CELL: "closed green door", (6, 4): "red ball"}
    mission = "open the green door and pick up the red ball"
    # In the first case the door is closed again before the ball is picked up.
    assert success_steps(play("and", mission, actions, things)) == [4]


def test_finished_and_stays_finished_while_a_finished_sequence_does_not() -> None:
    things = {DOOR_CELL: "closed green door", (6, 4): "red ball"}
    episode = play("and", "open the green door and pick up the red ball", "TRPNN", things)
    assert success_steps(episode) == [3, 4, 5]
    episode = play("sequence", "open the green door, then pick up the red ball", "TRPNN", things)
    assert success_steps(episode) == [3]


def test_a_and_the_are_minigrids() -> None:
    things = {(5, 3): "red ball", (9, 5): "red ball", (2, 2): "blue key"}
    episode = play("single", "put a red ball next to the blue key", "PD", things, (6, 3, 2))
    assert success_steps(episode) == []
