"""A trained policy that acts in single episodes."""

from typing import Literal

import equinox as eqx
import jax
from jaxtyping import PRNGKeyArray

from ella.episodes.episode import Actor
from ella.networks.actor_critic import ActorCritic, Decision, Memory, RunningStatistics, act
from ella.training.policy import Policy
from ella.world.state import Observation, Timestep


def trained_actor(policy: Policy, key: PRNGKeyArray | None = None) -> Actor:
    """Actions of one episode; make a new one for every episode, since it remembers.

    Sampled with the `key`, as in training, or greedy without one.
    """
    mode: Literal["greedy", "sampled"] = "greedy" if key is None else "sampled"
    memory = policy.network.initial_memory()
    modulations: jax.Array | None = None

    def choose(timestep: Timestep) -> int:
        nonlocal memory, modulations, key
        if modulations is None:
            modulations = policy.network.instruct(timestep.observation.mission[None])[0]
        now = None
        if key is not None:
            key, now = jax.random.split(key)
        decision = _decide(
            policy.network, policy.statistics, timestep.observation, memory, mode, modulations, now
        )
        memory = decision.memory
        return int(decision.action)

    return choose


@eqx.filter_jit
def _decide(
    network: ActorCritic,
    statistics: RunningStatistics,
    observation: Observation,
    memory: Memory,
    mode: Literal["greedy", "sampled"],
    modulations: jax.Array,
    key: PRNGKeyArray | None,
) -> Decision:
    """Compiled once for all episodes of policies of one shape."""
    return act(network, statistics, observation, memory, mode, modulations=modulations, key=key)
