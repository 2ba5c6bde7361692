"""Which low-level instructions have been carried out, judged from one observation."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, PyTree, UInt8

from ella.networks.termination import TerminationTable
from ella.trajectory import image_of
from ella.world.encoding import DOOR, OPEN, VIEW_SIZE, colour_of, kind_of
from ella.world.grammar import Clause
from ella.world.language import Language
from ella.world.state import GOTO, OPEN_DOOR, PICK_UP

AGENT_CELL = (VIEW_SIZE // 2, VIEW_SIZE - 1)
"""Where the view shows what the agent carries."""
FRONT_CELL = (VIEW_SIZE // 2, VIEW_SIZE - 2)
FEWEST_AT_ONCE = 256
"""Observations judged in a turn; more where a rollout would take more than `MOST_TURNS`."""
MOST_TURNS = 40


class AbstractTermination(eqx.Module):
    """Judges all low-level instructions at once."""

    @abstractmethod
    def __call__(self, observation: PyTree) -> Bool[Array, "N L"]:
        """Which of the L low-level instructions each of N observations shows carried out.

        `observation` is of the structure of `Trajectory.observation`, its arrays [N, ...].
        """

    def of_rollout(self, observation: PyTree) -> Bool[Array, "T B L"]:
        """The same for the observations [T, B, ...] of a rollout."""
        T, B = jax.tree.leaves(observation)[0].shape[:2]
        return self(_flat(observation)).reshape(T, B, -1)

    def of_few(self, observation: PyTree, chosen: Bool[Array, "T B"]) -> Bool[Array, "T B L"]:
        """The same for the chosen observations of a rollout, nothing elsewhere. They should be
        few: no others are judged."""
        rows, places = judged_in_turns(self, _flat(observation), chosen.reshape(-1), FEWEST_AT_ONCE)
        return rows[places].reshape(*chosen.shape, -1) & chosen[..., None]


def _flat(observation: PyTree) -> PyTree:
    """Observations [T, B, ...] as [T * B, ...]."""
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), observation)


def judged_in_turns(
    judge: Callable[[PyTree], Bool[Array, "n L"]],
    observation: PyTree,
    chosen: Bool[Array, " N"],
    at_once: int,
) -> tuple[Bool[Array, "M L"], Int32[Array, " N"]]:
    """Judgements of the chosen observations, gathered in order, and each observation's row in them.

    They are judged in batches of `at_once`, as many batches as are needed. An observation that is
    not chosen has the row of the last chosen one before it.
    """
    num = chosen.shape[0]
    padded = -(-num // at_once) * at_once
    places = jnp.cumsum(chosen, dtype=jnp.int32)
    count = places[-1]
    order = jnp.nonzero(chosen, size=padded, fill_value=0)[0]

    def judged(begin: Int32[Array, ""]) -> Bool[Array, "n L"]:
        now = jax.lax.dynamic_slice_in_dim(order, begin, at_once)
        return judge(jax.tree.map(lambda leaf: leaf[now], observation))

    def judge_some(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        begin, rows = carry
        rows = jax.lax.dynamic_update_slice_in_dim(rows, judged(begin), begin, axis=0)
        return begin + at_once, rows

    num_low_level = jax.eval_shape(judged, count).shape[-1]
    nothing = jnp.zeros((padded, num_low_level), bool)
    _, rows = jax.lax.while_loop(
        lambda carry: carry[0] < count, judge_some, (jnp.zeros((), jnp.int32), nothing)
    )
    return rows, jnp.maximum(places - 1, 0)


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

    def of_rollout(self, observation: PyTree) -> Bool[Array, "T B L"]:
        """Only views that differ from the environment's previous view are judged: 60 % of a random
        policy's do not (results/speed/changed-views.json)."""
        image = image_of(observation)
        T, B = image.shape[:2]
        if T * B <= FEWEST_AT_ONCE:
            return super().of_rollout(observation)
        changed = jnp.any(image[1:] != image[:-1], axis=(-3, -2, -1))
        changed = jnp.concatenate([jnp.ones((1, B), bool), changed])
        at_once = max(FEWEST_AT_ONCE, -(-T * B // MOST_TURNS))
        rows, places = judged_in_turns(
            self.table.at_once, _flat(image), changed.reshape(-1), at_once
        )
        step = jnp.arange(T, dtype=jnp.int32)[:, None]
        seen = jax.lax.cummax(jnp.where(changed, step, 0), axis=0)
        return rows[jnp.take_along_axis(places.reshape(T, B), seen, axis=0)]


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
