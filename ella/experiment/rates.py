"""How fast this machine trains: measured once, remembered beside the offline stages."""

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import jax

from ella.experiment.checkpoint import fingerprint, write_durably
from ella.experiment.config import Settings
from ella.experiment.run import PlannedRun, make_program
from ella.experiment.settings_file import to_json
from ella.offline.cache import default_directory
from ella.shaping.shaper import NoShaping
from ella.world.environment import make

FILE_NAME = "rates.json"


def known_rate(group: Sequence[PlannedRun]) -> float | None:
    """Frames a second of all seeds of a group together, as last seen on a device of this kind with
    the same learner and nearly as many seeds; None if that never was."""
    key, seeds = _key(group[0].settings), _seeds(group)
    found = _read(default_directory() / FILE_NAME).get(key, {})
    near = {
        int(count): rate for count, rate in found.items() if seeds / 2 <= int(count) <= seeds * 2
    }
    return min(near.items(), key=lambda item: abs(item[0] - seeds))[1] if near else None


def remember_rate(group: Sequence[PlannedRun], frames_per_second: float) -> None:
    """Keep a rate for later estimates."""
    path = default_directory() / FILE_NAME
    rates = _read(path)
    rates.setdefault(_key(group[0].settings), {})[str(_seeds(group))] = frames_per_second
    # An estimate is not worth failing for.
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, json.dumps(rates, indent=2, sort_keys=True) + "\n")


def measure_rate(group: Sequence[PlannedRun], iterations: int = 2) -> float:
    """Train the group's learner without shaping for a moment, and remember its rate.

    A processor is as fast with one seed as with many; there only one is trained.
    """
    seeds = 1 if jax.default_backend() == "cpu" else _seeds(group)
    settings = replace(group[0].settings, method="ppo", seeds=seeds, seed=0)
    program = make_program([settings], make(group[0].spec), [NoShaping()])
    states = program.start([settings.seed_numbers])
    program.prepare(states)
    program.compile()
    states, _ = jax.block_until_ready(program.advance(states, 0, 1))
    began = time.perf_counter()
    jax.block_until_ready(program.advance(states, 1, iterations))
    elapsed = time.perf_counter() - began
    rate = iterations * seeds * settings.ppo.frames_per_iteration / elapsed
    remember_rate(group, rate)
    return rate


def _seeds(group: Sequence[PlannedRun]) -> int:
    return sum(planned.settings.seeds for planned in group)


def _key(settings: Settings) -> str:
    """Of everything that decides the rate, apart from the number of seeds."""
    return (
        f"{jax.devices()[0].device_kind} {len(jax.devices())} {fingerprint(to_json(settings.ppo))}"
    )


def _read(path: Path) -> dict[str, dict[str, float]]:
    """Whatever cannot be read is as if it had never been measured."""
    try:
        rates = json.loads(path.read_text())
        return {
            key: {str(int(count)): float(rate) for count, rate in by_seeds.items()}
            for key, by_seeds in rates.items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
