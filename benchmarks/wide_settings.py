"""Compare settings of many environments for one agent: one program a shape, a `vmap` over numbers.

    python benchmarks/wide_settings.py combo-maze ppo --ppo '{"minibatch_frames": 5120}' \\
        --numbers '{"ppo.learning_rate": [1.5e-4, 3e-4]}' --frames 15000000 --out a.json

Writes the settings, and the success rate at every log line of every agent: one for each place in
the lists of numbers. One agent each is a hint at where good settings lie, not a claim.
"""

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import ella
from ella.durable_files import write_durably
from ella.settings_table import updated
from ella.training import presets

LOG_EVERY = 409_600


def main() -> None:
    arguments = _arguments()
    ppo = updated(presets.find("wide").ppo, arguments.ppo, where="--ppo")
    train = ella.training_function(
        arguments.task,
        arguments.method,
        preset="wide",
        frames=arguments.frames,
        ppo=ppo,
        log_every=LOG_EVERY,
        also=arguments.also,
    )
    numbers = {name: jnp.array(values) for name, values in arguments.numbers.items()}
    key = jax.random.key(arguments.seed)
    began = time.monotonic()
    program = jax.jit(jax.vmap(train, in_axes=(None, 0))).lower(key, numbers).compile()
    compiled = time.monotonic()
    _, metrics = jax.block_until_ready(program(key, numbers))
    seconds = time.monotonic() - compiled
    success = np.asarray(metrics["success_rate"])
    result = {
        "what": "success rate [agents, log lines]; agent i has the i-th of the numbers",
        "task": arguments.task,
        "also": arguments.also,
        "method": arguments.method,
        "seed": arguments.seed,
        "ppo": asdict(ppo),
        "numbers": arguments.numbers,
        "log_every": LOG_EVERY,
        "frames": arguments.frames,
        "device": jax.devices()[0].device_kind,
        "compile_seconds": round(compiled - began, 1),
        "seconds": round(seconds, 1),
        "success_rate": success.round(4).tolist(),
        "entropy": np.asarray(metrics["entropy"]).round(3).tolist(),
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    write_durably(arguments.out, json.dumps(result) + "\n")
    print(arguments.out.name, f"{seconds:.0f} s", success[:, -1].round(3), flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task")
    parser.add_argument("method")
    parser.add_argument("--also", nargs="*", default=[])
    parser.add_argument("--ppo", type=json.loads, default={}, help="settings that differ, JSON")
    parser.add_argument(
        "--numbers",
        type=json.loads,
        default={"ppo.learning_rate": [3e-4]},
        help="lists of equal length by dotted name, JSON; an agent for each place",
    )
    parser.add_argument("--frames", type=int, default=15_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
