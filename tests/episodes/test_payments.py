"""Films of agents trained with ELLA mark what was completed and what was paid for."""

import jax
import pytest

from ella.episodes.episode import expert_policy, record
from ella.episodes.payments import payment_marker
from ella.episodes.video import Shot
from ella.shaping.ella import ella_shaper
from ella.shaping.oracle import low_level_of
from ella.shaping.relevance import OracleRelevance, OracleSettings
from ella.shaping.termination import visible_termination
from ella.world import compiled, make
from ella.world.tasks import find

SPEC = find("unlock-maze")


@pytest.fixture(scope="module")
def shots() -> list[Shot]:
    """An expert's episode, paid by the oracle from the first frame."""
    shaper = ella_shaper(
        SPEC,
        visible_termination(low_level_of(SPEC).language),
        OracleRelevance(SPEC, OracleSettings(after_frames=0)),
    )
    state = shaper.init(4, key=jax.random.key(0))
    world = make(SPEC)
    start = compiled.reset(world, jax.random.key(3))
    return record(world, expert_policy(world), start, payment_marker(SPEC, shaper, state))


def test_the_first_step_with_the_key_in_hand_is_marked_as_paid(shots: list[Shot]) -> None:
    with_key = [step for step, shot in enumerate(shots) if shot.description["carrying"] is not None]
    paid = [step for step, shot in enumerate(shots) if any(m.kind == "bonus" for m in shot.marks)]
    assert with_key
    assert paid == with_key[:1]


def test_the_mark_names_what_was_paid_for(shots: list[Shot]) -> None:
    [mark] = [mark for shot in shots for mark in shot.marks if mark.kind == "bonus"]
    colour = shots[0].description["mission"].split()[-2]
    assert mark.text == f"+0.25 pick up the {colour} key / pick up a {colour} key"


def test_the_end_is_still_marked(shots: list[Shot]) -> None:
    assert [mark.kind for mark in shots[-1].marks] == ["success"]
