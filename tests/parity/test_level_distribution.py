"""Levels made here have the distribution of minigrid's levels.

Each task: MINIGRID_LEVELS levels from the real minigrid 3.2.0 against the accepted ones of
ELLA_ATTEMPTS attempts here, both from fixed seeds, in about 30 two-sample tests: chi-square tests
on categorical features of a level (agent cell and direction, counts, door place, colour and
state, sentence kinds, articles, named classes, instruction frequencies, horizon, acceptance),
and Hotelling tests on the mean occupancy of every cell and the mean counts of every class, room
and wall. A test fails below P_THRESHOLD = 1e-6; some 500 tests in this file make a false alarm
less likely than 1e-3 over the choice of seeds.
"""

import pytest
from level_statistics import compare, ella_levels, minigrid_levels

from ella.world.tasks import TASKS, TaskSpec

MINIGRID_LEVELS = 1000
ELLA_ATTEMPTS = 6000
P_THRESHOLD = 1e-6
QUICK = ("sequence-maze",)

OTHER_ROWS = {
    spec.name: (spec, count)
    for spec, count in (
        (
            TaskSpec(
                "3x3 small rooms, unblocking", ("goto", "pickup", "open", "putnext"), rows=3,
                cols=3, room_size=5, distractors=18, lock_probability=0.5, implicit_unlock=True,
                unblocking=True, form="and",
            ),
            600,
        ),
        (
            TaskSpec(
                "2x3 rooms, locked", ("open", "goto"), rows=2, cols=3, room_size=5, distractors=6,
                lock_probability=1.0, form="sequence",
            ),
            400,
        ),
        (
            TaskSpec(
                "2x1 rooms, always locked", ("putnext", "open"), rows=2, cols=1, room_size=6,
                distractors=4, lock_probability=1.0, max_steps=77,
            ),
            300,
        ),
        (
            TaskSpec(
                "1x3 rooms, sometimes not connected", ("goto",), cols=3, room_size=6,
                distractors=5, lock_probability=0.3,
            ),
            250,
        ),
        (TaskSpec("one room after all", ("pickup",), cols=1, room_size=5, distractors=3), 800),
        (
            TaskSpec(
                "crowded local room", ("putnext",), cols=1, room_size=5, distractors=3,
                agent_first=True, unique_objects=True,
            ),
            800,
        ),
    )
}  # fmt: skip


def check(spec: TaskSpec, count: int) -> None:
    found = compare(
        minigrid_levels(spec, count, seed=20), ella_levels(spec, ELLA_ATTEMPTS, seed=21)
    )
    failed = {name: p for name, p in found.items() if not p > P_THRESHOLD}
    assert not failed


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.thorough) for name in TASKS],
)
def test_named_tasks(name: str) -> None:
    check(TASKS[name], MINIGRID_LEVELS)


@pytest.mark.thorough
@pytest.mark.parametrize("name", OTHER_ROWS)
def test_rows_the_paper_does_not_have(name: str) -> None:
    """3x3 rooms of size 5 with 18 distractors and unblocking; extra doors; locked rooms with
    several neighbours; rooms that fill up; 250 to 800 minigrid levels each."""
    check(*OTHER_ROWS[name])
