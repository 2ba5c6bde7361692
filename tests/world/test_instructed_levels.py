"""Levels with a given instruction against drawing levels until one has it."""

from functools import partial

import jax
import numpy as np
import pytest
from scipy.stats import chi2_contingency

import ella
from ella.errors import InputError
from ella.world import State, TaskSpec, describe, levels
from ella.world.encoding import COLOUR_NAMES, DOOR, KEY, LOCKED_DOOR, TYPE_NAMES, decode_cells
from ella.world.grammar import parse
from ella.world.instructed_levels import begin, exchange, levels_with_instruction
from ella.world.tasks import find

COUNT = 1000
LOCKS = TaskSpec(
    "locks", ("pickup", "open"), room_size=5, distractors=3, lock_probability=0.5,
    implicit_unlock=True,
)  # fmt: skip
PUTS = TaskSpec("puts", ("putnext",), room_size=5, distractors=4)
RED = COLOUR_NAMES.index("red")


def by_rejection(spec: TaskSpec, text: str) -> State:
    """Levels [N] with the instruction among many, as a user could find them by trying seeds."""
    drawn = levels.generate(spec, jax.random.key(1), 2**16)
    rows = np.flatnonzero(np.asarray(drawn.instruction_id) == spec.language.find(text))
    return jax.tree.map(lambda leaf: leaf[rows], drawn)


def counts_of(found: State, colour: str, *types: str) -> np.ndarray:
    """int[N]: objects of a colour and one of the types, doors in any state."""
    cells = np.asarray(decode_cells(found.cells)).reshape(len(found.step_count), -1, 3)
    is_type = np.isin(cells[..., 0], [TYPE_NAMES.index(type_) for type_ in types])
    return (is_type & (cells[..., 1] == COLOUR_NAMES.index(colour))).sum(axis=1)


def lock_features(found: State) -> np.ndarray:
    """[N, F]: what would change if keys and doors were exchanged independently."""
    kinds = np.asarray(found.cells) & 15
    red_doors, red_keys = counts_of(found, "red", "door"), counts_of(found, "red", "key")
    colours = [counts_of(found, colour, "key") for colour in COLOUR_NAMES]
    return np.stack(
        [red_doors, (kinds == LOCKED_DOOR).any(axis=(1, 2)), np.minimum(red_keys, 2),
         np.minimum(np.sum(colours, axis=0), 2)], axis=1,
    )  # fmt: skip


def put_features(found: State) -> np.ndarray:
    """[N, F]: whether other objects are twins, and whether the door has the ball's colour."""
    every = [counts_of(found, c, t) for c in COLOUR_NAMES for t in ("key", "ball", "box")]
    return np.stack([np.max(every, axis=0), counts_of(found, "red", "door")], axis=1)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("spec", "text", "features"),
    [
        (LOCKS, "pick up the red key", lock_features),
        (LOCKS, "pick up a red key", lock_features),
        (LOCKS, "open the red door", lock_features),
        (PUTS, "put the red ball next to the blue box", put_features),
    ],
)
def test_distribution_is_that_of_rejection(spec, text, features):
    mine = levels_with_instruction(ella.make(spec), text, jax.random.key(0), COUNT)
    theirs = by_rejection(spec, text)
    assert len(theirs.step_count) > 100
    assert set(np.asarray(mine.instruction_id)) == {spec.language.find(text)}
    kinds, number = np.unique(
        np.concatenate([features(mine), features(theirs)]), axis=0, return_inverse=True
    )
    counts = np.stack(
        [np.bincount(part, minlength=len(kinds)) for part in np.split(number.ravel(), [COUNT])]
    )
    enough = counts.sum(axis=0) >= 20
    assert enough.sum() >= 2
    assert chi2_contingency(counts[:, enough]).pvalue > 1e-3
    assert len({cells.tobytes() for cells in np.asarray(mine.cells)}) > 0.9 * COUNT


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ("goto-room", "go to a red ball"),
        pytest.param(
            "sequence-maze",
            "open the red door, then put a red ball next to the red door",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_levels_have_what_their_instruction_names(task, text):
    env = ella.make(task)
    found = levels_with_instruction(env, text, jax.random.key(3), 8)
    for clause in parse(text).clauses:
        for phrase in clause.phrases:
            number = counts_of(found, COLOUR_NAMES[phrase.colour], TYPE_NAMES[phrase.type])
            assert (number >= 2 if phrase.article else number == 1).all()
    navigations = sum(clause.navigations for clause in parse(text).clauses)
    assert set(np.asarray(found.max_steps)) == {navigations * env.spec.steps_per_navigation}
    started = begin(env, found)
    for index in range(8):
        state = jax.tree.map(lambda leaf, index=index: leaf[index], found)
        assert describe(state)["mission"] == text
        jax.tree.map(
            np.testing.assert_array_equal,
            env.observe(state),
            jax.tree.map(lambda leaf, index=index: leaf[index], started.observation),
        )
    assert not started.terminated.any()


def test_keys_keep_to_their_doors():
    """Where rooms can be locked, a key changes its colour with the doors, and only so."""
    spec = find("unlock-maze")
    codes = exchange(spec, parse("open the green door"), parse("open the red door"))
    for kind in (DOOR, 11, 12, KEY):
        assert [codes[kind | colour << 4] >> 4 for colour in range(6)] == [
            codes[DOOR | colour << 4] >> 4 for colour in range(6)
        ]
    assert codes[DOOR | 1 << 4] == DOOR | RED << 4
    locked, free = find("pick-maze"), find("goto-maze")
    key, ball = parse("pick up the green key"), parse("pick up the red ball")
    assert exchange(locked, key, ball) is None
    there, back = parse("go to the green key"), parse("go to the red ball")
    codes = exchange(free, there, back)
    assert sorted(codes) == list(range(256))
    assert codes[KEY | 1 << 4] == TYPE_NAMES.index("ball")


def test_the_same_key_gives_the_same_level():
    draw = partial(levels_with_instruction, ella.make("goto-room"), "go to the grey box")
    first, again, other = (draw(jax.random.key(seed)) for seed in (5, 5, 6))
    jax.tree.map(np.testing.assert_array_equal, first, again)
    assert np.any(first.cells != other.cells)


@pytest.mark.parametrize(
    ("task", "text", "message"),
    [
        ("goto-room", "go to the pink ball", "unknown colour 'pink'"),
        ("goto-room", "fly away", "unknown verb 'fly'"),
        ("goto-room", "open the red door", "is not an instruction of this task; one is 'go to"),
        (
            "sequence-maze", "open the red door, then open the blue door",
            "task 'sequence-maze' never says 'open the red door, then open the blue door': that "
            "takes 2 doors, its levels have at most 1",
        ),
        (
            "openpick-maze", "pick up the red ball", "is not an instruction of this task",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(task, text, message):
    with pytest.raises(InputError, match=message) as caught:
        levels_with_instruction(ella.make(task), text, jax.random.key(0))
    assert "\n" not in str(caught.value)


def test_too_many_objects_are_refused_at_once():
    spec = TaskSpec("few", ("putnext",), room_size=5, distractors=3)
    with pytest.raises(InputError, match="takes 4 objects, its levels have at most 3"):
        levels_with_instruction(
            ella.make(spec), "put a red ball next to a blue box", jax.random.key(0)
        )


def test_rare_beyond_hope_is_an_error(monkeypatch):
    from ella.world import instructed_levels

    monkeypatch.setattr(instructed_levels, "MOST_ROUNDS", 1)
    text = "put a red ball next to a blue box, then put a grey key next to a grey box"
    with pytest.raises(InputError, match="only 0 of 256 levels of task 'sequence-maze'"):
        levels_with_instruction(ella.make("sequence-maze"), text, jax.random.key(0))
