"""Shortest plans as fields of costs-to-go.

A *field* holds, for every pose of the agent (direction, cell), the number of actions still needed.
It is the least solution of Bellman's equation over turns and steps, given *goals*: poses from
which one more action ends a stage at a known cost. Stages are chained backwards (the cost of
"pick up" contains the field of "carry it there"), so which object to take, where to drop it and
in which order to do two things are decided together. Objects that the instruction and the locks
do not ask for stay where they are, unless there is no other way.

Grids are flat here, [C] with C = W * H and cell (x, y) at x * H + y. The outermost cells are walls,
so that shifts which wrap around never matter.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int16, Int32, UInt8

from ella.world.encoding import (
    BALL,
    BOX,
    CLOSED_DOOR,
    DONE,
    DOOR,
    DROP,
    EMPTY,
    KEY,
    LOCKED_DOOR,
    PICKUP,
    TOGGLE,
    WALL,
    cell_of,
    colour_of,
    kind_of,
    object_class,
)
from ella.world.state import (
    AFTER,
    AND,
    GOTO,
    NO_CLAUSE,
    OPEN_DOOR,
    PICK_UP,
    PUT_NEXT,
    SINGLE,
    State,
    pytree,
)
from ella.world.tasks import TaskSpec

NEVER = 8000
"""A cost no plan has; small enough that sums of three stay within int16."""
BLOCKING_PENALTY = 40
"""Cost added to putting a thing down where it cuts cells off, if anything is left to do."""

Field = Int16[Array, "4 C"]
Mask = Bool[Array, " C"]


@pytree
@dataclass(frozen=True)
class Plan:
    """The current stage: walk down `field`; where `goals` is as good, do `action`."""

    field: Field
    goals: Field
    action: Int32[Array, ""]


@pytree
@dataclass(frozen=True)
class RemainingClause:
    """A clause that is still to be carried out; kind NO_CLAUSE costs nothing."""

    kind: Int32[Array, ""]
    objects: UInt8[Array, "2"]


@dataclass(frozen=True)
class Ground:
    """The grid as a stage will find it."""

    cells: UInt8[Array, " C"]
    targets: UInt8[Array, " C"]
    """Classes where 'go to' looks for them."""
    unlocked: Mask
    """Doors that the plan unlocks before this stage; they stand open in `cells`."""
    height: int

    def ahead(self, values: Array) -> Array:
        """[C] to [4, C]: the value of the cell in front of each pose."""
        return values[_neighbours(self.cells.shape[-1], self.height)]

    @property
    def is_empty(self) -> Mask:
        return kind_of(self.cells) == EMPTY

    @property
    def is_movable(self) -> Mask:
        kind = kind_of(self.cells)
        return (kind == KEY) | (kind == BALL) | (kind == BOX)

    def holds(self, wanted: Any) -> Mask:
        return object_class(self.cells) == wanted

    def without(self, lifted: Mask) -> "Ground":
        """The ground when these objects are in hand."""
        return replace(self, cells=jnp.where(lifted, EMPTY, self.cells).astype(jnp.uint8))

    def with_open(self, doors: Mask) -> "Ground":
        """The ground when these doors stand open."""
        opened = object_class(self.cells)
        return replace(self, cells=jnp.where(doors, opened, self.cells).astype(jnp.uint8))

    @property
    def step_costs(self) -> Field:
        """Actions that a step forward takes from each pose: one more for a closed door."""
        kind = kind_of(self.cells)
        cost = jnp.where((kind == EMPTY) | (kind == DOOR), 1, NEVER)
        return self.ahead(jnp.where(kind == CLOSED_DOOR, 2, cost).astype(jnp.int16))

    @property
    def is_passage(self) -> Mask:
        """Cells that keep their neighbours connected: an object there may cut cells off.

        A cell is harmless if its free neighbours are joined to one another through free diagonal
        cells, and each other neighbour that is no wall is joined to a free one in that way.
        """
        kind = kind_of(self.cells)
        is_free = (kind == EMPTY) | (kind == DOOR) | (kind == CLOSED_DOOR)
        front = _neighbours(self.cells.shape[-1], self.height)
        free = is_free[front]
        diagonal = is_free[np.roll(front, -1, 0)[np.arange(4)[:, None], front]]
        joined = free & jnp.roll(free, -1, 0) & diagonal
        parts = jnp.sum(free, 0) - jnp.sum(joined, 0)
        beside = (diagonal & jnp.roll(free, -1, 0)) | jnp.roll(diagonal & free, 1, 0)
        return (parts > 1) | ~jnp.all(free | beside | (kind == WALL)[front], 0)


def _neighbours(num_cells: int, height: int) -> np.ndarray:
    """int32[4, C]: the cell in front of each pose."""
    steps = np.array(_shifts(height))[:, None]
    return ((np.arange(num_cells) + steps) % num_cells).astype(np.int32)


def _shifts(height: int) -> tuple[int, int, int, int]:
    """What a step in each direction adds to a cell's index."""
    return height, 1, -height, -1


def solve(goals: Field, step_costs: Field, height: int) -> Field:
    """The least costs-to-go at most `goals` and consistent with turning and stepping.

    Under `vmap` the batch goes last, where shifts along the grid leave it contiguous: several
    times faster on a CPU than in front.
    """

    @jax.custom_batching.custom_vmap
    def solved(goals: Field, step_costs: Field) -> Field:
        return _solve_trailing(goals, step_costs, height)

    @solved.def_vmap
    def _(axis_size: int, in_batched: Any, goals: Array, step_costs: Array) -> tuple[Array, bool]:
        goals, step_costs = (
            jnp.moveaxis(x, 0, -1)
            if batched
            else jnp.broadcast_to(x[..., None], (*x.shape, axis_size))
            for x, batched in zip((goals, step_costs), in_batched, strict=True)
        )
        return jnp.moveaxis(_solve_trailing(goals, step_costs, height), -1, 0), True

    return solved(goals, step_costs)


def _solve_trailing(
    goals: Int16[Array, "4 C *batch"], step_costs: Int16[Array, "4 C *batch"], height: int
) -> Int16[Array, "4 C *batch"]:
    Fields = tuple[Array, ...]
    shifts = _shifts(height)

    def sweep(carry: tuple[Fields, Array]) -> tuple[Fields, Array]:
        field, _ = carry
        turned = [
            jnp.minimum(
                jnp.minimum(field[d], field[(d + 2) % 4] + 2),
                jnp.minimum(field[(d + 1) % 4], field[(d + 3) % 4]) + 1,
            )
            for d in range(4)
        ]
        better = tuple(
            jnp.minimum(turned[d], jnp.roll(turned[d], -shifts[d], 0) + step_costs[d])
            for d in range(4)
        )
        changed = [jnp.any(new != old) for new, old in zip(better, field, strict=True)]
        return better, changed[0] | changed[1] | changed[2] | changed[3]

    start = tuple(jnp.minimum(goals, NEVER).astype(jnp.int16))
    field, _ = jax.lax.while_loop(lambda carry: carry[1], sweep, (start, jnp.array(True)))
    return jnp.stack(field)


def plan(spec: TaskSpec, state: State) -> Plan:
    """The stage to carry out now, given everything that is left to do."""
    W, H = state.cells.shape
    nowhere = jnp.zeros(W * H, bool)
    targets = object_class(state.remembered_cells).reshape(-1)
    ground = Ground(state.cells.reshape(-1), targets, nowhere, H)
    agent = (state.agent_dir, state.agent_pos[0] * H + state.agent_pos[1])

    def best(hand: Array, ground: Ground) -> Plan:
        """The plan for whichever order of the clauses is the cheaper at once."""
        first, second = _remaining_clauses(state)
        if spec.form == "single":
            nothing = jnp.zeros((4, W * H), jnp.int16)
            return _plan_clause(spec.kinds, first, ground, hand, nothing).entry
        chosen = _plan_clauses(spec.kinds, first, second, ground, hand)
        if spec.form in ("and", "each"):
            swapped = _plan_clauses(spec.kinds, second, first, ground, hand)
            free_order = (state.instruction.form == AND) & (second.kind != NO_CLAUSE)
            chosen = _cheaper(swapped, chosen, agent, free_order)
        return chosen

    chosen = best(state.carrying, ground)
    if spec.lock_probability > 0:
        chosen = _cheaper(_plan_unlocking(state, ground, best), chosen, agent)
    lost = chosen.field[agent] >= NEVER
    return _choose(lost, _plan_clearing(state, ground, lost), chosen)


def _remaining_clauses(state: State) -> tuple[RemainingClause, RemainingClause]:
    """The clause to do next and the one after it; kind NO_CLAUSE where there is none."""
    instruction, done = state.instruction, state.clause_done
    is_second_first = (instruction.form == AFTER) & ~done[1]
    first = jnp.where(is_second_first | (done[0] & (instruction.form != AFTER)), 1, 0)
    is_last = (instruction.form == SINGLE) | done[0] | done[1]
    second_kind = jnp.where(is_last, NO_CLAUSE, instruction.kinds[1 - first])
    return (
        RemainingClause(instruction.kinds[first], instruction.objects[first]),
        RemainingClause(second_kind, instruction.objects[1 - first]),
    )


@pytree
@dataclass(frozen=True)
class ClausePlan:
    entry: Plan
    """The stage to begin with."""
    in_hand: Field
    """Costs-to-go once the clause's object is in hand."""


def _plan_clause(
    kinds: tuple[str, ...],
    clause: RemainingClause,
    ground: Ground,
    hand: Array,
    afterwards: Field,
    more: Any = False,
    fixed_moves: Any = False,
) -> ClausePlan:
    """Carry out one clause, of one of the task's `kinds`.

    `hand` is what is in hand at its beginning, `afterwards` [4, C] the cost of the rest from the
    pose at its end, and `more` says whether there is such a rest. `fixed_moves` says that the
    object to put another next to will have been moved; then any place counts as next to it.
    """
    wanted, fixed = clause.objects[0], clause.objects[1]
    is_put = clause.kind == PUT_NEXT
    takes = is_put | (clause.kind == PICK_UP)
    has_it = hand == wanted

    in_hand = afterwards
    if "putnext" in kinds:
        anywhere = is_put & (fixed_moves | (hand == fixed))
        beside_fixed = jnp.any(ground.ahead(ground.holds(fixed)), axis=0) | anywhere
        blocking = jnp.where(more & ground.ahead(ground.is_passage), BLOCKING_PENALTY, 0)
        drop_costs = _goals(ground.ahead(beside_fixed) & is_put, 1 + afterwards + blocking)
        can_drop = ground.ahead(ground.is_empty)
        carry = _stage(ground, _goals(can_drop, drop_costs), DROP)
        # Once taken, the object's own cell is free: to walk into, or to put the object back.
        carry_costs = jnp.minimum(_with_front_free(ground, carry.field), drop_costs)
        in_hand = jnp.where(is_put, carry_costs, afterwards)

    kind = kind_of(ground.cells)
    toggles = jnp.where(ground.unlocked, 0, jnp.where(kind == CLOSED_DOOR, 1, 2))
    at_door = ground.holds(wanted) & (kind != LOCKED_DOOR) & (clause.kind == OPEN_DOOR)
    at_target = (ground.targets == wanted) & (clause.kind == GOTO)
    goals = _goals(ground.ahead(ground.holds(wanted) & takes), 1 + in_hand)
    goals = jnp.minimum(goals, _goals(ground.ahead(at_door), ground.ahead(toggles) + afterwards))
    goals = jnp.minimum(goals, _goals(ground.ahead(at_target), afterwards))
    action = jnp.where(takes, PICKUP, jnp.where(clause.kind == OPEN_DOOR, TOGGLE, DONE))
    entry = reach = _stage(ground, goals, action)

    if "putnext" in kinds or "pickup" in kinds:
        # An object already in hand does not count as picked up: it is put down and taken again.
        must_drop = takes & (hand > 0) & ~(is_put & has_it)
        again = _goals(ground.ahead(ground.is_empty), 2 + afterwards)
        reach_costs = reach.field
        if "putnext" in kinds:
            # The object in hand is to have another next to it: there and back.
            reach_costs = jnp.minimum(jnp.where(anywhere, 2, 1) * reach_costs, NEVER)
        drop_goals = jnp.where(has_it, again, _put_down_goals(ground, reach_costs))
        put_down = _stage(ground, _goals(must_drop, drop_goals), DROP)
        entry = _choose(must_drop, put_down, reach)
    if "putnext" in kinds:
        entry = _choose(is_put & has_it, carry, entry)
    return ClausePlan(entry, in_hand)


def _plan_clauses(
    kinds: tuple[str, ...],
    first: RemainingClause,
    second: RemainingClause,
    ground: Ground,
    hand: Array,
) -> Plan:
    """Carry out one clause and then, unless its kind is NO_CLAUSE, another."""
    moved = first.objects[0]
    is_put = first.kind == PUT_NEXT
    takes = is_put | (first.kind == PICK_UP)
    opened = ground.holds(moved) & (first.kind == OPEN_DOOR)
    gone = ground.holds(moved) & takes & jnp.all(second.objects != moved)
    later = replace(ground, unlocked=jnp.zeros_like(ground.unlocked))
    later = later.with_open(opened & (kind_of(ground.cells) != LOCKED_DOOR)).without(gone)
    hand_later = jnp.where(first.kind == PICK_UP, moved, jnp.where(is_put, 0, hand)).astype(
        jnp.uint8
    )

    nothing = jnp.zeros_like(ground.step_costs)
    fixed_moves = is_put & (second.kind == PUT_NEXT) & (second.objects[1] == moved)
    rest = _plan_clause(kinds, second, later, hand_later, nothing, fixed_moves=fixed_moves)
    there_and_back = jnp.where(fixed_moves, 2, 1) * rest.entry.field
    takes_it_again = (second.objects[0] == moved) & (
        (second.kind == PICK_UP) | (second.kind == PUT_NEXT)
    )
    after_drop = jnp.minimum(
        _best_turn(there_and_back), jnp.where(takes_it_again, 1 + rest.in_hand, NEVER)
    )
    afterwards = jnp.where(is_put, after_drop, rest.entry.field)
    is_same = (first.kind == second.kind) & jnp.all(first.objects == second.objects)
    more = second.kind != NO_CLAUSE
    done_at_once = ~more | (is_same & (first.kind != PUT_NEXT))
    afterwards = jnp.where(done_at_once, nothing, afterwards).astype(jnp.int16)
    return _plan_clause(kinds, first, ground, hand, afterwards, more).entry


def _plan_unlocking(state: State, ground: Ground, best: Callable[..., Plan]) -> Plan:
    """Fetch the key of the locked door, unlock it, and do what is left with the key in hand."""
    is_locked = kind_of(ground.cells) == LOCKED_DOOR
    colour = jnp.max(jnp.where(is_locked, colour_of(ground.cells), 0))
    key = cell_of(jnp.uint8(KEY), colour)
    has_key = state.carrying == key
    unlocked = replace(ground.with_open(is_locked), unlocked=is_locked)
    afterwards = best(key, unlocked).field
    goals = _goals(ground.ahead(is_locked), 1 + afterwards)
    carry = _stage(ground, goals, TOGGLE)
    carry_costs = _with_front_free(ground, carry.field)
    can_fetch = ground.holds(key) & jnp.any(is_locked) & (state.carrying == 0)
    fetch = _stage(ground, _goals(ground.ahead(can_fetch), 1 + carry_costs), PICKUP)
    return _choose(has_key, carry, fetch)


def _plan_clearing(state: State, ground: Ground, needed: Array) -> Plan:
    """Where no plan exists: free the hands, or take the nearest object that stands in a
    passage."""
    passage = ground.ahead(ground.is_passage)
    is_full = state.carrying > 0
    place = _goals(ground.ahead(ground.is_empty), jnp.where(passage, 1 + BLOCKING_PENALTY, 1))
    take = _goals(ground.ahead(ground.is_movable), jnp.where(passage, 1, 1 + BLOCKING_PENALTY))
    goals = _goals(needed, jnp.where(is_full, place, take))
    return _stage(ground, goals, jnp.where(is_full, DROP, PICKUP))


def _put_down_goals(ground: Ground, afterwards: Field) -> Field:
    """Put down what is in hand and then follow `afterwards`.

    Poses from which the way leads forward, over the object put down, are left out.
    """
    beyond = _beyond(ground, afterwards)
    goes_forward = afterwards >= beyond + ground.step_costs
    penalty = jnp.where(ground.ahead(ground.is_passage), BLOCKING_PENALTY, 0)
    return _goals(ground.ahead(ground.is_empty) & ~goes_forward, 1 + afterwards + penalty)


def _with_front_free(ground: Ground, field: Field) -> Field:
    """`field` when the object in front of the pose has just been taken away."""
    return jnp.minimum(field, 1 + _beyond(ground, field))


def _beyond(ground: Ground, field: Field) -> Field:
    """The field's value one step forward from each pose."""
    front = _neighbours(ground.cells.shape[-1], ground.height)
    return jnp.take_along_axis(field, jnp.asarray(front), axis=-1)


def _goals(allowed: Array, cost: Any) -> Field:
    return jnp.where(allowed, jnp.minimum(cost, NEVER), NEVER).astype(jnp.int16)


def _best_turn(field: Field) -> Field:
    """The cost when the first action has to be a turn."""
    return jnp.minimum(jnp.roll(field, 1, -2), jnp.roll(field, -1, -2)) + 1


def _stage(ground: Ground, goals: Field, action: Any) -> Plan:
    field = solve(goals, ground.step_costs, ground.height)
    return Plan(field, goals, jnp.asarray(action, jnp.int32))


def _choose(condition: Array, chosen: Plan, other: Plan) -> Plan:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), chosen, other)


def _cheaper(one: Plan, other: Plan, agent: tuple[Array, Array], allowed: Any = True) -> Plan:
    return _choose(allowed & (one.field[agent] < other.field[agent]), one, other)
