"""A trained policy as the actor of a film."""

from collections.abc import Callable

import equinox as eqx
import jax

from ella.experiment.export import Policy
from ella.networks.actor_critic import Decision, Memory, act
from ella.world.state import Observation, Timestep


def trained_policy(policy: Policy) -> Callable[[Timestep], int]:
    """Greedy actions of one episode; make a new one for every episode, since it remembers."""
    memory = policy.network.initial_memory()
    modulations: jax.Array | None = None

    @eqx.filter_jit
    def decide(observation: Observation, memory: Memory, modulations: jax.Array) -> Decision:
        return act(policy.network, policy.statistics, observation, memory, modulations=modulations)

    def choose(timestep: Timestep) -> int:
        nonlocal memory, modulations
        if modulations is None:
            modulations = policy.network.instruct(timestep.observation.mission[None])[0]
        decision = decide(timestep.observation, memory, modulations)
        memory = decision.memory
        return int(decision.action)

    return choose
