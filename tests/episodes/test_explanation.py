"""One line of text about what ELLA pays for."""

import numpy as np
import pytest

from ella.episodes.explanation import Explanation, Judgement, spread_instructions
from ella.world.tasks import find


def explanation(*probabilities: float) -> Explanation:
    judgements = tuple(
        Judgement(f"go to {index}", probability, probability > 0.5, in_dataset=False, oracle=False)
        for index, probability in enumerate(probabilities)
    )
    return Explanation("open the red door", seen=True, judgements=judgements)


@pytest.mark.parametrize(
    ("probabilities", "paid"),
    [
        ((0.9, 0.5, 0.1), "go to 0"),
        ((0.9, 0.8, 0.1), "go to 0, go to 1"),
        ((0.5, 0.1), "nothing"),
        ((0.9, 0.8), "everything (2 low-level instructions)"),
        ((0.9,) * 6 + (0.1,), "go to 0, go to 1, go to 2, go to 3 and 2 more"),
    ],
)
def test_the_line_names_what_is_paid_for(probabilities: tuple[float, ...], paid: str) -> None:
    assert str(explanation(*probabilities)) == f"for 'open the red door' ELLA pays for: {paid}"


def test_spread_instructions_are_valid_and_different() -> None:
    language = find("putnext-room").language
    ids = spread_instructions(language, 20)
    assert len(ids) == len(np.unique(ids)) == 20
    assert language.is_valid(ids).all()


def test_a_small_language_is_spread_whole() -> None:
    language = find("unlock-maze").language
    assert spread_instructions(language, 20).tolist() == list(range(language.num_ids))
