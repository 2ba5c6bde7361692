"""A switch between two clauses for an agent that has learned single ones.

The agent plays missions of one clause, a few steps beyond each success, and a logistic regression
learns from its memory whether the clause is done. No sequence is played: what tells the agent that
it is done with a clause are its own successes.
"""

import logging
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ella.errors import InputError
from ella.networks.actor_critic import ActorCritic, act
from ella.networks.linear import Linear
from ella.training.policy import Policy
from ella.world.environment import make
from ella.world.tasks import TaskSpec, find

logger = logging.getLogger(__name__)

LEVELS, STEPS = 1024, 128
"""Missions played, and steps of each."""
STEPS_AFTER = 4
"""Steps after a success whose memory counts as done."""
FEWEST_SUCCESSES = 64
"""An agent with fewer has not learned single clauses."""
HELD_OUT = 4
"""One of so many levels is held out, to place the threshold."""
EARLY = 0.02
"""Share of missions whose clause may be left before it is done."""
PENALTY, RATE, ROUNDS = 1e-5, 0.05, 1500
"""Of the regression: weight decay, Adam's step size, steps."""


@dataclass(frozen=True)
class Switch:
    """A fitted switch: it moves on where its logit is above 0."""

    layer: Linear
    recall: float
    """Share of held-out memories after a clause was done at which it moves on."""


def with_switch(
    policy: Policy, task: str | TaskSpec, *, levels: int = LEVELS, steps: int = STEPS, seed: int = 0
) -> Policy:
    """A policy of single clauses as one of two, its switch fitted to its own successes on the
    single clauses of a task: save it, and start training from it."""
    logger.info("fitting the switch between clauses to %d missions of one clause", levels)
    keys = jax.random.split(jax.random.key(seed))
    spec = find(task) if isinstance(task, str) else task
    single = replace(spec, form="single", max_steps=None)
    memories, is_done = _play(policy, single, levels, steps, *keys)
    successes = int(is_done.any(axis=0).sum())
    if successes < FEWEST_SUCCESSES:
        raise InputError(
            f"the agent carries out {successes} of {levels} single clauses, too few to learn from "
            "when a clause is done; train it on single clauses first"
        )
    switch = fitted(memories, is_done)
    logger.info("it moves on at %.1f%% of the steps after a clause is done", 100 * switch.recall)
    return replace(policy, network=_with_layer(policy.network, switch.layer))


def _play(
    policy: Policy,
    task: TaskSpec,
    count: int,
    steps: int,
    level_key: PRNGKeyArray,
    key: PRNGKeyArray,
) -> tuple[np.ndarray, np.ndarray]:
    """(memories [T N M], whether the clause was done before them [T N])."""
    network, env = policy.network, make(task)

    @eqx.filter_jit
    def play() -> tuple[Float[Array, "T N M"], Bool[Array, "T N"]]:
        levels = env.generate(level_key, count)
        modulations = network.instruct(env.language.tokens(levels.instruction_id))

        def step(carry: Any, time: Array) -> tuple[Any, tuple[Array, Array]]:
            states, memory, is_done, is_cut_off = carry
            keys = jax.random.split(jax.random.fold_in(key, time), count)
            decision = jax.vmap(
                lambda seen, memory, modulation, key: act(
                    network,
                    policy.statistics,
                    seen,
                    memory,
                    "sampled",
                    modulations=modulation,
                    key=key,
                )
            )(jax.vmap(env.observe)(states), memory, modulations, keys)
            after = jax.vmap(env.step)(states, decision.action)
            now_done = is_done | (after.terminated & ~is_cut_off)
            is_cut_off |= after.truncated & ~now_done
            carry = (after.state, decision.memory, now_done, is_cut_off)
            return carry, (decision.memory.hidden, is_done)

        nothing = jnp.zeros(count, bool)
        start = (levels, network.initial_memory(count), nothing, nothing)
        return jax.lax.scan(step, start, jnp.arange(steps))[1]

    memories, is_done = jax.device_get(play())
    return memories, is_done


def fitted(memories: Float[np.ndarray, "T N M"], is_done: Bool[np.ndarray, "T N"]) -> Switch:
    """Fit the memories of N missions, of which those count that were carried out at last. The
    threshold is one that a share `EARLY` of held-out missions exceeds before its clause is done:
    of missions, not of steps, since an agent may believe for a hundred steps that it is done."""
    is_solved = is_done.any(axis=0)
    memories, is_done = memories[:, is_solved], is_done[:, is_solved]
    is_held_out = np.arange(is_done.shape[1]) % HELD_OUT == 0
    after = is_done & (is_done.cumsum(axis=0) <= STEPS_AFTER)
    undone, done = (memories[which & ~is_held_out] for which in (~is_done, after))
    inputs = jnp.concatenate([undone, done])
    labels = jnp.concatenate([jnp.zeros(len(undone)), jnp.ones(len(done))])
    optimiser = optax.adam(RATE)

    def loss(parameters: tuple[Array, Array]) -> Array:
        weight, bias = parameters
        errors = optax.sigmoid_binary_cross_entropy(inputs @ weight + bias, labels)
        return errors.mean() + PENALTY * jnp.square(weight).sum()

    def step(carry: Any, _: None) -> tuple[Any, None]:
        parameters, state = carry
        changes, state = optimiser.update(jax.grad(loss)(parameters), state)
        return (optax.apply_updates(parameters, changes), state), None

    start = (jnp.zeros(inputs.shape[-1]), jnp.zeros(()))
    run = jax.jit(lambda: jax.lax.scan(step, (start, optimiser.init(start)), length=ROUNDS)[0][0])
    weight = np.asarray(run()[0])
    logits = memories[:, is_held_out] @ weight
    highest_before = np.where(is_done[:, is_held_out], -np.inf, logits).max(axis=0)
    threshold = np.quantile(highest_before, 1 - EARLY)
    new = Linear(len(weight), 1, key=jax.random.key(0))
    layer = eqx.tree_at(
        lambda layer: (layer.weight, layer.bias),
        new,
        (jnp.asarray(weight)[:, None], jnp.full(1, -threshold, jnp.float32)),
    )
    return Switch(layer, float((logits[after[:, is_held_out]] > threshold).mean()))


def _with_layer(network: ActorCritic, layer: Linear) -> ActorCritic:
    """A network of one clause as one of two."""
    settings = replace(network.config, clauses=2)
    shapes = jax.eval_shape(lambda key: ActorCritic(settings, key=key), jax.random.key(0))
    structure = jax.tree.structure(eqx.tree_at(lambda one: one.switch, shapes, None))
    same = jax.tree.unflatten(structure, jax.tree.leaves(network))
    return eqx.tree_at(lambda one: one.switch, same, layer, is_leaf=lambda leaf: leaf is None)
