"""Training that starts from the network of a trained agent instead of a new one."""

from dataclasses import fields, replace

import jax
import numpy as np

from ella.errors import InputError
from ella.networks.settings import NetworkSettings
from ella.ppo.iteration import TrainState
from ella.training.policy import Policy
from ella.training.program import SeedProgram, States

MAY_DIFFER = "compute_dtype"
"""The setting of the network in which a run may differ from the agent that it starts from."""


def check_fits(policy: Policy, settings: NetworkSettings) -> None:
    """Refuse an agent whose network is not the one that the settings describe."""
    found = policy.network.config
    if found.clauses < settings.clauses:
        raise InputError(
            "cannot start from that agent, which reads instructions as one clause; give it a "
            "second with ella.training.clause_switch.with_switch, and start from what you save"
        )
    for name in (field.name for field in fields(found) if field.name != MAY_DIFFER):
        ours, theirs = getattr(settings, name), getattr(found, name)
        if ours != theirs:
            raise InputError(
                f"cannot start from that agent, whose network has {name} {theirs} instead of "
                f"{ours}; set --ppo.network.{name.replace('_', '-')} {theirs}"
            )


def started_from(program: SeedProgram, groups: States, policy: Policy) -> States:
    """First train states with the agent's network and running statistics in every seed."""
    return tuple(_with_agent(program, group, policy) for group in groups)


def _with_agent(program: SeedProgram, states: TrainState, policy: Policy) -> TrainState:
    targets, structure = jax.tree.flatten((states.network, states.statistics))
    arrays = jax.tree.leaves((policy.network, policy.statistics))
    repeated = [
        np.broadcast_to(np.asarray(array, target.dtype), target.shape)
        for array, target in zip(arrays, targets, strict=True)
    ]
    ((network, statistics),) = program.place((jax.tree.unflatten(structure, repeated),))
    return replace(states, network=network, statistics=statistics)
