"""What the world carries from step to step."""

from dataclasses import dataclass
from typing import Any

import jax
from jaxtyping import Array, Bool, Float, Int32, UInt8

SINGLE, AND, BEFORE, AFTER = range(4)
"""Sentence forms: one clause; 'A and B'; 'A, then B'; 'A after you B'."""

NO_CLAUSE, GOTO, OPEN_DOOR, PICK_UP, PUT_NEXT = range(5)
"""Clause kinds."""


def pytree(cls: type) -> Any:
    """Register a frozen dataclass as a PyTree whose every field is a child."""
    return jax.tree_util.register_dataclass(cls)


@pytree
@dataclass(frozen=True)
class Instruction:
    """An instruction as the verifier sees it; clauses stand in the order of the text."""

    form: Int32[Array, "*batch"]
    kinds: Int32[Array, "*batch 2"]
    objects: UInt8[Array, "*batch 2 2"]
    """Per clause: [target or moved, fixed] as (type, colour) cell codes; 0 where absent."""
    articles: UInt8[Array, "*batch 2 2"]
    """Per object: 0 for 'the', 1 for 'a'. Only the text needs it."""


@pytree
@dataclass(frozen=True)
class State:
    """One environment. Grids are indexed [x, y], as in minigrid."""

    cells: UInt8[Array, "*batch W H"]
    """Cell codes (`ella.world.encoding`); the agent is not drawn."""
    remembered_cells: UInt8[Array, "*batch W H"]
    """`cells` as of the reset or of the last drop action: where 'go to' looks for targets."""
    agent_pos: Int32[Array, "*batch 2"]
    agent_dir: Int32[Array, "*batch"]
    carrying: UInt8[Array, "*batch"]
    """Cell code of the object in hand; 0 for empty hands."""
    instruction: Instruction
    instruction_id: Int32[Array, "*batch"]
    """Within the task's language."""
    clause_done: Bool[Array, "*batch 2"]
    previous_carrying: UInt8[Array, "*batch 2"]
    """Per clause, what was in hand when the clause was last verified; 0 for nothing."""
    step_count: Int32[Array, "*batch"]
    max_steps: Int32[Array, "*batch"]


@pytree
@dataclass(frozen=True)
class Observation:
    """What the agent is given before it acts."""

    image: UInt8[Array, "*batch 7 7 3"]
    """Egocentric view [column, row, (type, colour, state)]; the agent sits at (3, 6)."""
    direction: Int32[Array, "*batch"]
    mission: Int32[Array, "*batch L"]
    """Token ids, 0 is padding; L is the task language's longest sentence."""
    instruction_id: Int32[Array, "*batch"]


@pytree
@dataclass(frozen=True)
class Timestep:
    """The outcome of a reset or of one action; the observation is the one after it."""

    state: State
    observation: Observation
    reward: Float[Array, "*batch"]
    terminated: Bool[Array, "*batch"]
    truncated: Bool[Array, "*batch"]


@pytree
@dataclass(frozen=True)
class InstructionTable:
    """Every instruction that can occur in one rollout.

    Policies and shapers embed these rows once and look the embedding up per step.
    """

    ids: Int32[Array, " R"]
    tokens: Int32[Array, "R L"]
