"""Levels of a task that have a given instruction.

Drawing levels until one has the instruction takes millions of draws where the language is large.
But a task treats its colours, and its balls and boxes, alike: exchanging them in a level gives a
level that is as probable, with the exchanged instruction. So it is enough to draw a level whose
instruction becomes the wanted one by such an exchange. What comes out has the distribution of the
task's levels given the instruction.
"""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from ella.errors import InputError
from ella.world.encoding import (
    CLOSED_DOOR,
    DOOR,
    KEY,
    LOCKED_DOOR,
    MOVABLE_TYPES,
    NUM_COLOURS,
    cell_of,
)
from ella.world.environment import Environment
from ella.world.grammar import Phrase, Sentence
from ella.world.state import State, Timestep
from ella.world.tasks import TaskSpec

ROUND = 256
"""Levels drawn at once."""
MOST_ROUNDS = 2**14
"""The rarest instructions of the named tasks, two clauses of `sequence-maze` with four times "a",
come once in about 2,000 rounds."""

ObjectClass = tuple[int, int]
"""(type, colour)."""


def levels_with_instruction(
    env: Environment, text: str, key: PRNGKeyArray, count: int = 1
) -> State:
    """`count` independent levels [count] of the task whose instruction is `text`.

    Raises InputError if the text is outside the grammar, no instruction of the task, or one that
    its levels never have.
    """
    spec = env.one_task
    instruction_id = spec.language.find(text)
    wanted = spec.language.sentence(instruction_id)
    _check_number_of_objects(spec, wanted)
    found: list[State] = []
    for round_ in range(MOST_ROUNDS):
        drawn = jax.device_get(_draw(env, jax.random.fold_in(key, round_)))
        for row in _alike(drawn, wanted):
            sentence = spec.language.sentence(int(drawn.instruction_id[row]))
            codes = exchange(spec, sentence, wanted)
            if codes is not None:
                level = jax.tree.map(lambda leaf, row=row: leaf[row], drawn)
                found.append(_exchanged(level, codes))
            if len(found) == count:
                levels = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *found)
                ids = jnp.full(count, instruction_id, jnp.int32)
                return replace(levels, instruction=spec.language.decode(ids), instruction_id=ids)
    raise InputError(
        f"only {len(found)} of {MOST_ROUNDS * ROUND:,} levels of task '{spec.name}' could be given "
        f"the instruction '{text}', asked for {count}"
    )


@partial(jax.jit, static_argnums=0)
def begin(env: Environment, levels: State) -> Timestep:
    """Episodes at their start on levels [N]."""
    zeros = jnp.zeros(levels.step_count.shape, jnp.float32)
    return Timestep(levels, jax.vmap(env.observe)(levels), zeros, zeros > 0, zeros > 0)


def exchange(spec: TaskSpec, drawn: Sentence, wanted: Sentence) -> np.ndarray | None:
    """Cell codes uint8[256] by cell code, after an exchange of object classes that turns `drawn`
    into `wanted` and keeps the task's distribution; None if there is none.

    The sentences have the same form, clause kinds and articles.
    """
    partners: dict[ObjectClass, ObjectClass] = {}
    for old, new in zip(_phrases(drawn), _phrases(wanted), strict=True):
        source, target = _unit(spec, old.type, old.colour), _unit(spec, new.type, new.colour)
        if DOOR in (source[0], target[0]) and old.type != new.type:
            return None
        if partners.setdefault(source, target) != target:
            return None
    if len(set(partners.values())) < len(partners):
        return None
    classes = [(type_, colour) for type_ in (DOOR, *MOVABLE_TYPES) for colour in range(NUM_COLOURS)]
    units = dict.fromkeys(_unit(spec, *one) for one in classes)
    for are_doors in (True, False):
        members = [unit for unit in units if (unit[0] == DOOR) == are_doors]
        taken = set(partners.values())
        without = [unit for unit in members if unit not in partners]
        partners.update(zip(without, (unit for unit in members if unit not in taken), strict=True))
    codes = np.arange(256, dtype=np.uint8)
    for type_, colour in classes:
        unit = _unit(spec, type_, colour)
        new_type, new_colour = partners[unit]
        for kind in (DOOR, CLOSED_DOOR, LOCKED_DOOR) if type_ == DOOR else (type_,):
            new_kind = kind if unit[0] == DOOR else new_type
            codes[cell_of(kind, colour)] = cell_of(new_kind, new_colour)
    return codes


def _unit(spec: TaskSpec, type_: int, colour: int) -> ObjectClass:
    """What is exchanged in place of a class: where rooms can be locked, a key follows the doors of
    its colour. Doors are exchanged among themselves, and so are all other classes."""
    follows_doors = type_ == KEY and spec.lock_probability > 0
    return (DOOR if follows_doors else type_, colour)


def _phrases(sentence: Sentence) -> list[Phrase]:
    return [phrase for clause in sentence.clauses for phrase in clause.phrases]


def _alike(drawn: State, wanted: Sentence) -> np.ndarray:
    """The rows of levels [N] whose instruction has the form, kinds and articles of `wanted`."""
    kinds, articles = np.zeros(2, np.int32), np.zeros((2, 2), np.uint8)
    for index, clause in enumerate(wanted.clauses):
        kinds[index] = clause.kind
        articles[index, : len(clause.phrases)] = [phrase.article for phrase in clause.phrases]
    instruction = drawn.instruction
    alike = instruction.form == wanted.form
    alike &= (instruction.kinds == kinds).all(axis=1)
    return np.flatnonzero(alike & (instruction.articles == articles).all(axis=(1, 2)))


def _exchanged(level: State, codes: np.ndarray) -> State:
    """The level, on the host, with other objects and still its own instruction."""
    return replace(level, cells=codes[level.cells], remembered_cells=codes[level.remembered_cells])


@partial(jax.jit, static_argnums=0)
def _draw(env: Environment, key: PRNGKeyArray) -> State:
    return env.generate(key, ROUND)


def _check_number_of_objects(spec: TaskSpec, wanted: Sentence) -> None:
    """Refuse an instruction that names more objects than a level can have."""
    named = {(phrase.type, phrase.colour): phrase.article for phrase in _phrases(wanted)}
    doors = sum(1 + article for (type_, _), article in named.items() if type_ == DOOR)
    things = sum(1 + article for (type_, _), article in named.items() if type_ != DOOR)
    has_key = spec.lock_probability > 0 and any(type_ == KEY for type_, _ in named)
    for count, most, name in (
        (doors, spec.num_doors, "door"),
        (things, spec.distractors + has_key, "object"),
    ):
        if count > most:
            raise InputError(
                f"task '{spec.name}' never says '{wanted.text}': that takes {count} {name}s, its "
                f"levels have at most {most}"
            )
