"""Which episode of a trained run is recorded."""

from typing import TYPE_CHECKING

from ella.episodes.recording import (
    LEVELS_TO_CHOOSE_FROM,
    record_longest_success,
    record_run,
)
from ella.episodes.video import VideoFrame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tiny_runs import WholeRun


def steps_if_solved(frames: "Sequence[VideoFrame]") -> int:
    return len(frames) - 1 if frames[-1].marks[-1].kind == "success" else 0


def test_the_longest_success_of_the_levels_is_recorded(whole: "WholeRun") -> None:
    each = [record_run(whole.directory, seed=seed) for seed in range(LEVELS_TO_CHOOSE_FROM)]
    lengths = [steps_if_solved(recording.frames) for recording in each]
    chosen = record_longest_success(whole.directory)
    assert max(lengths) > 0
    assert steps_if_solved(chosen.frames) == max(lengths)
    assert chosen.name == each[lengths.index(max(lengths))].name
