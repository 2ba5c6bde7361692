"""Videos of agents trained with ELLA mark what was completed and what was paid for."""

import jax
import pytest

from ella.episodes.episode import expert_actor, record
from ella.episodes.payments import payment_marker
from ella.episodes.video import VideoFrame
from ella.shaping.ella import ella_shaper
from ella.shaping.oracle import low_level_of
from ella.shaping.relevance import OracleRelevance
from ella.shaping.termination import visible_termination
from ella.world import compiled, make
from ella.world.tasks import find

SPEC = find("unlock-maze")


@pytest.fixture(scope="module")
def frames() -> list[VideoFrame]:
    """An expert's episode, paid by the oracle from the first frame."""
    shaper = ella_shaper(
        SPEC,
        visible_termination(low_level_of(SPEC).language),
        OracleRelevance(SPEC),
    )
    state = shaper.init(4, key=jax.random.key(0))
    world = make(SPEC)
    start = compiled.reset(world, jax.random.key(3))
    return record(world, expert_actor(world), start, payment_marker(SPEC, shaper, state))


def test_the_first_step_with_the_key_in_hand_is_marked_as_paid(frames: list[VideoFrame]) -> None:
    with_key = [
        step for step, frame in enumerate(frames) if frame.description["carrying"] is not None
    ]
    paid = [
        step for step, frame in enumerate(frames) if any(m.kind == "bonus" for m in frame.marks)
    ]
    assert with_key
    assert paid == with_key[:1]


def test_the_mark_names_what_was_paid_for(frames: list[VideoFrame]) -> None:
    [mark] = [mark for frame in frames for mark in frame.marks if mark.kind == "bonus"]
    colour = frames[0].description["mission"].split()[-2]
    assert mark.text == f"+0.25 pick up the {colour} key / pick up a {colour} key"


def test_the_end_is_still_marked(frames: list[VideoFrame]) -> None:
    assert [mark.kind for mark in frames[-1].marks] == ["success"]
