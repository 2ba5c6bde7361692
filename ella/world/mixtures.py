"""Mixtures: levels of several tasks for one agent.

A mixture has one language, the union of its parts' (`LanguageUnion`), and grids as large as the
largest part's: smaller ones are padded with walls, which is what an agent sees outside a grid
anyway. A level's part is identified by its instruction id.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32, PRNGKeyArray, UInt8

from ella.errors import InputError
from ella.world import levels
from ella.world.encoding import WALL_CELL
from ella.world.language import LanguageUnion
from ella.world.state import State
from ella.world.tasks import TaskSpec


@dataclass(frozen=True)
class Mixture:
    """Several tasks of which one, the target, is what the agent is evaluated on."""

    parts: tuple[TaskSpec, ...]
    """The target first."""
    weights: tuple[float, ...]
    """Of the parts, relative to one another: how often their levels are drawn at the start."""

    def __post_init__(self) -> None:
        names = [part.name for part in self.parts]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InputError(f"task '{twice}' is in the mixture twice; name every task once")
        for name, weight in zip(names, self.weights, strict=True):
            if not 0 < weight < math.inf:
                raise InputError(f"the weight of task '{name}' must be > 0, got {weight:g}")

    @property
    def target(self) -> TaskSpec:
        return self.parts[0]

    @property
    def name(self) -> str:
        """The target's."""
        return self.target.name

    def find(self, name: str) -> TaskSpec:
        """As the target's."""
        return self.target.find(name)

    @property
    def width(self) -> int:
        return max(part.width for part in self.parts)

    @property
    def height(self) -> int:
        return max(part.height for part in self.parts)

    @property
    def quick_episode(self) -> float:
        """The least of the parts'."""
        return min(part.quick_episode for part in self.parts)

    @cached_property
    def language(self) -> LanguageUnion:
        return LanguageUnion(tuple(part.language for part in self.parts))

    @cached_property
    def horizons(self) -> tuple[int, ...]:
        """Every horizon an episode of any part can have, ascending."""
        return tuple(sorted({horizon for part in self.parts for horizon in part.horizons}))

    @property
    def shares(self) -> Float[Array, " parts"]:
        """The weights, their sum being 1."""
        weights = jnp.asarray(self.weights, jnp.float32)
        return weights / weights.sum()


Task: TypeAlias = TaskSpec | Mixture
"""What an agent can be trained on."""


def with_also(target: TaskSpec, also: Sequence[str]) -> Task:
    """The target mixed with others, each given as TASK or TASK:WEIGHT; the target's weight is 1."""
    if not also:
        return target
    named = [word.partition(":") for word in also]
    parts = tuple(target.find(name) for name, _, _ in named)
    weights = tuple(_weight(weight, word) for (_, _, weight), word in zip(named, also, strict=True))
    return Mixture((target, *parts), (1.0, *weights))


def _weight(text: str, word: str) -> float:
    try:
        return float(text) if text else 1.0
    except ValueError:
        raise InputError(f"'{word}': the weight '{text}' is not a number; write TASK:2") from None


def attempts(
    mixture: Mixture, weights: Float[Array, " parts"], key: PRNGKeyArray, n: int
) -> tuple[State, Bool[Array, " m"]]:
    """m = n / 2 levels, and which of them are to be used; all parts make n attempts each.

    Every level's part is drawn by the weights first, and then takes the next accepted attempt of
    that part. So shares follow the weights although parts accept different shares of their
    attempts, as long as every part accepts half.
    """
    count = n // 2
    part_key, *level_keys = jax.random.split(key, 1 + len(mixture.parts))
    drawn = jax.random.categorical(part_key, jnp.log(weights), shape=(count,))
    found: State | None = None
    usable = jnp.zeros(count, bool)
    for index, (part, level_key) in enumerate(zip(mixture.parts, level_keys, strict=True)):
        made, accepted = jax.vmap(partial(levels.attempt, part))(jax.random.split(level_key, n))
        is_part = drawn == index
        chosen, has_level = _in_turn(_as_in_mixture(mixture, index, made), accepted, is_part)
        usable |= is_part & has_level
        found = chosen if found is None else jax.tree.map(partial(_where, is_part), chosen, found)
    assert found is not None
    return found, usable


def _in_turn(
    made: State, accepted: Bool[Array, " n"], wanted: Bool[Array, " m"]
) -> tuple[State, Bool[Array, " m"]]:
    """For the i-th place that is wanted the i-th accepted level, and whether there is one."""
    in_order = jnp.argsort(~accepted, stable=True)
    rank = jnp.cumsum(wanted, dtype=jnp.int32) - 1
    place = in_order[jnp.clip(rank, 0, accepted.size - 1)]
    return jax.tree.map(lambda leaf: leaf[place], made), rank < accepted.sum(dtype=jnp.int32)


def _where(flags: Bool[Array, " m"], chosen: Array, other: Array) -> Array:
    return jnp.where(flags.reshape((-1,) + (1,) * (chosen.ndim - 1)), chosen, other)


def _as_in_mixture(mixture: Mixture, index: int, made: State) -> State:
    """Levels of one part with the mixture's sizes and ids."""
    part = mixture.parts[index]
    beyond = ((0, 0), (0, mixture.width - part.width), (0, mixture.height - part.height))

    def padded(cells: UInt8[Array, "n W H"]) -> UInt8[Array, "n V G"]:
        return jnp.pad(cells, beyond, constant_values=WALL_CELL)

    return replace(
        made,
        cells=padded(made.cells),
        remembered_cells=padded(made.remembered_cells),
        instruction_id=made.instruction_id + mixture.language.offsets[index],
    )


@partial(jax.jit, static_argnames=("mixture", "n"))
def generate(
    mixture: Mixture, key: PRNGKeyArray, n: int, weights: Float[Array, " parts"] | None = None
) -> State:
    """n independent accepted levels [n]; by default with the mixture's own weights."""
    shares = mixture.shares if weights is None else weights
    shapes, _ = jax.eval_shape(lambda: attempts(mixture, shares, key, 2 * n))
    empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    def missing(carry: tuple[State, Int32[Array, ""], Int32[Array, ""]]) -> Bool[Array, ""]:
        return carry[1] < n

    def add_round(
        carry: tuple[State, Int32[Array, ""], Int32[Array, ""]],
    ) -> tuple[State, Int32[Array, ""], Int32[Array, ""]]:
        found, filled, round_ = carry
        made, usable = attempts(mixture, shares, jax.random.fold_in(key, round_), 2 * n)
        total = filled + jnp.cumsum(usable, dtype=jnp.int32)
        slot = jnp.where(usable, total - 1, n)
        found = jax.tree.map(lambda old, new: old.at[slot].set(new, mode="drop"), found, made)
        return found, total[-1], round_ + 1

    return jax.lax.while_loop(missing, add_round, (empty, jnp.int32(0), jnp.int32(0)))[0]


def shapes(mixture: Mixture, n: int) -> State:
    """What `generate` makes, as shapes."""
    of_target = levels.shapes(mixture.target, n)
    return jax.eval_shape(partial(_as_in_mixture, mixture, 0), of_target)
