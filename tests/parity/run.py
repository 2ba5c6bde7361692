# ruff: noqa: T201
"""Compare millions of steps with minigrid: `python tests/parity/run.py --steps 5000000`."""

import argparse
import itertools
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import jax
from comparison import assert_same
from minigrid_reference import DRIVERS, record_batch

import ella
from ella.world.tasks import TASKS

CHUNK = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    cases = itertools.cycle(itertools.product(arguments.tasks, DRIVERS, ("minigrid", "ella")))
    seeds = itertools.count(arguments.seed)
    began, compared = time.monotonic(), 0
    with ProcessPoolExecutor(arguments.processes, mp_context=get_context("spawn")) as workers:
        pending = []
        while compared < arguments.steps:
            while len(pending) < 2 * arguments.processes:
                task, driver, maker = next(cases)
                spec, seed = TASKS[task], next(seeds)
                levels = levels_made_here(task, seed) if maker == "ella" else None
                future = workers.submit(
                    record_batch, spec, driver, seed, min_steps=CHUNK, levels=levels
                )
                pending.append((spec, future))
            spec, future = pending.pop(0)
            compared += assert_same(spec, future.result())
            rate = compared / (time.monotonic() - began)
            print(
                f"{compared:>10,} steps equal ({rate:,.0f} a second), last {spec.name}", flush=True
            )
        for _, future in pending:
            future.cancel()
    print(
        f"all equal: image, direction, mission, reward, terminated, truncated; {compared:,} steps"
    )


def levels_made_here(task: str, seed: int, count: int = 256) -> list[dict]:
    env = ella.make(task)
    generated = jax.device_get(env.generate(jax.random.key(seed), count))
    return [
        ella.world.describe(jax.tree.map(lambda leaf, i=i: leaf[i], generated))
        for i in range(count)
    ]


if __name__ == "__main__":
    main()
