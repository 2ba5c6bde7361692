"""One iteration of training: collect, shape, advantage, update, fit."""

from dataclasses import dataclass

import jax
import optax
from jaxtyping import Array, Int32, PRNGKeyArray, PyTree

from ella.measurement import Measurements
from ella.networks.actor_critic import ActorCritic, Memory, RunningStatistics
from ella.ppo.settings import PPOConfig
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
    raise NotImplementedError


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
    raise NotImplementedError
