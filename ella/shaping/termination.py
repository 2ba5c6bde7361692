"""Which low-level instructions have been carried out, judged from one observation."""

from abc import abstractmethod
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PyTree, UInt8

from ella.networks.termination import TerminationTable
from ella.trajectory import image_of
from ella.world.encoding import DOOR, OPEN, VIEW_SIZE, colour_of, kind_of
from ella.world.grammar import Clause
from ella.world.language import Language
from ella.world.state import GOTO, OPEN_DOOR, PICK_UP

AGENT_CELL = (VIEW_SIZE // 2, VIEW_SIZE - 1)
"""Where the view shows what the agent carries."""
FRONT_CELL = (VIEW_SIZE // 2, VIEW_SIZE - 2)


class AbstractTermination(eqx.Module):
    """Judges all low-level instructions at once."""

    @abstractmethod
    def __call__(self, observation: PyTree) -> Bool[Array, "N L"]:
        """Which of the L low-level instructions each of N observations shows carried out.

        `observation` is of the structure of `Trajectory.observation`, its arrays [N, ...].
        """


class VisibleTermination(AbstractTermination):
    """The truth as far as one view tells it: no learning, no data.

    'go to X' holds when X is in the cell ahead, 'pick up X' when X is in hand, 'open X' when
    the cell ahead is that door, open.
    """

    clauses: tuple[Clause, ...] = eqx.field(static=True)

    def __call__(self, observation: PyTree) -> Bool[Array, "N L"]:
        image = image_of(observation)
        targets = np.array([clause.phrases[0].object_class for clause in self.clauses], np.uint8)
        kinds = np.array([clause.kind for clause in self.clauses])
        types, colours = kind_of(targets), colour_of(targets)
        ahead, in_hand = image[..., *FRONT_CELL, :], image[..., *AGENT_CELL, :]

        def shows(cell: UInt8[Array, "N 3"]) -> Bool[Array, "N L"]:
            return (cell[..., 0, None] == types) & (cell[..., 1, None] == colours)

        is_open = (ahead[..., 0] == DOOR) & (ahead[..., 2] == OPEN)
        return jnp.where(
            kinds == PICK_UP,
            shows(in_hand),
            shows(ahead) & ((kinds == GOTO) | ((kinds == OPEN_DOOR) & is_open[..., None])),
        )


def visible_termination(language: Language) -> VisibleTermination:
    """The visible truth for every instruction of a low-level language."""
    return VisibleTermination(language.clauses)


class LearnedTermination(AbstractTermination):
    """The trained classifier's judgement."""

    table: TerminationTable

    def __call__(self, observation: PyTree) -> Bool[Array, "N L"]:
        return self.table(image_of(observation))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class JudgedObservation:
    """What a judge outside the compiled program found in an observation."""

    completed: Bool[Array, "*batch L"]
    """Which low-level instructions it shows carried out."""


class JudgedTermination(AbstractTermination):
    """The judgement that `JudgedObservation` holds."""

    def __call__(self, observation: JudgedObservation) -> Bool[Array, "N L"]:
        return observation.completed
