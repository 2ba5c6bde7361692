"""The interface of every reward shaper, and the two that need no learning."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32, PRNGKeyArray, PyTree

from ella.measurement import Measurements
from ella.trajectory import Trajectory

Number = int | float | Float[Array, ""]
"""A setting: a plain number is compiled in, an array is swept over by `vmap`."""


class AbstractRewardShaper(eqx.Module):
    """Turns a rollout into a bonus that is added to the scaled reward.

    A shaper is a value shared by all seeds (settings and frozen networks); what changes while
    training is its state, one per seed. `shape` over T steps equals T calls over one step, so the
    same code serves a trainer that steps on the host.

    A shaper may read any observation, a PyTree of arrays [T, B, ...]. This one pays for distance
    covered where observations are dictionaries that hold a position::

        class DistanceShaper(AbstractRewardShaper):
            coefficient: float

            def init(self, num_envs, *, key):
                return ()

            def shape(self, state, trajectory):
                before = trajectory.observation["position"]  # [T, B, 2]
                after = trajectory.next_observation["position"]
                moved = jnp.abs(after - before).sum(-1).astype(jnp.float32)
                bonus = self.coefficient * moved
                return state, bonus, {"distance_bonus": mean_of(bonus)}

            def fit(self, state, trajectory, iteration, *, key):
                return state, {}
    """

    @abstractmethod
    def init(self, num_envs: int, *, key: PRNGKeyArray) -> PyTree:
        """The state before the first step."""

    def state_shapes(self, num_envs: int) -> PyTree:
        """The state as shapes, to put arrays into."""
        return jax.eval_shape(lambda: self.init(num_envs, key=jax.random.key(0)))

    def start_problems(self, state: PyTree) -> dict[str, Bool[Array, ""]]:
        """What must keep a run from starting with a state from `init`: lines for people, and
        whether each applies. Traced, for one seed."""
        return {}

    @abstractmethod
    def shape(
        self, state: PyTree, trajectory: Trajectory
    ) -> tuple[PyTree, Float[Array, "T B"], Measurements]:
        """The bonus of every step, in units of the scaled reward."""

    @abstractmethod
    def fit(
        self,
        state: PyTree,
        trajectory: Trajectory,
        iteration: Int32[Array, ""],
        *,
        key: PRNGKeyArray,
    ) -> tuple[PyTree, Measurements]:
        """Learn from the rollout, after the policy did. `iteration` counts from 0 and is the same
        for all seeds, so a `lax.cond` on it stays a branch under `vmap`."""


class NoShaping(AbstractRewardShaper):
    """Plain reinforcement learning: no bonus."""

    def init(self, num_envs: int, *, key: PRNGKeyArray) -> PyTree:
        return ()

    def shape(
        self, state: PyTree, trajectory: Trajectory
    ) -> tuple[PyTree, Float[Array, "T B"], Measurements]:
        return state, jnp.zeros_like(trajectory.reward), {}

    def fit(
        self,
        state: PyTree,
        trajectory: Trajectory,
        iteration: Int32[Array, ""],
        *,
        key: PRNGKeyArray,
    ) -> tuple[PyTree, Measurements]:
        return state, {}


class Sum(AbstractRewardShaper):
    """Several shapers at once: their bonuses are added."""

    parts: dict[str, AbstractRewardShaper]
    """By method name; measurements of a part are prefixed with it when names clash."""

    def init(self, num_envs: int, *, key: PRNGKeyArray) -> PyTree:
        keys = jax.random.split(key, len(self.parts))
        return {
            name: part.init(num_envs, key=part_key)
            for (name, part), part_key in zip(self.parts.items(), keys, strict=True)
        }

    def state_shapes(self, num_envs: int) -> PyTree:
        return {name: part.state_shapes(num_envs) for name, part in self.parts.items()}

    def start_problems(self, state: PyTree) -> dict[str, Bool[Array, ""]]:
        found: dict[str, Array] = {}
        for name, part in self.parts.items():
            for line, applies in part.start_problems(state[name]).items():
                found[line] = found.get(line, False) | applies
        return found

    def shape(
        self, state: PyTree, trajectory: Trajectory
    ) -> tuple[PyTree, Float[Array, "T B"], Measurements]:
        total = jnp.zeros_like(trajectory.reward)
        new_state: dict[str, Any] = {}
        measurements: Measurements = {}
        for name, part in self.parts.items():
            new_state[name], bonus, found = part.shape(state[name], trajectory)
            total = total + bonus
            _merge(measurements, name, found)
        return new_state, total, measurements

    def fit(
        self,
        state: PyTree,
        trajectory: Trajectory,
        iteration: Int32[Array, ""],
        *,
        key: PRNGKeyArray,
    ) -> tuple[PyTree, Measurements]:
        keys = jax.random.split(key, len(self.parts))
        new_state: dict[str, Any] = {}
        measurements: Measurements = {}
        for (name, part), part_key in zip(self.parts.items(), keys, strict=True):
            new_state[name], found = part.fit(state[name], trajectory, iteration, key=part_key)
            _merge(measurements, name, found)
        return new_state, measurements


def _merge(measurements: Measurements, name: str, found: Measurements) -> None:
    for key, value in found.items():
        measurements[f"{name}_{key}" if key in measurements else key] = value


def with_numbers(
    shaper: AbstractRewardShaper, numbers: Mapping[str, Number]
) -> AbstractRewardShaper:
    """The shaper with some of its numeric fields replaced; a sum's are named `part.field`."""
    for name, value in numbers.items():
        *part, field = name.split(".")

        def leaf(tree: Any, part: list[str] = part, field: str = field) -> Any:
            return getattr(tree.parts[part[0]] if part else tree, field)

        shaper = eqx.tree_at(leaf, shaper, value)
    return shaper


def numbers_of(shaper: AbstractRewardShaper) -> dict[str, Number]:
    """The numeric fields of a shaper, which `with_numbers` can replace."""
    if isinstance(shaper, Sum):
        return {
            f"{name}.{field}": value
            for name, part in shaper.parts.items()
            for field, value in numbers_of(part).items()
        }
    named = {one.name: getattr(shaper, one.name) for one in fields(shaper)}
    statics = {one.name for one in fields(shaper) if one.metadata.get("static", False)}
    return {
        name: value
        for name, value in named.items()
        if isinstance(value, float) and name not in statics
    }
