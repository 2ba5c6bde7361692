"""What every generated level must satisfy, checked in NumPy on the grid alone."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ella.world import levels
from ella.world.encoding import (
    BOX,
    CLOSED_DOOR,
    DIRECTION_VECTORS,
    EMPTY_CELL,
    KEY,
    LOCKED_DOOR,
    WALL_CELL,
    colour_of,
    kind_of,
    object_class,
)
from ella.world.grammar import sentence_of
from ella.world.rooms import distinct_indices, nth_set_bit, reachable, room_grid
from ella.world.state import PUT_NEXT, State
from ella.world.tasks import TASKS, TaskSpec

NUM_LEVELS = 300
OTHER_ROWS = (
    TaskSpec(
        "3x3", ("goto", "pickup", "open", "putnext"), rows=3, cols=3, room_size=5, distractors=12,
        lock_probability=0.5, form="and",
    ),
    TaskSpec("1x3", ("pickup",), cols=3, room_size=6, lock_probability=1.0, max_steps=77),
    TaskSpec("tall", ("goto",), rows=5, cols=1, distractors=18),
)  # fmt: skip
NAMED = ("goto-room", "putnext-room", "openpick-maze", "combo-maze", "sequence-maze")
"""Tasks that together use every rule; the parity tests look at all of them."""
SPECS = {name: TASKS[name] for name in NAMED} | {spec.name: spec for spec in OTHER_ROWS}
QUICK = ("goto-room", "sequence-maze", "3x3")
EACH_SPEC = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.thorough) for name in SPECS],
)


@pytest.fixture(scope="module")
def generated() -> dict[str, State]:
    """Levels by task name, made when first asked for."""

    class Made(dict[str, State]):
        def __missing__(self, name: str) -> State:
            state = levels.generate(SPECS[name], jax.random.key(3), NUM_LEVELS)
            self[name] = jax.tree.map(np.asarray, state)
            return self[name]

    return Made()


def is_object(cells: np.ndarray) -> np.ndarray:
    return (kind_of(cells) >= KEY) & (kind_of(cells) <= BOX)


def is_door(cells: np.ndarray) -> np.ndarray:
    return (kind_of(cells) == CLOSED_DOOR) | (kind_of(cells) == LOCKED_DOOR)


def flood(cells: np.ndarray, start: tuple[int, int]) -> np.ndarray:
    """Cells reached from `start`: doors let pass, objects and walls are reached but stop."""
    reached = np.zeros(cells.shape, bool)
    stack = [start]
    while stack:
        x, y = stack.pop()
        if reached[x, y]:
            continue
        reached[x, y] = True
        if cells[x, y] == EMPTY_CELL or is_door(cells[x, y]):
            stack += [(x + dx, y + dy) for dx, dy in DIRECTION_VECTORS.tolist()]
    return reached


@EACH_SPEC
def test_structure(name: str, generated: dict[str, State]) -> None:
    """Walls, counts, the agent's start, reachability, articles and the horizon."""
    spec, states = SPECS[name], generated[name]
    step = spec.room_size - 1
    on_wall_line = np.indices((spec.width, spec.height)) % step == 0
    wall_line = on_wall_line.any(0)
    cells = states.cells
    assert cells.shape == (NUM_LEVELS, spec.width, spec.height)
    assert cells.dtype == np.uint8
    assert np.all((cells[:, wall_line] == WALL_CELL) | is_door(cells[:, wall_line]))
    assert np.all((cells[:, ~wall_line] == EMPTY_CELL) | is_object(cells[:, ~wall_line]))
    assert not np.any(is_door(cells[:, on_wall_line.all(0)]))
    locks = (kind_of(cells) == LOCKED_DOOR).sum((1, 2))
    assert np.all(is_object(cells).sum((1, 2)) == spec.distractors + locks)
    assert locks.max() <= (spec.lock_probability > 0)
    assert locks.min() >= (spec.lock_probability == 1)
    num_rooms = spec.rows * spec.cols
    assert np.all(is_door(cells).sum((1, 2)) >= num_rooms - 1)
    assert np.all(is_door(cells).sum((1, 2)) <= spec.num_doors)

    np.testing.assert_array_equal(states.remembered_cells, cells)
    assert not states.carrying.any()
    assert not states.clause_done.any()
    assert not states.step_count.any()
    for i in range(NUM_LEVELS):
        position = tuple(states.agent_pos[i])
        front = tuple(states.agent_pos[i] + DIRECTION_VECTORS[states.agent_dir[i]])
        assert cells[i][position] == EMPTY_CELL
        if not spec.agent_first:
            assert cells[i][front] in (EMPTY_CELL, WALL_CELL)
        things = is_object(cells[i]) | is_door(cells[i])
        assert not np.any(things & ~flood(cells[i], position))
        if locks[i]:
            lock = cells[i][kind_of(cells[i]) == LOCKED_DOOR][0]
            assert np.any(cells[i] == (KEY | colour_of(lock) << 4))


@EACH_SPEC
def test_instruction_fits_the_level(name: str, generated: dict[str, State]) -> None:
    """Named classes are present, 'a' says there are several, and no putnext is done already."""
    spec, states = SPECS[name], generated[name]
    classes = np.asarray(object_class(states.cells))
    for i in range(NUM_LEVELS):
        instruction = jax.tree.map(lambda leaf, i=i: leaf[i], states.instruction)
        sentence = sentence_of(instruction)
        assert spec.language.find(sentence.text) == states.instruction_id[i]
        navigations = sum(clause.navigations for clause in sentence.clauses)
        expected = spec.max_steps or navigations * spec.steps_per_navigation
        assert states.max_steps[i] == expected
        for clause in sentence.clauses:
            places = []
            for phrase in clause.phrases:
                matches = np.argwhere(classes[i] == phrase.object_class)
                assert len(matches) >= 1
                assert phrase.article == (len(matches) > 1)
                places.append(matches)
            if clause.kind == PUT_NEXT:
                distance = np.abs(places[0][:, None] - places[1]).sum(-1)
                assert distance.min() > 1


@pytest.mark.thorough
def test_no_object_beside_the_provisional_agent(generated: dict[str, State]) -> None:
    """Minigrid keeps five cells of a maze free of objects: it places them while the agent stands
    for the time being at (11, 4)."""
    occupied = np.zeros((15, 8), int)
    for name in ("openpick-maze", "combo-maze", "sequence-maze"):
        occupied += is_object(generated[name].cells).sum(0)
    inside = np.zeros((15, 8), bool)
    inside[1:7, 1:7] = inside[8:14, 1:7] = True
    never = {(int(x), int(y)) for x, y in np.argwhere(inside & (occupied == 0))}
    assert never == {(11, 4), (10, 4), (12, 4), (11, 3), (11, 5)}


@pytest.mark.parametrize(
    "name", ["goto-room", pytest.param("putnext-room", marks=pytest.mark.thorough)]
)
def test_rooms_keep_objects_away_from_the_agent(name: str, generated: dict[str, State]) -> None:
    """Where the agent comes first, the nearest object is two steps away."""
    states = generated[name]
    for cells, position in zip(states.cells, states.agent_pos, strict=True):
        distance = np.abs(np.argwhere(is_object(cells)) - position).sum(1)
        assert distance.min() >= 2


@pytest.mark.thorough
def test_unique_objects(generated: dict[str, State]) -> None:
    for cells in generated["putnext-room"].cells:
        assert len(np.unique(cells[is_object(cells)])) == 8


@pytest.mark.thorough
def test_locked_targets_lie_outside(generated: dict[str, State]) -> None:
    """Without implicit unlocking a combo level with a locked door never names the door."""
    states = generated["combo-maze"]
    locked = (kind_of(states.cells) == LOCKED_DOOR).any((1, 2))
    names_door = (kind_of(states.instruction.objects[:, 0]) == 4).any(1)
    assert locked.any()
    assert names_door.any()
    assert not np.any(locked & names_door)


def test_middle_room_is_never_locked_in_a_row(generated: dict[str, State]) -> None:
    """Locking the middle of three rooms in a row cuts one off, so minigrid starts again; both
    outer rooms lock equally often."""
    spec, states = SPECS["1x3"], generated["1x3"]
    places = np.argwhere(kind_of(states.cells) == LOCKED_DOOR)
    assert len(places) == NUM_LEVELS
    left = places[:, 1] == spec.room_size - 1
    agent_room = states.agent_pos[:, 0] // (spec.room_size - 1)
    assert not np.any(agent_room == np.where(left, 0, 2))
    assert 0.35 < left.mean() < 0.65


def test_a_key_that_opens_a_door_is_not_named_when_unblocking() -> None:
    spec = TaskSpec(
        "unblocking", ("pickup",), lock_probability=1.0, implicit_unlock=True, unblocking=True,
        distractors=2,
    )  # fmt: skip
    states = jax.tree.map(np.asarray, levels.generate(spec, jax.random.key(0), 500))
    lock = states.cells.max(axis=(1, 2), where=kind_of(states.cells) == LOCKED_DOOR, initial=0)
    named = states.instruction.objects[:, 0, 0]
    assert np.any(kind_of(named) == KEY)
    assert not np.any(named == (KEY | colour_of(lock) << 4))


@pytest.mark.thorough
def test_generate_keeps_the_accepted_attempts_in_order(generated: dict[str, State]) -> None:
    """The batch is what one gets by trying one level after another."""
    spec, key, n = TASKS["combo-maze"], jax.random.key(3), NUM_LEVELS
    batch = generated["combo-maze"]
    attempts = int(np.ceil(levels.ROUND_SHARE * n))
    draft = jax.jit(jax.vmap(partial(levels._draft, spec)))
    build = jax.jit(jax.vmap(partial(levels._state, spec)))
    kept: list[State] = []
    for round_ in range(40):
        words = jax.random.bits(
            jax.random.fold_in(key, round_), (attempts, levels._words_per_level(spec)), "uint32"
        )
        drafts, accepted = draft(words)
        kept.append(jax.tree.map(lambda leaf, a=accepted: leaf[np.asarray(a)], build(drafts)))
        if sum(len(part.agent_dir) for part in kept) >= n:
            break
    expected = jax.tree.map(lambda *parts: np.concatenate(parts)[:n], *kept)
    jax.tree.map(np.testing.assert_array_equal, batch, expected)


def test_generation_is_a_function_of_the_key(generated: dict[str, State]) -> None:
    spec = TASKS["goto-room"]
    same, other = (levels.generate(spec, jax.random.key(seed), NUM_LEVELS) for seed in (3, 4))
    jax.tree.map(np.testing.assert_array_equal, generated["goto-room"], same)
    assert np.any(np.asarray(same.cells) != np.asarray(other.cells))


def test_distinct_indices_are_uniform_ordered_samples() -> None:
    """Every combination of draws gives every ordered sample of 3 out of 4 equally often."""
    choices = np.stack(np.meshgrid(np.arange(4), np.arange(3), np.arange(2)), -1).reshape(-1, 3)
    remaining, earlier = jnp.array([4, 3, 2]), jnp.tri(3, k=-1, dtype=bool)
    draw = jax.vmap(lambda c: distinct_indices(c, remaining, earlier))
    samples = {tuple(row) for row in np.asarray(draw(choices)).tolist()}
    assert len(samples) == 24
    assert all(len(set(sample)) == 3 and max(sample) < 4 for sample in samples)


def test_nth_set_bit() -> None:
    word = 0b1000_0000_0000_0001_0000_0000_0010_1100
    places = [bit for bit in range(32) if word >> bit & 1]
    for n, place in enumerate(places):
        assert int(nth_set_bit(jnp.uint32(word), jnp.int32(n))) == place


def test_reachable_winds_through_columns_taller_than_a_word() -> None:
    """A snake through a grid 36 cells high, against a plain flood fill."""
    grid = room_grid(5, 1, 8)
    cells = np.full((grid.width, grid.height), WALL_CELL, np.uint8)
    cells[1::2, 1:-1] = EMPTY_CELL
    cells[2, -2] = cells[4, 1] = EMPTY_CELL
    x, y = jnp.nonzero(cells == EMPTY_CELL)
    passable = grid.bit_columns(x, y, jnp.ones(len(x), bool))
    start = grid.bit_columns(jnp.array([1]), jnp.array([1]), jnp.ones(1, bool))
    reached = np.asarray(reachable(passable, start))
    bits = reached[:, np.arange(grid.height) // 32] >> np.arange(grid.height) % 32 & 1
    expected = flood(cells, (1, 1)) & (cells == EMPTY_CELL)
    np.testing.assert_array_equal(bits.astype(bool), expected)
    assert expected[5].any()
    assert not expected[7].any()
