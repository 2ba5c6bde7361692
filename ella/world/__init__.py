"""The grid world: BabyAI's tasks as pure functions on arrays."""

from ella.world.description import describe, load
from ella.world.environment import Environment, Transition, VectorState, make
from ella.world.state import Instruction, InstructionTable, Observation, State, Timestep
from ella.world.tasks import TaskSpec, register

__all__ = [
    "Environment",
    "Instruction",
    "InstructionTable",
    "Observation",
    "State",
    "TaskSpec",
    "Timestep",
    "Transition",
    "VectorState",
    "describe",
    "load",
    "make",
    "register",
]
