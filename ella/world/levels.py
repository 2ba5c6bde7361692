"""Level generation, with the distribution of minigrid 3.2.0's generators.

Minigrid draws parts one after the other, redraws a part that does not suit, and starts the whole
level again when the result breaks a rule. Here every redraw is one draw from the choices that
suit, and `attempt` returns whether the level as a whole is accepted; `generate` attempts batches
until it has enough. Minigrid gives up a redraw after 100 or 1000 failures and restarts; here it
restarts exactly when no choice suits.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, PRNGKeyArray, UInt32

from ella.world.encoding import CLOSED_DOOR, EMPTY_CELL, KEY, LOCKED_DOOR, WALL_CELL, cell_of
from ella.world.grammar import CLAUSE_KINDS
from ella.world.rooms import (
    Doors,
    Objects,
    RoomGrid,
    connect_rooms,
    dilated,
    distinct_indices,
    nth_set_bit,
    place_agent,
    place_objects,
    reachable,
    room_grid,
    uniform_index,
)
from ella.world.state import AFTER, AND, BEFORE, OPEN_DOOR, PUT_NEXT, State
from ella.world.tasks import NUM_MOVABLE_CLASSES, TaskSpec

NUM_CLASSES = NUM_MOVABLE_CLASSES + 6
"""Object classes: 3 * colour + type for things, then one per door colour."""
MOVABLE_BITS = np.uint32(2**NUM_MOVABLE_CLASSES - 1)
DOOR_BITS = np.uint32(2**NUM_CLASSES - 1) ^ MOVABLE_BITS
ROUND_SHARE = 0.35
"""Attempts per round as a share of the levels asked for: with 55 to 90 % accepted, rounds this
small waste little and few rounds are needed."""
MIN_ROUND = 4


class RandomWords:
    """One level's random words, handed out in order while tracing."""

    def __init__(self, words: UInt32[Array, " N"]) -> None:
        self.words = words
        self.used = 0

    def take(self, count: int) -> UInt32[Array, " n"]:
        self.used += count
        return self.words[self.used - count : self.used]

    def one(self) -> UInt32[Array, ""]:
        return self.take(1)[0]


class Lock(NamedTuple):
    """Which room is locked by which door and where its key goes; -1 without a locked room."""

    room: Int32[Array, ""]
    edge: Int32[Array, ""]
    key_room: Int32[Array, ""]


class DrawnClause(NamedTuple):
    """A clause drawn for a level, as class numbers and the id of its words."""

    clause_id: Int32[Array, ""]
    is_put_next: Bool[Array, ""]
    target: Int32[Array, ""]
    fixed: Int32[Array, ""]
    found: Bool[Array, ""]
    """Whether there was an object to name."""


def attempt(spec: TaskSpec, key: PRNGKeyArray) -> tuple[State, Bool[Array, ""]]:
    """One try at a level, and whether minigrid would accept it."""
    draft, accepted = _draft(spec, jax.random.bits(key, (_words_per_level(spec),), jnp.uint32))
    return _state(spec, draft), accepted


@partial(jax.jit, static_argnames=("spec", "n"))
def generate(spec: TaskSpec, key: PRNGKeyArray, n: int) -> State:
    """n independent accepted levels, as a State with batch axis [n]."""
    attempts = max(MIN_ROUND, int(np.ceil(ROUND_SHARE * n)))

    def missing(carry: tuple[Array, Array, Array]) -> Array:
        return carry[1] < n

    def add_round(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        drafts, filled, round_ = carry
        shape = (attempts, _words_per_level(spec))
        words = jax.random.bits(jax.random.fold_in(key, round_), shape, jnp.uint32)
        fresh, accepted = jax.vmap(partial(_draft, spec))(words)
        total = filled + jnp.cumsum(accepted.astype(jnp.int32))
        # Taking accepted levels in the order of the draws keeps them independent of the rest.
        slot = jnp.where(accepted, total - 1, n)
        return drafts.at[slot].set(fresh, mode="drop"), total[-1], round_ + 1

    empty = jnp.zeros((n, _draft_size(spec)), jnp.uint32)
    drafts, _, _ = jax.lax.while_loop(missing, add_round, (empty, jnp.int32(0), jnp.int32(0)))
    return jax.vmap(partial(_state, spec))(drafts)


def shapes(spec: TaskSpec, n: int) -> State:
    """What `generate` makes, as shapes; its drafts are not traced."""
    drafts = jax.ShapeDtypeStruct((n, _draft_size(spec)), jnp.uint32)
    return jax.eval_shape(jax.vmap(partial(_state, spec)), drafts)


def _draft_size(spec: TaskSpec) -> int:
    """Words of a draft."""
    grid = room_grid(spec.rows, spec.cols, spec.room_size)
    return _num_objects(spec) + len(grid.edges) + 2


def _num_objects(spec: TaskSpec) -> int:
    return spec.distractors + (spec.lock_probability > 0)


def _words_per_level(spec: TaskSpec) -> int:
    """Random words one attempt uses at most."""
    return 3 * _num_objects(spec) + 3 * spec.num_doors + 14


# Compiled on its own, like `_state` and the view, so that a process traces it once for all the
# programs it is part of.
@partial(jax.jit, static_argnames="spec")
def _draft(
    spec: TaskSpec, words: UInt32[Array, " N"]
) -> tuple[UInt32[Array, " D"], Bool[Array, ""]]:
    """A level as words, and whether it is accepted.

    The words: per object and then per door `cell << 8 | code` (0 where there is none), then
    `cell << 2 | direction` of the agent, then the instruction id; a cell is x * H + y.
    """
    grid = room_grid(spec.rows, spec.cols, spec.room_size)
    draws = RandomWords(words)
    lock = _draw_lock(spec, grid, draws)
    num_doors = len(grid.edges)
    if num_doors:
        door_words = draws.take(3 * num_doors).reshape(3, num_doors)
        doors, accepted = connect_rooms(grid, door_words, lock.edge, lock.room)
    else:
        none = jnp.zeros(0, jnp.int32)
        doors, accepted = Doors(none, none, none, none > 0, none > 0), jnp.bool_(True)

    if spec.agent_first:
        agent_cell = uniform_index(draws.one(), grid.side**2)
        agent_dir = uniform_index(draws.one(), 4)
        agent_pos = jnp.asarray(grid.interiors[0])[agent_cell]
        cells, counts = (jnp.asarray(table)[agent_cell][None] for table in grid.places_by_agent)
    else:
        cells, counts = (jnp.asarray(table) for table in grid.places)
    objects, classes, fit = _draw_objects(spec, grid, draws, lock, doors, cells, counts)
    accepted &= fit

    occupied = grid.bit_columns(objects.x, objects.y, objects.present)
    door_columns = grid.bit_columns(doors.x, doors.y, doors.present)
    if not spec.agent_first:
        agent_pos, agent_dir, possible = _draw_agent(
            spec, grid, draws, lock, occupied, occupied | door_columns
        )
        accepted &= possible
    if not spec.unblocking:
        inside = np.bitwise_or.reduce(grid.room_columns, axis=0)
        start = grid.bit_columns(agent_pos[:1], agent_pos[1:], jnp.ones(1, bool))
        reached = reachable(inside & ~occupied | door_columns, start)
        accepted &= ~jnp.any((occupied | door_columns) & ~dilated(reached))

    instruction_id, suits = _draw_instruction(spec, draws, lock, objects, classes, doors)
    accepted &= suits

    colours, types = classes // 3, classes % 3
    code = jnp.where(objects.present, cell_of(KEY + types, colours), 0)
    object_cells = jnp.where(objects.present, _cell(spec, objects.x, objects.y) << 8 | code, 0)
    code = cell_of(jnp.where(doors.locked, LOCKED_DOOR, CLOSED_DOOR), doors.colour)
    door_cells = jnp.where(doors.present, _cell(spec, doors.x, doors.y) << 8 | code, 0)
    agent_word = _cell(spec, agent_pos[0], agent_pos[1]) << 2 | agent_dir
    rest = jnp.stack([agent_word, instruction_id])
    draft = jnp.concatenate([object_cells, door_cells, rest]).astype(jnp.uint32)
    return draft, accepted


def _cell(spec: TaskSpec, x: Array, y: Array) -> Array:
    return x * spec.height + y


@partial(jax.jit, static_argnames="spec")
def _state(spec: TaskSpec, draft: UInt32[Array, " D"]) -> State:
    """The initial state of a drafted level."""
    grid = room_grid(spec.rows, spec.cols, spec.room_size)
    bare = np.full((spec.width, spec.height), WALL_CELL, np.uint8)
    bare[tuple(grid.interiors.reshape(-1, 2).T)] = EMPTY_CELL
    cells = jnp.asarray(bare.reshape(-1))
    index = jnp.arange(spec.width * spec.height, dtype=jnp.uint32)
    for i in range(draft.shape[0] - 2):
        here = (index == draft[i] >> 8) & (draft[i] > 0)
        cells = jnp.where(here, draft[i].astype(jnp.uint8), cells)
    cells = cells.reshape(spec.width, spec.height)

    agent, instruction_id = draft[-2].astype(jnp.int32), draft[-1].astype(jnp.int32)
    max_steps = spec.language.navigations(instruction_id) * spec.steps_per_navigation
    return State(
        cells=cells,
        remembered_cells=cells,
        agent_pos=jnp.stack([(agent >> 2) // spec.height, (agent >> 2) % spec.height]),
        agent_dir=agent & 3,
        carrying=jnp.uint8(0),
        instruction=spec.language.decode(instruction_id),
        instruction_id=instruction_id,
        clause_done=jnp.zeros(2, bool),
        previous_carrying=jnp.zeros(2, jnp.uint8),
        step_count=jnp.int32(0),
        max_steps=jnp.int32(max_steps if spec.max_steps is None else spec.max_steps),
    )


def _draw_lock(spec: TaskSpec, grid: RoomGrid, draws: RandomWords) -> Lock:
    """A room with a wall to lock, uniform over (room, neighbour), and another room for the key."""
    if spec.lock_probability == 0:
        return Lock(jnp.int32(-1), jnp.int32(-1), jnp.int32(-1))
    chance = (draws.one() >> 8).astype(jnp.float32) * 2.0**-24
    locked = chance < spec.lock_probability
    pair = uniform_index(draws.one(), 2 * len(grid.edges))
    room = jnp.asarray(grid.edges.reshape(-1))[pair]
    key_room = uniform_index(draws.one(), grid.num_rooms - 1)
    key_room += (key_room >= room).astype(jnp.int32)
    return Lock(*(jnp.where(locked, part, -1) for part in (room, pair // 2, key_room)))


def _draw_objects(
    spec: TaskSpec,
    grid: RoomGrid,
    draws: RandomWords,
    lock: Lock,
    doors: Doors,
    cells: Int32[Array, "R N 2"],
    counts: Int32[Array, " R"],
) -> tuple[Objects, Int32[Array, " K"], Bool[Array, ""]]:
    """The key, where a lock is possible, and the distractors; their classes; whether they fit."""
    num, has_key = _num_objects(spec), spec.lock_probability > 0
    room = uniform_index(draws.take(num), grid.num_rooms)
    class_words = draws.take(num)
    present = jnp.ones(num, bool)
    if has_key:
        room = room.at[0].set(jnp.maximum(lock.key_room, 0))
        present = present.at[0].set(lock.room >= 0)
        key_class = 3 * jnp.sum(jnp.where(doors.locked, doors.colour, 0))
    if spec.unique_objects:
        earlier = jnp.asarray(np.tri(num, k=-1, dtype=bool)) & present
        remaining = NUM_MOVABLE_CLASSES - jnp.sum(earlier, axis=1)
        choices = uniform_index(class_words, jnp.maximum(remaining, 1))
        if has_key:
            choices = choices.at[0].set(key_class)
        classes = distinct_indices(choices, remaining, earlier)
        enough = jnp.all(remaining > 0)
    else:
        classes = uniform_index(class_words, NUM_MOVABLE_CLASSES)
        if has_key:
            classes = classes.at[0].set(key_class)
        enough = jnp.bool_(True)
    objects, fit = place_objects(cells, counts, room, present, draws.take(num))
    return objects, classes, fit & enough


def _draw_agent(
    spec: TaskSpec,
    grid: RoomGrid,
    draws: RandomWords,
    lock: Lock,
    occupied: UInt32[Array, "W words"],
    blocking: UInt32[Array, "W words"],
) -> tuple[Int32[Array, "2"], Int32[Array, ""], Bool[Array, ""]]:
    """The agent in a room that is not locked: position, direction, whether there is one."""
    room_columns = jnp.asarray(grid.room_columns)
    free = room_columns & ~occupied
    # A full room ends minigrid's search when it is drawn, even if it is the locked one.
    full = jnp.all(free == 0, axis=(1, 2))
    drawable = (np.arange(grid.num_rooms) != lock.room) | full
    totals = jnp.cumsum(drawable.astype(jnp.int32))
    room = jnp.sum(totals <= uniform_index(draws.one(), totals[-1]))
    columns = room_columns[room]
    return place_agent(columns, ~occupied, blocking, draws.one())


def _draw_instruction(
    spec: TaskSpec,
    draws: RandomWords,
    lock: Lock,
    objects: Objects,
    classes: Int32[Array, " K"],
    doors: Doors,
) -> tuple[Int32[Array, ""], Bool[Array, ""]]:
    """An instruction id for the level, and whether minigrid would accept it."""
    all_classes = jnp.concatenate([classes, NUM_MOVABLE_CLASSES + doors.colour])
    present = jnp.concatenate([objects.present, doors.present])
    namable = present
    if spec.lock_probability > 0 and not spec.implicit_unlock:
        # The bounds of the locked room include its one door.
        namable &= jnp.concatenate([objects.room != lock.room, ~doors.locked])
    is_class = all_classes[:, None] == np.arange(NUM_CLASSES)
    counts = jnp.sum(is_class & present[:, None], axis=0)
    several = counts > 1
    candidates = _as_bits(jnp.any(is_class & namable[:, None], axis=0))

    if spec.form == "single":
        kinds: tuple[tuple[str, ...], ...] = (spec.kinds,)
    elif spec.form == "each":
        kinds = ((spec.kinds[0],), (spec.kinds[1],))
    else:
        kinds = (spec.kinds, spec.kinds)
    if spec.agent_first:
        clauses = [_clause_on_objects(spec, draws, classes, several)]
    else:
        clauses = [_clause_on_classes(spec, part, draws, candidates, several) for part in kinds]

    suits = jnp.bool_(True)
    for clause in clauses:
        suits &= clause.found
        if "putnext" in spec.kinds:
            suits &= ~(clause.is_put_next & _cannot_put(clause, objects, classes, doors))
        if spec.unblocking and spec.lock_probability > 0:
            colour = jnp.sum(jnp.where(doors.locked, doors.colour, 0))
            opener = jnp.where(lock.room >= 0, 3 * colour, -1)
            suits &= clause.target != opener
            suits &= ~clause.is_put_next | (clause.fixed != opener)

    if spec.form in ("single", "each", "and"):
        form = jnp.int32(AND)
    else:
        form = jnp.where(draws.one() >> 31 == 0, BEFORE, AFTER)
    last = clauses[-1].clause_id
    return spec.language.compose(form, clauses[0].clause_id, last), suits


def _as_bits(flags: Bool[Array, " N"]) -> UInt32[Array, ""]:
    positions = np.arange(flags.shape[0], dtype=np.uint32)
    return jnp.sum(jnp.where(flags, jnp.uint32(1) << positions, 0), dtype=jnp.uint32)


def _clause_on_classes(
    spec: TaskSpec,
    kinds: tuple[str, ...],
    draws: RandomWords,
    candidates: UInt32[Array, ""],
    several: Bool[Array, " C"],
) -> DrawnClause:
    """A clause whose objects are uniform over the classes that may be named."""
    numbers = np.array([CLAUSE_KINDS[name] for name in kinds], np.int32)
    kind = jnp.asarray(numbers)[uniform_index(draws.one(), len(kinds))]
    namable_bits = {"goto": MOVABLE_BITS | DOOR_BITS, "open": DOOR_BITS}
    masks = np.array([namable_bits.get(name, MOVABLE_BITS) for name in kinds], np.uint32)
    mask = jnp.sum(jnp.where(numbers == kind, masks, 0), dtype=jnp.uint32)
    target, found = _nth_class(candidates & mask, draws.one())
    fixed, _ = _nth_class(candidates, draws.one())
    return _clause(spec, kinds, kind, target, fixed, found, several)


def _clause_on_objects(
    spec: TaskSpec,
    draws: RandomWords,
    classes: Int32[Array, " K"],
    several: Bool[Array, " C"],
) -> DrawnClause:
    """A clause on the class of a random object, or of an ordered pair of objects."""
    num = classes.shape[0]
    first = uniform_index(draws.one(), num)
    second = uniform_index(draws.one(), max(num - 1, 1))
    second += (second >= first).astype(jnp.int32)
    target, fixed = (
        jnp.sum(jnp.where(np.arange(num) == index, classes, 0)) for index in (first, second)
    )
    kind = jnp.int32(CLAUSE_KINDS[spec.kinds[0]])
    return _clause(spec, spec.kinds, kind, target, fixed, jnp.bool_(True), several)


def _nth_class(
    candidates: UInt32[Array, ""], word: UInt32[Array, ""]
) -> tuple[Int32[Array, ""], Bool[Array, ""]]:
    """A class uniform over the set bits of `candidates`, and whether there is any."""
    count = jax.lax.population_count(candidates).astype(jnp.int32)
    return nth_set_bit(candidates, uniform_index(word, jnp.maximum(count, 1))), count > 0


def _clause(
    spec: TaskSpec,
    kinds: tuple[str, ...],
    kind: Int32[Array, ""],
    target: Int32[Array, ""],
    fixed: Int32[Array, ""],
    found: Bool[Array, ""],
    several: Bool[Array, " C"],
) -> DrawnClause:
    """The clause with its id in the language: phrases are numbered article, colour, type."""
    language = spec.language
    num_movable = len(language.movable_phrases)

    def phrase(class_: Array) -> Array:
        is_a = jnp.any(several & (np.arange(NUM_CLASSES) == class_)).astype(jnp.int32)
        door = num_movable + is_a * (NUM_CLASSES - NUM_MOVABLE_CLASSES) - NUM_MOVABLE_CLASSES
        return class_ + jnp.where(class_ < NUM_MOVABLE_CLASSES, is_a * NUM_MOVABLE_CLASSES, door)

    clause_id = jnp.int32(0)
    for name in kinds:
        number = CLAUSE_KINDS[name]
        digits = phrase(target)
        if number == PUT_NEXT:
            digits = digits * len(language.object_phrases) + phrase(fixed)
        elif number == OPEN_DOOR:
            digits = digits - num_movable
        clause_id = jnp.where(kind == number, language.kind_offsets[number] + digits, clause_id)
    return DrawnClause(clause_id, kind == PUT_NEXT, target, fixed, found)


def _cannot_put(
    clause: DrawnClause, objects: Objects, classes: Int32[Array, " K"], doors: Doors
) -> Bool[Array, ""]:
    """Whether the classes coincide or an object to move already lies next to a fixed one."""
    x = jnp.concatenate([objects.x, doors.x])
    y = jnp.concatenate([objects.y, doors.y])
    is_fixed = jnp.concatenate(
        [
            objects.present & (classes == clause.fixed),
            doors.present & (NUM_MOVABLE_CLASSES + doors.colour == clause.fixed),
        ]
    )
    is_moved = objects.present & (classes == clause.target)
    distance = jnp.abs(objects.x[:, None] - x) + jnp.abs(objects.y[:, None] - y)
    adjacent = jnp.any((distance == 1) & is_moved[:, None] & is_fixed)
    return adjacent | (clause.target == clause.fixed)
