"""What kinds of missions does an agent solve? Its success by the clauses of the instruction.

    python benchmarks/success_by_mission.py runs/sequence/policies/seed-0.safetensors \\
        --episodes 512 --out by-mission.json

The agent samples its actions, as in training, on levels that training never draws. For sequences,
kinds stand in the order in which they are to be carried out.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

import ella
from ella.durable_files import write_durably
from ella.intervals import wilson
from ella.networks.actor_critic import act
from ella.training.policy import Policy
from ella.training.program import held_out_key
from ella.world.environment import Environment, make
from ella.world.grammar import CLAUSE_KINDS
from ella.world.state import AFTER, State

NAMES = {number: name for name, number in CLAUSE_KINDS.items()}


def main() -> None:
    arguments = _arguments()
    policy = ella.load_policy(arguments.policy)
    env = make(policy.spec)
    levels_key, key = keys_of(arguments.seed)
    levels = jax.jit(lambda key: env.generate(key, arguments.episodes))(levels_key)
    final, success = jax.tree.map(np.asarray, _play(env, policy, levels, key))
    found = _by_mission(final, success)
    result = {
        "what": "success by the kinds of a mission's clauses, in the order they are carried out; "
        "'first' is how often the first of two is carried out",
        "task": policy.spec.name,
        "frames": policy.frames,
        "episodes": arguments.episodes,
        "seed": arguments.seed,
        "missions": found,
    }
    write_durably(arguments.out, json.dumps(result, indent=1) + "\n")
    for row in found:
        print(f"{' '.join(row['kinds']):20} {row['episodes']:5} {row['success']['value']:7.1%}")


def keys_of(seed: int) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """(key of the levels, key of the actions)."""
    levels_key, action_key = jax.random.split(held_out_key(seed))
    return levels_key, action_key


def _play(
    env: Environment, policy: Policy, levels: State, key: PRNGKeyArray
) -> tuple[State, Array]:
    """The last state of an episode on every level, and whether it succeeded.

    `ella.training.evaluation` plays the same way but keeps no last state, which alone shows what a
    failure carried out.
    """
    network, statistics, count = policy.network, policy.statistics, len(levels.step_count)

    @eqx.filter_jit
    def play() -> tuple[State, Array]:
        modulations = network.instruct(env.language.tokens(levels.instruction_id))

        def step(carry: Any) -> Any:
            states, memory, done, success, time = carry
            keys = jax.random.split(jax.random.fold_in(key, time), count)
            decision = jax.vmap(
                lambda seen, memory, modulation, key: act(
                    network, statistics, seen, memory, "sampled", modulations=modulation, key=key
                )
            )(jax.vmap(env.observe)(states), memory, modulations, keys)
            after = jax.vmap(env.step)(states, decision.action)
            states = jax.tree.map(
                lambda old, new: jnp.where(done.reshape(-1, *(1,) * (new.ndim - 1)), old, new),
                states,
                after.state,
            )
            success |= ~done & after.terminated
            done |= after.terminated | after.truncated
            return states, decision.memory, done, success, time + 1

        nothing = jnp.zeros(count, bool)
        start = (levels, network.initial_memory(count), nothing, nothing, 0)
        states, _, _, success, _ = jax.lax.while_loop(lambda c: ~c[2].all(), step, start)
        return states, success

    return play()


def _by_mission(final: State, success: np.ndarray) -> list[dict[str, Any]]:
    rows: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for index in range(len(success)):
        order = (1, 0) if final.instruction.form[index] == AFTER else (0, 1)
        kinds = [int(final.instruction.kinds[index, place]) for place in order]
        rows[tuple(NAMES[kind] for kind in kinds if kind in NAMES)].append(index)
    found = []
    for kinds, indices in sorted(rows.items()):
        row = {
            "kinds": kinds,
            "episodes": len(indices),
            "success": vars(wilson(int(success[indices].sum()), len(indices))),
        }
        if len(kinds) == 2:
            earlier = (final.instruction.form[indices] == AFTER).astype(int)
            row["first"] = float(final.clause_done[indices, earlier].mean())
        found.append(row)
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policy", help="a policy file, or agent:NAME")
    parser.add_argument("--episodes", type=int, default=512)
    parser.add_argument("--seed", type=int, default=77)
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
