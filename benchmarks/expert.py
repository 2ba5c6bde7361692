"""Let the expert solve many levels of every task: success, lengths and seconds.

    python benchmarks/expert.py [--episodes 10000] [TASK ...]

Prints one JSON line per task. Seconds cover level generation, planning, playing and two views per
episode, without compilation.
"""

import argparse
import json
import time

import jax

import ella
from ella.offline.demonstrations import CHUNK, demonstrations
from ella.world.tasks import TASKS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for task in arguments.tasks or TASKS:
        env = ella.make(task)
        key = jax.random.key(arguments.seed)
        demonstrations(env, key, min(CHUNK, arguments.episodes))
        start = time.perf_counter()
        found = demonstrations(env, key, arguments.episodes)
        seconds = time.perf_counter() - start
        print(
            json.dumps(
                {
                    "task": task,
                    "episodes": arguments.episodes,
                    "success": int(found.success.sum()),
                    "mean_length": round(float(found.lengths.mean()), 3),
                    "longest": int(found.lengths.max()),
                    "seconds": round(seconds, 2),
                    "device": jax.devices()[0].device_kind,
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
