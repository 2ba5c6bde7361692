"""How far are gradients in bfloat16 from those in float32?

    python benchmarks/gradient_precision.py --out gradient-precision.json

PPO's gradient on half a rollout of unlock-maze, by a trained network (the agent that comes with the
package, which reads one-hot cells, or `--policy`) and by a new one of its kind: its relative error
in bfloat16 against float32, beside the relative difference of the gradient on the other half of the
rollout. What the first adds to the second is what rounding costs.
"""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32

import ella
from ella.durable_files import write_durably
from ella.networks.actor_critic import ActorCritic
from ella.ppo.advantage import estimate_rollout
from ella.ppo.loss import Sequences, ppo_loss, split_into_sequences
from ella.ppo.rollout import collect, start_environments
from ella.ppo.settings import PPOSettings
from ella.training import presets
from ella.world import tasks
from ella.world.environment import make

TASK = "unlock-maze"
ROLLOUTS = 3
"""The last of them is learned from."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environments", type=int, default=256)
    parser.add_argument("--policy", default=f"agent:{TASK}")
    parser.add_argument("--out", type=Path, default=Path("gradient-precision.json"))
    arguments = parser.parse_args()
    trained = ella.load_policy(arguments.policy).network
    found = presets.find("onehot", "ppo").ppo
    config = replace(
        found,
        network=replace(trained.config, compute_dtype="float32"),
        num_envs=arguments.environments,
        minibatch_frames=arguments.environments * found.rollout_length // 2,
    )
    new = ActorCritic(config.network, key=jax.random.key(1))
    networks = {"trained": with_dtype(trained, "float32"), "new": new}
    rows = [{"network": name, **errors(config, network)} for name, network in networks.items()]
    for row in rows:
        print(json.dumps(row))
    result = {
        "command": "python benchmarks/gradient_precision.py " + " ".join(sys.argv[1:]),
        "what": "norms relative to that of the float32 gradient of half a rollout",
        "task": TASK,
        "cells": trained.config.variant,
        "device": jax.devices()[0].device_kind,
        "date": time.strftime("%Y-%m-%d"),
        "rows": rows,
    }
    write_durably(arguments.out, json.dumps(result, indent=1) + "\n")


def errors(config: PPOSettings, network: ActorCritic) -> dict[str, float]:
    """Of one network's gradients."""
    tokens, sequences = jax.jit(lambda network: played(config, network))(network)
    order = np.random.default_rng(0).permutation(sequences.action.shape[1])
    one, other = np.array_split(order, 2)
    exact = gradient(config, network, tokens, sequences.take(jnp.asarray(one)))
    rounded = with_dtype(network, "bfloat16")
    rough = gradient(config, rounded, tokens, sequences.take(jnp.asarray(one)))
    others = gradient(config, network, tokens, sequences.take(jnp.asarray(other)))
    norm = np.linalg.norm(exact)
    return {
        "bfloat16": float(np.linalg.norm(rough - exact) / norm),
        "along_the_gradient": float((rough - exact) @ exact / norm**2),
        "other_half": float(np.linalg.norm(others - exact) / norm),
    }


def played(config: PPOSettings, network: ActorCritic) -> tuple[Int32[Array, "R T"], Sequences]:
    """Tokens of the instructions and the sequences of the last of some rollouts."""
    env = make(tasks.find(TASK))
    vector = start_environments(env, config, key=jax.random.key(2))
    memory = network.initial_memory(config.num_envs)
    for number in range(ROLLOUTS):
        key = jax.random.fold_in(jax.random.key(3), number)
        vector, memory, rollout = collect(env, config, network, vector, memory, key=key)
    target = estimate_rollout(config, rollout, config.reward_scale * rollout.trajectory.reward)
    tokens = rollout.trajectory.instructions.tokens
    return tokens, split_into_sequences(rollout, target, config.bptt_length)


def gradient(
    config: PPOSettings, network: ActorCritic, tokens: Array, sequences: Sequences
) -> np.ndarray:
    """All of it, as one vector."""
    config = replace(config, network=network.config)
    found: Any = jax.jit(
        lambda network: jax.grad(lambda one: ppo_loss(one, config, tokens, sequences)[0])(network)
    )(network)
    return np.concatenate([np.ravel(np.asarray(x, np.float64)) for x in jax.tree.leaves(found)])


def with_dtype(network: ActorCritic, dtype: str) -> ActorCritic:
    """The same parameters, computed with in another dtype."""
    config = replace(network.config, compute_dtype=dtype)
    like = jax.eval_shape(lambda key: ActorCritic(config, key=key), jax.random.key(0))
    return jax.tree.unflatten(jax.tree.structure(like), jax.tree.leaves(network))


if __name__ == "__main__":
    main()
