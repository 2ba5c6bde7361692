"""Which low-level instructions truly support a high-level one.

The rule reads off the grammar, article or not:

    put X next to Y    go to X, pick up X
    pick up X          go to X, pick up X
    open a door        go to that door, open it and, where doors can be locked, pick up its key
    go to X            go to X

as far as the low-level language has such sentences; a sentence of two clauses needs both.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from ella.errors import InputError
from ella.world.encoding import KEY, cell_of, colour_of
from ella.world.grammar import Clause
from ella.world.language import Language
from ella.world.mixtures import Mixture, Task
from ella.world.state import GOTO, OPEN_DOOR, PICK_UP, PUT_NEXT
from ella.world.tasks import TaskSpec


def low_level_of(task: Task) -> TaskSpec:
    """The task whose instructions support `task`, or an error that says how to name one. A
    mixture's is its target's: one termination classifier, trained for what is evaluated."""
    spec = task.target if isinstance(task, Mixture) else task
    if spec.low_level is None:
        raise InputError(
            f"task '{spec.name}' has no low-level task; ELLA needs one (TaskSpec.low_level), "
            "as putnext-room has goto-room"
        )
    return require_single_clauses(spec.find(spec.low_level))


def require_single_clauses(low: TaskSpec) -> TaskSpec:
    """The task, if it can be a low-level one."""
    if low.language.form != "single":
        raise InputError(f"low-level task '{low.name}' must have sentences of one clause")
    return low


def _supporting(clause: Clause, doors_lock: bool) -> Iterator[tuple[int, int]]:
    """(clause kind, object class) of the low-level clauses that support a high-level clause."""
    target = clause.phrases[0].object_class
    yield GOTO, target
    if clause.kind == OPEN_DOOR:
        yield OPEN_DOOR, target
        if doors_lock:
            yield PICK_UP, int(cell_of(KEY, colour_of(target)))
    if clause.kind in (PICK_UP, PUT_NEXT):
        yield PICK_UP, target


@lru_cache(maxsize=64)
def clause_relevance(task: Task, low: Language | None = None) -> np.ndarray:
    """bool[num_clauses + 1, L]: relevance to each clause of the task; the last row, for a second
    clause that is not there, is empty."""
    low_clauses = (low or low_level_of(task).language).clauses
    table = np.zeros((task.language.num_clauses + 1, len(low_clauses)), bool)
    row = 0
    for part in task.parts if isinstance(task, Mixture) else (task,):
        for clause in part.language.clauses:
            wanted = set(_supporting(clause, part.lock_probability > 0))
            for column, low_clause in enumerate(low_clauses):
                supports = (low_clause.kind, low_clause.phrases[0].object_class) in wanted
                table[row, column] = supports
            row += 1
    return table


def oracle_relevance(task: Task, ids: Any, low: Language | None = None) -> Bool[Array, "*batch L"]:
    """The instructions of a low-level language, by default the task's own, that are relevant to
    instructions int32[*batch] (traced)."""
    table = jnp.asarray(clause_relevance(task, low))
    _, first, second = task.language.split(ids)
    return table[first] | table[second]
