"""Compare settings of many environments for one agent: one program a shape, a `vmap` over numbers.

    python benchmarks/wide_settings.py combo-maze ppo --num-envs 2048 --minibatch-frames 10240 \\
        --learning-rate 1.5e-4 3e-4 6e-4 --frames 15000000 --out results/wide/tuning/a.json

Writes the settings, and the success rate at every log line of every learning rate. One agent each:
a hint at where good settings lie, not a claim.
"""

import argparse
import json
import time
from dataclasses import asdict, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import ella
from ella.durable_files import write_durably
from ella.training import presets

LOG_EVERY = 409_600


def main() -> None:
    arguments = _arguments()
    ppo = replace(
        presets.find("wide").ppo,
        num_envs=arguments.num_envs,
        minibatch_frames=arguments.minibatch_frames,
        epochs=arguments.epochs,
        bptt_length=arguments.bptt_length,
    )
    train = ella.training_function(
        arguments.task,
        arguments.method,
        preset="wide",
        frames=arguments.frames,
        ppo=ppo,
        log_every=LOG_EVERY,
        also=arguments.also,
    )
    entropy = arguments.entropy_coefficient * (
        len(arguments.learning_rate) if len(arguments.entropy_coefficient) == 1 else 1
    )
    numbers = {
        "ppo.learning_rate": jnp.array(arguments.learning_rate),
        "ppo.entropy_coefficient": jnp.array(entropy),
    }
    key = jax.random.key(arguments.seed)
    began = time.monotonic()
    program = jax.jit(jax.vmap(train, in_axes=(None, 0))).lower(key, numbers).compile()
    compiled = time.monotonic()
    _, metrics = jax.block_until_ready(program(key, numbers))
    seconds = time.monotonic() - compiled
    success = np.asarray(metrics["success_rate"])
    result = {
        "what": "success rate [numbers, log lines]; one agent for each pair of numbers",
        "task": arguments.task,
        "also": arguments.also,
        "method": arguments.method,
        "seed": arguments.seed,
        "ppo": asdict(ppo),
        "learning_rate": arguments.learning_rate,
        "entropy_coefficient": entropy,
        "log_every": LOG_EVERY,
        "frames": arguments.frames,
        "device": jax.devices()[0].device_kind,
        "compile_seconds": round(compiled - began, 1),
        "seconds": round(seconds, 1),
        "success_rate": success.round(4).tolist(),
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    write_durably(arguments.out, json.dumps(result) + "\n")
    print(arguments.out.name, f"{seconds:.0f} s", success[:, -1].round(3), flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task")
    parser.add_argument("method")
    parser.add_argument("--also", nargs="*", default=[])
    parser.add_argument("--num-envs", type=int, default=2048)
    parser.add_argument("--minibatch-frames", type=int, default=10_240)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--bptt-length", type=int, default=20)
    parser.add_argument("--learning-rate", type=float, nargs="+", default=[3e-4])
    parser.add_argument("--entropy-coefficient", type=float, nargs="+", default=[0.01])
    parser.add_argument("--frames", type=int, default=15_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
