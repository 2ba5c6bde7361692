"""A trained policy that acts in single episodes."""

from functools import partial
from typing import Literal

import jax
from jaxtyping import Array, Float, Int32, PRNGKeyArray

from ella.compilation import jit_for_few_calls
from ella.episodes.episode import Actor
from ella.networks.actor_critic import ActorCritic, Memory, RunningStatistics, act
from ella.training.policy import Policy
from ella.world.state import Observation, Timestep


def trained_actor(policy: Policy, key: PRNGKeyArray | None = None) -> Actor:
    """Actions of one episode; make a new one for every episode, since it remembers.

    Sampled with the `key`, as in training, or greedy without one.
    """
    mode: Literal["greedy", "sampled"] = "greedy" if key is None else "sampled"
    begun: tuple[ActorCritic, Array, Memory] | None = None

    def choose(timestep: Timestep) -> int:
        nonlocal begun, key
        if begun is None:
            begun = _begin(policy.network, timestep.observation.mission)
        network, modulations, memory = begun
        action, memory, key = _decide(
            mode, network, policy.statistics, timestep.observation, memory, modulations, key
        )
        begun = network, modulations, memory
        return int(action)

    return choose


@jit_for_few_calls
def _begin(
    network: ActorCritic, mission: Int32[Array, " n"]
) -> tuple[ActorCritic, Float[Array, "*K N 2 C"], Memory]:
    """What is the same at all steps of an episode, and the memory before the first."""
    return network.ready_to_act(), network.instruct(mission[None])[0], network.initial_memory()


@partial(jit_for_few_calls, static_argnums=0)
def _decide(
    mode: Literal["greedy", "sampled"],
    network: ActorCritic,
    statistics: RunningStatistics,
    observation: Observation,
    memory: Memory,
    modulations: Float[Array, "*K N 2 C"],
    key: PRNGKeyArray | None,
) -> tuple[Int32[Array, ""], Memory, PRNGKeyArray | None]:
    """(action, memory, key of the next decision); compiled once for all episodes of policies of
    one shape."""
    now = None
    if key is not None:
        key, now = jax.random.split(key)
    decision = act(network, statistics, observation, memory, mode, modulations=modulations, key=now)
    return decision.action, decision.memory, key
