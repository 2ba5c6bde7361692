"""Has the instruction been carried out? Asked once per step, after the action.

Objects are told apart by class (type and colour) alone: without location phrases every object of
a class matches a phrase that names it. A language without 'go to' or without second clauses skips
their work when it is traced.
"""

from dataclasses import replace

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32, UInt8

from ella.world.dynamics import cell_at, front_of
from ella.world.encoding import DOOR, DROP, PICKUP, TOGGLE, kind_of, object_class
from ella.world.language import AbstractLanguage
from ella.world.state import AFTER, AND, GOTO, NO_CLAUSE, OPEN_DOOR, PICK_UP, PUT_NEXT, State


def verify(
    language: AbstractLanguage, state: State, action: Int32[Array, ""]
) -> tuple[State, Bool[Array, ""]]:
    """(the state with the verifier's memory renewed, whether the instruction is fulfilled).

    `state` is the state after `action`. Drop actions, failed ones too, renew
    `remembered_cells`; tasks without 'go to' have no use for it and leave it alone.
    """
    if "goto" in language.kinds:
        remembered = jnp.where(action == DROP, state.cells, state.remembered_cells)
        state = replace(state, remembered_cells=remembered)
    succeeds = _clauses_succeed(language, state, action)
    if not language.has_second_clauses:
        previous = jnp.stack([state.carrying, state.previous_carrying[1]])
        done = jnp.stack([succeeds[0], jnp.zeros((), bool)])
        return replace(state, clause_done=done, previous_carrying=previous), succeeds[0]
    return _verify_two(state, succeeds)


def _verify_two(state: State, succeeds: Bool[Array, "2"]) -> tuple[State, Bool[Array, ""]]:
    """Both clauses of an 'and' are verified until they succeed; of a sequence, the later clause is
    verified from the very step in which the earlier one succeeds. A sentence of one clause among
    others of two is fulfilled with it."""
    form = state.instruction.form
    was_done = state.clause_done
    in_any_order = form == AND
    starts_with = (form == AFTER).astype(jnp.int32)
    is_earlier = jnp.arange(2) == starts_with
    earlier_done = jnp.where(starts_with == 0, (was_done | succeeds)[0], (was_done | succeeds)[1])

    verified = jnp.where(in_any_order | is_earlier, ~was_done, earlier_done)
    done = jnp.where(verified, succeeds, was_done)
    fulfilled = done[0] & (done[1] | (state.instruction.kinds[1] == NO_CLAUSE))
    previous = jnp.where(verified, state.carrying, state.previous_carrying)
    return replace(state, clause_done=done, previous_carrying=previous), fulfilled


def _clauses_succeed(
    language: AbstractLanguage, state: State, action: Int32[Array, ""]
) -> Bool[Array, " clauses"]:
    """For each clause, whether verifying it now gives success."""
    num_clauses = 2 if language.has_second_clauses else 1
    kinds = state.instruction.kinds[:num_clauses]
    target = state.instruction.objects[:num_clauses, 0]
    before = state.previous_carrying[:num_clauses]
    x, y = front_of(state.agent_pos, state.agent_dir)

    succeeds = jnp.zeros(num_clauses, bool)
    if "goto" in language.kinds:
        succeeds |= (kinds == GOTO) & (
            object_class(cell_at(state.remembered_cells, x, y)) == target
        )
    if "open" in language.kinds:
        front = cell_at(state.cells, x, y)
        opened = (action == TOGGLE) & (kind_of(front) == DOOR)
        succeeds |= (kinds == OPEN_DOOR) & opened & (front == target)
    if "pickup" in language.kinds:
        picked = (action == PICKUP) & (before == 0) & (state.carrying == target)
        succeeds |= (kinds == PICK_UP) & picked
    if "putnext" in language.kinds:
        dropped = (action == DROP) & (state.carrying == 0) & (before == target)
        fixed = state.instruction.objects[:num_clauses, 1]
        succeeds |= (kinds == PUT_NEXT) & dropped & _is_beside(state.cells, x, y, fixed)
    return succeeds


def _is_beside(
    cells: UInt8[Array, "W H"], x: Array, y: Array, fixed: UInt8[Array, " C"]
) -> Bool[Array, " C"]:
    """Whether an object of each fixed class stands at distance exactly 1 from (x, y)."""
    width, height = cells.shape
    xs = jnp.clip(x + jnp.array([1, -1, 0, 0]), 0, width - 1)
    ys = jnp.clip(y + jnp.array([0, 0, 1, -1]), 0, height - 1)
    neighbours = object_class(cell_at(cells, xs, ys))
    return jnp.any(neighbours[:, None] == fixed, axis=0)
