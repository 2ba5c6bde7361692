"""Training that starts from the network of a trained agent instead of a new one."""

from dataclasses import fields, replace

import equinox as eqx
import jax
import numpy as np

from ella.errors import InputError
from ella.networks.actor_critic import ActorCritic
from ella.networks.linear import Linear
from ella.networks.settings import NetworkSettings
from ella.ppo.iteration import TrainState
from ella.training.clause_switch import with_switch
from ella.training.policy import Policy
from ella.training.program import SeedProgram, States
from ella.world.tasks import TaskSpec

MAY_DIFFER = ("clauses", "compute_dtype")
"""Settings of the network in which a run may differ from the agent that it starts from."""


def check_fits(policy: Policy, settings: NetworkSettings) -> None:
    """Refuse an agent whose network is not the one that the settings describe."""
    found = policy.network.config
    for name in (field.name for field in fields(found) if field.name not in MAY_DIFFER):
        ours, theirs = getattr(settings, name), getattr(found, name)
        if ours != theirs:
            raise InputError(
                f"cannot start from that agent, whose network has {name} {theirs} instead of "
                f"{ours}; set --ppo.network.{name.replace('_', '-')} {theirs}"
            )
    if found.clauses > settings.clauses:
        raise InputError(
            "cannot start from that agent, which reads instructions clause by clause; "
            f"set --ppo.network.clauses {found.clauses}"
        )


def started_from(
    program: SeedProgram,
    groups: States,
    policy: Policy,
    task: TaskSpec,
    settings: NetworkSettings,
) -> States:
    """First train states with the agent's network and running statistics in every seed. What the
    agent's network lacks, the switch between two clauses, is learned from its successes where the
    task has instructions of two, and stays new elsewhere; so does the optimiser."""
    lacks_switch = settings.clauses == 2 and policy.network.switch is None
    if lacks_switch and task.form != "single":
        policy = with_switch(policy, task) or policy
    return tuple(_with_agent(program, group, policy) for group in groups)


def _with_agent(program: SeedProgram, states: TrainState, policy: Policy) -> TrainState:
    fresh = states.network
    like = fresh if policy.network.switch is not None else _with_switch(fresh, None)
    targets, structure = jax.tree.flatten((like, states.statistics))
    arrays = jax.tree.leaves((policy.network, policy.statistics))
    repeated = [
        np.broadcast_to(np.asarray(array, target.dtype), target.shape)
        for array, target in zip(arrays, targets, strict=True)
    ]
    ((network, statistics),) = program.place((jax.tree.unflatten(structure, repeated),))
    if policy.network.switch is None:
        network = _with_switch(network, fresh.switch)
    return replace(states, network=network, statistics=statistics)


def _with_switch(network: ActorCritic, switch: Linear | None) -> ActorCritic:
    return eqx.tree_at(
        lambda one: one.switch, network, switch, is_leaf=lambda leaf: leaf is network.switch
    )
