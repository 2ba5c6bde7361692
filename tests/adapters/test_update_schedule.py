"""When relevance is updated: often in short runs, every 128,000 steps in long ones."""

from itertools import pairwise

from ella.adapters.update_schedule import UpdateSchedule


def updates(schedule: UpdateSchedule, steps: int, at_a_time: int = 100, every: int = 1) -> list:
    """The steps after which updates come; a success every so many calls."""
    return [
        schedule.steps
        for call in range(steps // at_a_time)
        if schedule.due(at_a_time, int(call % every == every - 1))
    ]


def test_intervals_grow_with_the_run_up_to_the_longest():
    found = updates(UpdateSchedule(2_000, 128_000), 1_000_000)
    assert found[:5] == [2_000, 4_000, 6_000, 9_000, 13_500]
    assert found[-1] - found[-2] == 128_000
    assert all(later - earlier <= 128_000 for earlier, later in pairwise(found))


def test_equal_bounds_are_a_fixed_interval():
    assert updates(UpdateSchedule(500, 500), 2_000) == [500, 1_000, 1_500, 2_000]
    assert updates(UpdateSchedule(2_000, 500), 1_000) == [500, 1_000]


def test_an_update_waits_for_a_success():
    # The 30th call brings the first success, the 60th the next.
    assert updates(UpdateSchedule(500, 500), 7_000, every=30) == [3_000, 6_000]
    assert updates(UpdateSchedule(500, 500), 2_000, every=100) == []


def test_a_restored_schedule_continues():
    whole = UpdateSchedule(300, 10_000)
    expected = updates(whole, 5_000, every=3)
    first = UpdateSchedule(300, 10_000)
    found = updates(first, 2_100, every=3)
    second = UpdateSchedule(300, 10_000).restored(first.counts())
    assert found + updates(second, 2_900, every=3) == expected
