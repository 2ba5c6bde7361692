"""A state as plain values and back: the door for programs outside."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ella.errors import InputError, unknown_name
from ella.world.encoding import (
    BOX,
    COLOUR_NAMES,
    DOOR,
    EMPTY,
    KEY,
    MOVABLE_TYPES,
    NUM_COLOURS,
    NUM_STATES,
    TYPE_NAMES,
    WALL,
    WALL_CELL,
    cell_of,
    colour_of,
    decode_cells,
    encode_triples,
    kind_of,
)
from ella.world.environment import Environment
from ella.world.grammar import Sentence, sentence_of
from ella.world.state import Instruction, State
from ella.world.tasks import TaskSpec


def describe(state: State) -> dict[str, Any]:
    """One state as a dictionary, in minigrid's terms.

    Keys: `grid` uint8[W, H, 3], `agent_pos` (x, y), `agent_dir`, `carrying` (None or the names
    (type, colour)), `mission` (text), `step_count`, `max_steps`.
    """
    state = jax.device_get(state)
    carried = int(state.carrying)
    return {
        "grid": np.asarray(decode_cells(state.cells)),
        "agent_pos": (int(state.agent_pos[0]), int(state.agent_pos[1])),
        "agent_dir": int(state.agent_dir),
        "carrying": (TYPE_NAMES[kind_of(carried)], COLOUR_NAMES[colour_of(carried)])
        if carried
        else None,
        "mission": sentence_of(state.instruction).text,
        "step_count": int(state.step_count),
        "max_steps": int(state.max_steps),
    }


def load(task: TaskSpec | Environment, description: Mapping[str, Any]) -> State:
    """The state a dictionary like `describe`'s stands for, its instruction not yet begun.

    `carrying`, `step_count` and `max_steps` may be left out: empty hands, 0, and the task's own
    horizon.
    """
    spec = task.one_task if isinstance(task, Environment) else task
    missing = [
        key for key in ("grid", "agent_pos", "agent_dir", "mission") if key not in description
    ]
    if missing:
        raise InputError(f"a description needs '{missing[0]}'")
    cells = _checked_cells(spec, description["grid"])
    position = _checked_position(spec, cells, description["agent_pos"])
    direction = _checked_integer("agent_dir", description["agent_dir"], low=0, high=3)
    instruction_id = spec.language.find(str(description["mission"]))
    sentence = spec.language.sentence(instruction_id)
    horizon = spec.max_steps
    if horizon is None:
        navigations = sum(clause.navigations for clause in sentence.clauses)
        horizon = navigations * spec.steps_per_navigation
    max_steps = _checked_integer("max_steps", description.get("max_steps", horizon), low=1)
    step_count = _checked_integer("step_count", description.get("step_count", 0), low=0)
    carried = _carried_cell(description.get("carrying"))
    return State(
        cells=jnp.asarray(cells),
        remembered_cells=jnp.asarray(cells),
        agent_pos=jnp.asarray(np.array(position, np.int32)),
        agent_dir=jnp.asarray(np.int32(direction)),
        carrying=jnp.asarray(np.uint8(carried)),
        instruction=_instruction(sentence),
        instruction_id=jnp.asarray(np.int32(instruction_id)),
        clause_done=jnp.asarray(np.zeros(2, bool)),
        previous_carrying=jnp.asarray(np.zeros(2, np.uint8)),
        step_count=jnp.asarray(np.int32(step_count)),
        max_steps=jnp.asarray(np.int32(max_steps)),
    )


def _instruction(sentence: Sentence) -> Instruction:
    """The verifier's arrays of a sentence, made on the host."""
    kinds = np.zeros(2, np.int32)
    objects, articles = np.zeros((2, 2), np.uint8), np.zeros((2, 2), np.uint8)
    for i, clause in enumerate(sentence.clauses):
        kinds[i] = clause.kind
        for j, phrase in enumerate(clause.phrases):
            objects[i, j], articles[i, j] = phrase.object_class, phrase.article
    return Instruction(
        form=jnp.asarray(np.int32(sentence.form)),
        kinds=jnp.asarray(kinds),
        objects=jnp.asarray(objects),
        articles=jnp.asarray(articles),
    )


def _checked_integer(name: str, value: Any, low: int, high: int | None = None) -> int:
    allowed = f">= {low}" if high is None else f"in {low}..{high}"
    if isinstance(value, bool) or np.ndim(value) or int(value) != value:
        raise InputError(f"{name} must be one integer {allowed}, got {value!r}")
    if value < low or (high is not None and value > high):
        raise InputError(f"{name} must be {allowed}, got {value}")
    return int(value)


def _checked_cells(spec: TaskSpec, grid: Any) -> np.ndarray:
    grid = np.asarray(grid)
    expected = (spec.width, spec.height, 3)
    if grid.shape != expected:
        raise InputError(f"task '{spec.name}' has grids of shape {expected}, got {grid.shape}")
    type_, colour, state = grid[..., 0], grid[..., 1], grid[..., 2]
    strange = (
        ~np.isin(type_, [EMPTY, WALL, DOOR, *MOVABLE_TYPES])
        | (colour >= NUM_COLOURS)
        | (state >= np.where(type_ == DOOR, NUM_STATES, 1))
    )
    if strange.any():
        x, y = np.argwhere(strange)[0]
        raise InputError(
            f"grid cell ({x}, {y}) is {grid[x, y].tolist()}; only empty cells, walls, doors, keys, "
            "balls and boxes in minigrid's encoding are known"
        )
    cells = encode_triples(grid)
    edges = (cells[0], cells[-1], cells[:, 0], cells[:, -1])
    if any((edge != WALL_CELL).any() for edge in edges):
        raise InputError("the outermost cells of the grid must all be grey walls")
    return cells


def _checked_position(spec: TaskSpec, cells: np.ndarray, position: Any) -> tuple[int, int]:
    if np.shape(position) != (2,):
        raise InputError(f"agent_pos must be (x, y), got {position!r}")
    x = _checked_integer("agent_pos x", position[0], low=0, high=spec.width - 1)
    y = _checked_integer("agent_pos y", position[1], low=0, high=spec.height - 1)
    if kind_of(int(cells[x, y])) not in (EMPTY, DOOR):
        raise InputError(
            f"the agent cannot stand at ({x}, {y}): the cell is neither empty nor an open door"
        )
    return x, y


def _carried_cell(carrying: tuple[str, str] | None) -> int:
    if carrying is None:
        return 0
    if isinstance(carrying, str) or len(carrying) != 2:
        raise InputError(f"carrying must be None or (type, colour), got {carrying!r}")
    type_, colour = carrying
    names = TYPE_NAMES[KEY : BOX + 1]
    if type_ not in names:
        raise unknown_name("type to carry", str(type_), names)
    if colour not in COLOUR_NAMES:
        raise unknown_name("colour", str(colour), COLOUR_NAMES)
    return int(cell_of(TYPE_NAMES.index(type_), COLOUR_NAMES.index(colour)))
