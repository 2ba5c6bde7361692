"""Which episode of a trained run is recorded."""

from typing import TYPE_CHECKING

import pytest

from ella.episodes import recording
from ella.episodes.recording import record_run
from ella.episodes.video import VideoFrame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tiny_runs import WholeRun

LEVELS = 6


def steps_if_solved(frames: "Sequence[VideoFrame]") -> int:
    return len(frames) - 1 if frames[-1].marks[-1].kind == "success" else 0


@pytest.mark.thorough
def test_the_shortest_success_that_is_long_enough_is_recorded(
    whole: "WholeRun", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "LEVELS_TO_CHOOSE_FROM", LEVELS)
    each = [record_run(whole.directory, seed=seed) for seed in range(LEVELS)]
    lengths = [steps_if_solved(one.frames) for one in each]
    solved = sorted(length for length in lengths if length > 0)
    assert len(solved) > 1
    for fewest, expected in ((solved[1], solved[1]), (solved[-1] + 1, solved[-1])):
        monkeypatch.setattr(recording, "FEWEST_STEPS", fewest)
        chosen = recording.record_success(whole.directory)
        assert steps_if_solved(chosen.frames) == expected
        assert chosen.name == each[lengths.index(expected)].name
