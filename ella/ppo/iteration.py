"""One iteration of training: collect, shape, advantage, update, fit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int32, Key, PRNGKeyArray, PyTree

from ella.measurement import Measurements, count_of, mean_of
from ella.networks.actor_critic import ActorCritic, Memory, RunningStatistics
from ella.ppo import curriculum
from ella.ppo.advantage import estimate_rollout
from ella.ppo.curriculum import CurriculumState
from ella.ppo.loss import split_into_sequences
from ella.ppo.rollout import (
    Rollout,
    collect,
    environment_shapes,
    minibatch_capacity,
    start_environments,
)
from ella.ppo.settings import MATMUL_PRECISIONS, CurriculumSettings, PPOSettings
from ella.ppo.update import (
    PolicyLearner,
    explained_variance,
    is_frozen,
    learning_rate_at,
    make_optimiser,
    update,
)
from ella.shaping.shaper import AbstractRewardShaper, with_numbers
from ella.trajectory import Trajectory
from ella.world.environment import Environment, VectorState
from ella.world.mixtures import Mixture

Tree = TypeVar("Tree")
"""A PyTree whose arrays have the seed axis first."""
Numbers = Mapping[str, Array]
"""Numeric fields of a shaper by name; with the seed axis where seeds differ."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    """Everything one seed carries between iterations.

    The iteration counter, and with it the number of frames, is the caller's: it is the same for
    all seeds.
    """

    network: ActorCritic
    optimiser: optax.OptState
    statistics: RunningStatistics
    """Running normalisation statistics: not trained on, used when the policy acts alone."""
    vector: VectorState
    memory: Memory
    """The recurrent memory after the last step, not yet cleared where an episode ended."""
    shaper: PyTree
    key: Key[Array, "*seeds"]
    curriculum: CurriculumState | None = None
    """How a mixture's levels are drawn; None for a single task."""


def init_train_state(
    env: Environment, config: PPOSettings, shaper: AbstractRewardShaper, *, key: PRNGKeyArray
) -> TrainState:
    """A new seed."""
    keys = jax.random.split(key, 4)
    network = ActorCritic(config.network, key=keys[0])
    vector = start_environments(env, config, key=keys[1])
    state = shaper.init(config.num_envs, key=keys[2])
    return _before_training(env, config, network, vector, state, keys[3])


def train_state_shapes(
    env: Environment, config: PPOSettings, shaper: AbstractRewardShaper
) -> TrainState:
    """What `init_train_state` makes, as shapes, in a tenth of the time that tracing it takes."""

    def start(key: PRNGKeyArray, vector: VectorState, state: PyTree) -> TrainState:
        network = ActorCritic(config.network, key=key)
        return _before_training(env, config, network, vector, state, key)

    key = jax.eval_shape(lambda: jax.random.key(0))
    vector, state = environment_shapes(env, config), shaper.state_shapes(config.num_envs)
    return jax.eval_shape(start, key, vector, state)


def _before_training(
    env: Environment,
    config: PPOSettings,
    network: ActorCritic,
    vector: VectorState,
    shaper: PyTree,
    key: PRNGKeyArray,
) -> TrainState:
    return TrainState(
        network=network,
        optimiser=make_optimiser(config).init(network),
        statistics=network.initial_statistics(),
        vector=vector,
        memory=network.initial_memory(config.num_envs),
        shaper=shaper,
        key=key,
        curriculum=curriculum.start(env.spec) if isinstance(env.spec, Mixture) else None,
    )


def run_iteration(
    env: Environment,
    config: PPOSettings,
    shapers: Sequence[AbstractRewardShaper],
    groups: Sequence[TrainState],
    iteration: Int32[Array, ""],
    numbers: Sequence[Numbers] | None = None,
    mixing: CurriculumSettings | None = None,
) -> tuple[tuple[TrainState, ...], tuple[Measurements, ...]]:
    """Train every seed on `config.frames_per_iteration` new frames.

    Seeds come in groups, one group per shaper; every array of a group has the seed axis first.
    Policies of all groups act and learn as one batch, only shaping is done group by group, so
    that methods that are compared share one program. `iteration` counts from 0. `numbers` are, for
    each group, numeric fields of its shaper that differ from seed to seed. `mixing` is for the
    weights of a mixture.
    """
    numbers = numbers or [{} for _ in groups]
    sizes = [len(group.key) for group in groups]
    seeds = _concatenate([replace(group, shaper=None) for group in groups])
    with jax.default_matmul_precision(MATMUL_PRECISIONS[config.matmul_precision]):
        keys = _over_seeds(lambda key: jax.random.split(key, 4))(seeds.key)
        vector, memory, rollout = _over_seeds(partial(collect, env, config))(
            seeds.network,
            seeds.vector,
            seeds.memory,
            weights=None if seeds.curriculum is None else seeds.curriculum.weights,
            key=keys[:, 1],
        )
        trajectories = _split(rollout.trajectory, sizes)
        shaped = [
            _shape(shaper, per_seed, group.shaper, trajectory)
            for shaper, per_seed, group, trajectory in zip(
                shapers, numbers, groups, trajectories, strict=True
            )
        ]
        bonus = _concatenate([bonus for _, bonus, _ in shaped])
        reward = config.reward_scale * rollout.trajectory.reward + bonus
        target = _over_seeds(partial(estimate_rollout, config))(rollout, reward)
        sequences = _over_seeds(partial(split_into_sequences, length=config.bptt_length))(
            rollout, target
        )
        learn = partial(
            update,
            config,
            learning_rate=learning_rate_at(config, iteration),
            frozen=is_frozen(config, iteration),
            capacity=minibatch_capacity(env, config),
        )
        learner, learned = _over_seeds(learn)(
            PolicyLearner(seeds.network, seeds.optimiser, seeds.statistics),
            rollout.trajectory.instructions.tokens,
            sequences,
            key=keys[:, 2],
        )
        fitted = [
            _fit(shaper, per_seed, state, trajectory, iteration, fit_keys)
            for shaper, per_seed, (state, _, _), trajectory, fit_keys in zip(
                shapers, numbers, shaped, trajectories, _split(keys[:, 3], sizes), strict=True
            )
        ]
        common = {
            **_over_seeds(partial(episode_measurements, env, config))(rollout),
            "reward": _over_seeds(mean_of)(reward),
            "bonus": _over_seeds(mean_of)(bonus),
            "explained_variance": _over_seeds(explained_variance)(rollout.value, target.returns),
            **learned,
        }
        mixed, of_parts = _updated_curriculum(env, mixing, seeds.curriculum, rollout.trajectory)
        common |= of_parts
    trained = TrainState(
        network=learner.network,
        optimiser=learner.optimiser,
        statistics=learner.statistics,
        vector=vector,
        memory=memory,
        shaper=None,
        key=keys[:, 0],
        curriculum=mixed,
    )
    states = tuple(
        replace(group, shaper=state)
        for group, (state, _) in zip(_split(trained, sizes), fitted, strict=True)
    )
    measurements = tuple(
        {**shared, **from_shaping, **from_fitting}
        for shared, (_, _, from_shaping), (_, from_fitting) in zip(
            _split(common, sizes), shaped, fitted, strict=True
        )
    )
    return states, measurements


def _over_seeds(function: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.vmap` over the seed axis; but a single seed is computed without that axis, so that its
    program is traced in two thirds of the time, and compiled in nine tenths."""

    def call(*args: Any, **named: Any) -> Any:
        leaves = jax.tree.leaves((args, named))
        if len(leaves[0]) > 1:
            return jax.vmap(function)(*args, **named)
        args, named = jax.tree.map(lambda leaf: jax.lax.squeeze(leaf, (0,)), (args, named))
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], function(*args, **named))

    return call


def _shape(
    shaper: AbstractRewardShaper, numbers: Numbers, states: PyTree, trajectories: Trajectory
) -> tuple[PyTree, Float[Array, "S T B"], Measurements]:
    """Every seed of a group."""

    def shape(
        numbers: Numbers, state: PyTree, trajectory: Trajectory
    ) -> tuple[PyTree, Float[Array, "T B"], Measurements]:
        return with_numbers(shaper, numbers).shape(state, trajectory)

    return _over_seeds(shape)(numbers, states, trajectories)


def _fit(
    shaper: AbstractRewardShaper,
    numbers: Numbers,
    states: PyTree,
    trajectories: Trajectory,
    iteration: Int32[Array, ""],
    keys: Key[Array, " seeds"],
) -> tuple[PyTree, Measurements]:
    """Every seed of a group; the iteration stays unbatched, so that branches on it do too."""

    def fit(
        numbers: Numbers, state: PyTree, trajectory: Trajectory, key: PRNGKeyArray
    ) -> tuple[PyTree, Measurements]:
        return with_numbers(shaper, numbers).fit(state, trajectory, iteration, key=key)

    return _over_seeds(fit)(numbers, states, trajectories, keys)


def _updated_curriculum(
    env: Environment,
    settings: CurriculumSettings | None,
    states: CurriculumState | None,
    trajectories: Trajectory,
) -> tuple[CurriculumState | None, Measurements]:
    """Every seed's weights after a rollout; nothing for a single task."""
    if states is None or not isinstance(env.spec, Mixture):
        return None, {}
    settings = settings or CurriculumSettings()
    return _over_seeds(partial(curriculum.update, env.spec, settings))(states, trajectories)


def _concatenate(groups: Sequence[Tree]) -> Tree:
    """Groups of seeds as one batch of seeds."""
    if len(groups) == 1:
        return groups[0]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *groups)


def _split(seeds: Tree, sizes: Sequence[int]) -> list[Tree]:
    """The inverse of `_concatenate`."""
    ends = list(accumulate(sizes))
    return [
        jax.tree.map(lambda leaf, span=slice(end - size, end): leaf[span], seeds)
        for size, end in zip(sizes, ends, strict=True)
    ]


def episode_measurements(env: Environment, config: PPOSettings, rollout: Rollout) -> Measurements:
    """Of the episodes that ended in this rollout. Their only reward comes with their last step.

    In a mixture, all but the counts are of the target's episodes, so that learning curves compare
    with those of the target alone.
    """
    trajectory, ended = rollout.trajectory, rollout.trajectory.done
    done = ended
    if isinstance(env.spec, Mixture):
        done = ended & (curriculum.parts_of(env.spec, trajectory) == 0)
    steps_before = (rollout.episode_length - 1).astype(jnp.float32)
    discounted = trajectory.reward * config.discount**steps_before
    return {
        "success_rate": mean_of(trajectory.success, done),
        "return": mean_of(trajectory.reward, done),
        "discounted_return": mean_of(discounted, done),
        "episode_length": mean_of(rollout.episode_length, done),
        "episodes": count_of(ended),
        "levels_reused": count_of(rollout.levels_reused),
    }
