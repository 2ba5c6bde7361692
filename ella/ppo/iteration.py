"""One iteration of training: collect, shape, advantage, update, fit."""

from dataclasses import dataclass

import jax
import optax
from jaxtyping import Array, Int32, PRNGKeyArray, PyTree

from ella.measurement import Measurements, count_of, mean_of
from ella.networks.actor_critic import ActorCritic, Memory, RunningStatistics
from ella.ppo.advantage import estimate_rollout
from ella.ppo.loss import cut
from ella.ppo.rollout import Rollout, collect
from ella.ppo.settings import MATMUL_PRECISIONS, PPOConfig
from ella.ppo.update import Learner, explained_variance, make_optimiser, update
from ella.shaping.shaper import AbstractRewardShaper
from ella.world.environment import Environment, VectorState


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    """Everything one seed carries between iterations.

    The iteration counter, and with it the number of frames, is the caller's: it is the same for
    all seeds and must stay unbatched.
    """

    network: ActorCritic
    optimiser: optax.OptState
    statistics: RunningStatistics
    """Running normalisation statistics: not trained on, used when the policy acts alone."""
    vector: VectorState
    memory: Memory
    """The recurrent memory after the last step, not yet cleared where an episode ended."""
    shaper: PyTree
    key: PRNGKeyArray


def init_train_state(
    env: Environment, config: PPOConfig, shaper: AbstractRewardShaper, *, key: PRNGKeyArray
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
    config: PPOConfig,
    shaper: AbstractRewardShaper,
    train_state: TrainState,
    iteration: Int32[Array, ""],
) -> tuple[TrainState, Measurements]:
    """Train one seed on `config.frames_per_iteration` new frames.

    `iteration` counts from 0. To train many seeds, vmap over `train_state` alone; to run several
    iterations in one compiled call, scan.
    """
    with jax.default_matmul_precision(MATMUL_PRECISIONS[config.matmul_precision]):
        key, collect_key, update_key, fit_key = jax.random.split(train_state.key, 4)
        vector, memory, rollout = collect(
            env,
            config,
            train_state.network,
            train_state.vector,
            train_state.memory,
            key=collect_key,
        )
        trajectory = rollout.trajectory
        shaper_state, bonus, shaped = shaper.shape(train_state.shaper, trajectory)
        reward = config.reward_scale * trajectory.reward + bonus
        target = estimate_rollout(config, rollout, reward)
        learner, learned = update(
            config,
            Learner(train_state.network, train_state.optimiser, train_state.statistics),
            trajectory.instructions.tokens,
            cut(rollout, target, config.bptt_length),
            key=update_key,
        )
        shaper_state, fitted = shaper.fit(shaper_state, trajectory, iteration, key=fit_key)
    measurements = {
        **episode_measurements(config, rollout),
        "reward": mean_of(reward),
        "bonus": mean_of(bonus),
        "explained_variance": explained_variance(rollout.value, target.returns),
        **learned,
        **shaped,
        **fitted,
    }
    return (
        TrainState(
            network=learner.network,
            optimiser=learner.optimiser,
            statistics=learner.statistics,
            vector=vector,
            memory=memory,
            shaper=shaper_state,
            key=key,
        ),
        measurements,
    )


def episode_measurements(config: PPOConfig, rollout: Rollout) -> Measurements:
    """Of the episodes that ended in this rollout. Their only reward comes with their last step."""
    trajectory, done = rollout.trajectory, rollout.trajectory.done
    discounted = trajectory.reward * config.discount ** (rollout.episode_length - 1)
    return {
        "success_rate": mean_of(trajectory.success, done),
        "return": mean_of(trajectory.reward, done),
        "discounted_return": mean_of(discounted, done),
        "episode_length": mean_of(rollout.episode_length, done),
        "episodes": count_of(done),
        "levels_reused": count_of(rollout.levels_reused),
    }
