"""One iteration of training: collect, shape, advantage, update, fit."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int32, Key, PRNGKeyArray, PyTree

from ella.measurement import Measurements, count_of, mean_of
from ella.networks.actor_critic import ActorCritic, Memory, RunningStatistics
from ella.ppo.advantage import estimate_rollout
from ella.ppo.loss import cut
from ella.ppo.rollout import Rollout, collect
from ella.ppo.settings import MATMUL_PRECISIONS, PPOSettings
from ella.ppo.update import Learner, explained_variance, make_optimiser, update
from ella.shaping.shaper import AbstractRewardShaper
from ella.trajectory import Trajectory
from ella.world.environment import Environment, VectorState

Tree = TypeVar("Tree")
"""A PyTree whose arrays have the seed axis first."""


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


def init_train_state(
    env: Environment, config: PPOSettings, shaper: AbstractRewardShaper, *, key: PRNGKeyArray
) -> TrainState:
    """A new seed."""
    keys = jax.random.split(key, 4)
    network = ActorCritic(config.network, key=keys[0])
    return TrainState(
        network=network,
        optimiser=make_optimiser(config).init(network),
        statistics=network.initial_statistics(),
        vector=env.start(keys[1], config.num_envs, config.pool_size),
        memory=network.initial_memory(config.num_envs),
        shaper=shaper.init(config.num_envs, key=keys[2]),
        key=keys[3],
    )


def run_iteration(
    env: Environment,
    config: PPOSettings,
    shapers: Sequence[AbstractRewardShaper],
    groups: Sequence[TrainState],
    iteration: Int32[Array, ""],
) -> tuple[tuple[TrainState, ...], tuple[Measurements, ...]]:
    """Train every seed on `config.frames_per_iteration` new frames.

    Seeds come in groups, one group per shaper; every array of a group has the seed axis first.
    Policies of all groups act and learn as one batch, only shaping is done group by group, so
    that methods that are compared share one program. `iteration` counts from 0.
    """
    sizes = [len(group.key) for group in groups]
    seeds = _joined([replace(group, shaper=None) for group in groups])
    with jax.default_matmul_precision(MATMUL_PRECISIONS[config.matmul_precision]):
        keys = jax.vmap(lambda key: jax.random.split(key, 4))(seeds.key)
        vector, memory, rollout = jax.vmap(partial(collect, env, config))(
            seeds.network, seeds.vector, seeds.memory, key=keys[:, 1]
        )
        trajectories = _apart(rollout.trajectory, sizes)
        shaped = [
            jax.vmap(shaper.shape)(group.shaper, trajectory)
            for shaper, group, trajectory in zip(shapers, groups, trajectories, strict=True)
        ]
        bonus = _joined([bonus for _, bonus, _ in shaped])
        reward = config.reward_scale * rollout.trajectory.reward + bonus
        target = jax.vmap(partial(estimate_rollout, config))(rollout, reward)
        sequences = jax.vmap(partial(cut, length=config.bptt_length))(rollout, target)
        learner, learned = jax.vmap(partial(update, config))(
            Learner(seeds.network, seeds.optimiser, seeds.statistics),
            rollout.trajectory.instructions.tokens,
            sequences,
            key=keys[:, 2],
        )
        fitted = [
            _fit(shaper, state, trajectory, iteration, fit_keys)
            for shaper, (state, _, _), trajectory, fit_keys in zip(
                shapers, shaped, trajectories, _apart(keys[:, 3], sizes), strict=True
            )
        ]
        common = {
            **jax.vmap(partial(episode_measurements, config))(rollout),
            "reward": jax.vmap(mean_of)(reward),
            "bonus": jax.vmap(mean_of)(bonus),
            "explained_variance": jax.vmap(explained_variance)(rollout.value, target.returns),
            **learned,
        }
    trained = TrainState(
        network=learner.network,
        optimiser=learner.optimiser,
        statistics=learner.statistics,
        vector=vector,
        memory=memory,
        shaper=None,
        key=keys[:, 0],
    )
    states = tuple(
        replace(group, shaper=state)
        for group, (state, _) in zip(_apart(trained, sizes), fitted, strict=True)
    )
    measurements = tuple(
        {**shared, **from_shaping, **from_fitting}
        for shared, (_, _, from_shaping), (_, from_fitting) in zip(
            _apart(common, sizes), shaped, fitted, strict=True
        )
    )
    return states, measurements


def _fit(
    shaper: AbstractRewardShaper,
    states: PyTree,
    trajectories: Trajectory,
    iteration: Int32[Array, ""],
    keys: Key[Array, " seeds"],
) -> tuple[PyTree, Measurements]:
    """Every seed of a group; the iteration stays unbatched, so that branches on it do too."""

    def fit(
        state: PyTree, trajectory: Trajectory, key: PRNGKeyArray
    ) -> tuple[PyTree, Measurements]:
        return shaper.fit(state, trajectory, iteration, key=key)

    return jax.vmap(fit)(states, trajectories, keys)


def _joined(groups: Sequence[Tree]) -> Tree:
    """Groups of seeds as one."""
    if len(groups) == 1:
        return groups[0]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *groups)


def _apart(seeds: Tree, sizes: Sequence[int]) -> list[Tree]:
    """The inverse of `_joined`."""
    ends = list(accumulate(sizes))
    return [
        jax.tree.map(lambda leaf, span=slice(end - size, end): leaf[span], seeds)
        for size, end in zip(sizes, ends, strict=True)
    ]


def episode_measurements(config: PPOSettings, rollout: Rollout) -> Measurements:
    """Of the episodes that ended in this rollout. Their only reward comes with their last step."""
    trajectory, done = rollout.trajectory, rollout.trajectory.done
    steps_before = (rollout.episode_length - 1).astype(jnp.float32)
    discounted = trajectory.reward * config.discount**steps_before
    return {
        "success_rate": mean_of(trajectory.success, done),
        "return": mean_of(trajectory.reward, done),
        "discounted_return": mean_of(discounted, done),
        "episode_length": mean_of(rollout.episode_length, done),
        "episodes": count_of(done),
        "levels_reused": count_of(rollout.levels_reused),
    }
