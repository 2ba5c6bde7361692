"""Environment steps a second of a random policy, resets and level generation included.

    python benchmarks/world_throughput.py --json throughput.json

Runs this world, minigrid (through Gymnasium's vector environments) and EnvPool's C++ BabyAI, one
after the other in one run, on the levels all three have, and prints the ratios. Peers that are
not installed are left out with a line that says so.
"""

import argparse
import contextlib
import json
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np

import ella
from ella.world.encoding import NUM_ACTIONS
from ella.world.environment import Environment, VectorState
from ella.world.observation import view_image
from ella.world.state import State

SHARED_LEVELS = {"goto-room": "BabyAI-GoToLocal-v0", "putnext-room": "BabyAI-PutNextLocal-v0"}
COUNTING_RULE = (
    "one step is one action of one environment, ended episodes reset and new levels generated "
    "within the time measured; of peers, calls that only reset count as steps too"
)
POOL_MARGIN = 1.5
"""Pool slots per level that a rollout is expected to use; covers rejected attempts."""


def random_actions(key: jax.Array, num_envs: int) -> jax.Array:
    return jax.random.randint(key, (num_envs,), 0, NUM_ACTIONS)


@partial(jax.jit, static_argnums=(0, 3), donate_argnums=1)
def full_rollout(
    env: Environment, vector: VectorState, key: jax.Array, length: int
) -> tuple[VectorState, jax.Array, jax.Array]:
    """Refill the pool, then `length` steps; (vector, resets, reused levels)."""
    refill_key, step_key = jax.random.split(key)

    def step(vector: VectorState, key: jax.Array) -> tuple[VectorState, tuple[Any, Any]]:
        vector, transition = env.step_vector(vector, random_actions(key, vector.first.shape[0]))
        return vector, (vector.first.sum(), transition.reused)

    vector = env.refill(vector, refill_key)
    vector, (resets, reused) = jax.lax.scan(step, vector, jax.random.split(step_key, length))
    return vector, resets.sum(), reused.sum()


@partial(jax.jit, static_argnums=(0, 3, 4))
def bare_rollout(
    env: Environment, states: State, key: jax.Array, length: int, observe: bool
) -> tuple[State, jax.Array]:
    """Steps without resets, with or without the view."""

    def step(carry: tuple[State, Any], key: jax.Array) -> tuple[tuple[State, Any], None]:
        states, image = carry
        timestep = jax.vmap(env.step)(states, random_actions(key, states.step_count.shape[0]))
        image = jax.vmap(view_image)(timestep.state) if observe else image
        return (timestep.state, image), None

    image = jax.vmap(view_image)(states)
    (states, image), _ = jax.lax.scan(step, (states, image), jax.random.split(key, length))
    return states, image


def best_rate(run: Callable[[int], Any], steps_per_call: int, seconds: float) -> float:
    """Steps a second over repeated calls, the first (which compiles) not counted."""
    jax.block_until_ready(run(0))
    calls, began = 0, time.perf_counter()
    while calls < 2 or time.perf_counter() - began < seconds:
        calls += 1
        jax.block_until_ready(run(calls))
    return calls * steps_per_call / (time.perf_counter() - began)


def measure_ours(task: str, num_envs: int, seconds: float) -> dict[str, Any]:
    """Rollouts are as long as the horizon: episodes that time out do so at the same time, and each
    rollout then uses about as many levels as the next."""
    env = ella.make(task)
    length = max(env.spec.horizons)
    key = jax.random.key(0)
    start = jax.jit(env.start, static_argnums=(1, 2))
    pilot, resets, _ = full_rollout(env, start(key, num_envs, num_envs), key, length)
    episode_length = num_envs * length / max(int(resets), 1)
    pool_size = max(int(POOL_MARGIN * num_envs * length / episode_length), 16)
    states = pilot.states

    held = {"vector": start(key, num_envs, pool_size), "resets": 0, "reused": 0}

    def run_full(call: int) -> Any:
        vector, resets, reused = full_rollout(
            env, held["vector"], jax.random.fold_in(key, call), length
        )
        held.update(vector=vector, resets=held["resets"] + resets, reused=held["reused"] + reused)
        return resets

    steps = num_envs * length
    rate = best_rate(run_full, steps, seconds)
    split = {
        name: best_rate(
            lambda call, observe=observe: bare_rollout(
                env, states, jax.random.fold_in(key, call), length, observe
            ),
            steps,
            seconds / 4,
        )
        for name, observe in (("step", False), ("step and view", True))
    }
    return {
        "steps_per_second": rate,
        "num_envs": num_envs,
        "rollout_length": length,
        "pool_size": pool_size,
        "mean_episode_length": episode_length,
        "levels_used": int(held["resets"]),
        "levels_used_twice": int(held["reused"]),
        "nanoseconds_per_step": {
            "step only": 1e9 / split["step"],
            "view": 1e9 / split["step and view"] - 1e9 / split["step"],
            "resets and generation": 1e9 / rate - 1e9 / split["step and view"],
        },
    }


@contextlib.contextmanager
def without_output() -> Iterator[None]:
    """Keep what peers and their processes print off the screen."""
    saved, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        with warnings.catch_warnings():
            # The processes forked for minigrid never touch JAX.
            warnings.filterwarnings("ignore", message=r"os\.fork", category=RuntimeWarning)
            yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        os.close(nowhere)


def peer_rate(step: Callable[[np.ndarray], Any], num_envs: int, seconds: float) -> float:
    rng = np.random.default_rng(0)
    actions = rng.integers(0, NUM_ACTIONS, (256, num_envs)).astype(np.int32)
    for call in range(3):
        step(actions[call])
    calls, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        step(actions[calls % 256])
        calls += 1
    return calls * num_envs / (time.perf_counter() - began)


def measure_minigrid(level: str, seconds: float) -> dict[str, Any]:
    """The faster of Gymnasium's two vector environments."""
    import gymnasium
    import minigrid  # noqa: F401

    found = []
    # Minigrid's mission space cannot be put into shared memory.
    for mode, num_envs, options in (
        ("sync", 16, {}),
        ("async", os.cpu_count() or 2, {"shared_memory": False}),
    ):
        with without_output():
            envs = gymnasium.make_vec(
                level, num_envs=num_envs, vectorization_mode=mode, vector_kwargs=options
            )
            envs.reset(seed=0)
            rate = peer_rate(envs.step, num_envs, seconds)
            envs.close()
        found.append({"steps_per_second": rate, "num_envs": num_envs, "vectorization": mode})
    return max(found, key=lambda result: result["steps_per_second"])


def measure_envpool(level: str, seconds: float) -> dict[str, Any]:
    import envpool

    num_envs, threads = 256, os.cpu_count() or 2
    with without_output():
        envs = envpool.make_gymnasium(level, num_envs=num_envs, num_threads=threads, seed=0)
        envs.reset()
        rate = peer_rate(envs.step, num_envs, seconds)
        envs.close()
    return {"steps_per_second": rate, "num_envs": num_envs, "threads": threads}


PEERS = {"minigrid": measure_minigrid, "envpool": measure_envpool}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    on_cpu = jax.default_backend() == "cpu"
    parser.add_argument("--tasks", nargs="+", default=list(SHARED_LEVELS), help="ella's task names")
    parser.add_argument("--num-envs", type=int, default=2048 if on_cpu else 65536)
    parser.add_argument("--seconds", type=float, default=5.0, help="time per measurement")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--json", metavar="FILE", help="write the results there too")
    arguments = parser.parse_args()

    device = jax.devices()[0]
    report: dict[str, Any] = {
        "counting_rule": COUNTING_RULE,
        "device": f"{device.device_kind} ({device.platform})",
        "cpu_cores": os.cpu_count(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "tasks": {},
    }
    print(f"device {report['device']}, {report['cpu_cores']} CPU cores; {COUNTING_RULE}")
    for task in arguments.tasks:
        ours = measure_ours(task, arguments.num_envs, arguments.seconds)
        results = {"ella": ours}
        print(
            f"{task}: ella {ours['steps_per_second']:,.0f} steps/s ({ours['num_envs']} "
            f"environments, {ours['levels_used']} levels used, "
            f"{ours['levels_used_twice']} of them twice)"
        )
        split = ", ".join(f"{k} {v:.0f}" for k, v in ours["nanoseconds_per_step"].items())
        print(f"  nanoseconds per step: {split}")
        for peer, measure in PEERS.items():
            if arguments.no_peers or task not in SHARED_LEVELS:
                continue
            try:
                results[peer] = measure(SHARED_LEVELS[task], arguments.seconds)
            except ImportError:
                print(f"  {peer}: not installed, left out")
                continue
            rate = results[peer]["steps_per_second"]
            ratio = results[peer]["ratio"] = ours["steps_per_second"] / rate
            print(f"  {peer}: {rate:,.0f} steps/s on {SHARED_LEVELS[task]}; ella is {ratio:.1f}x")
        report["tasks"][task] = results
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(report, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    main()
