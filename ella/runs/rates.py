"""How fast this kind of device trains: what was measured, remembered beside the offline stages."""

import fcntl
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import jax

from ella.durable_files import write_durably
from ella.offline.cache import default_directory
from ella.runs.checkpoint import fingerprint
from ella.runs.planned_run import PlannedRun, seeds_of
from ella.settings_table import to_json
from ella.training.settings import Settings

FILE_NAME = "rates.json"
LOCK_FILE = ".rates.lock"


def known_rate(group: Sequence[PlannedRun]) -> float | None:
    """Frames a second of all seeds of a group together, as last seen on a device of this kind with
    the same learner and nearly as many seeds; None if that never was."""
    key, seeds = _key(group[0].settings), seeds_of(group)
    found = _read(default_directory() / FILE_NAME).get(key, {})
    near = {
        int(count): rate for count, rate in found.items() if seeds / 2 <= int(count) <= seeds * 2
    }
    return min(near.items(), key=lambda item: abs(item[0] - seeds))[1] if near else None


def remember_rate(group: Sequence[PlannedRun], frames_per_second: float) -> None:
    """Keep a measured rate for later estimates."""
    path = default_directory() / FILE_NAME
    # An estimate is not worth failing for.
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_name(LOCK_FILE).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            rates = _read(path)
            by_seeds = rates.setdefault(_key(group[0].settings), {})
            by_seeds[str(seeds_of(group))] = frames_per_second
            write_durably(path, json.dumps(rates, indent=2, sort_keys=True) + "\n")


def _key(settings: Settings) -> str:
    """Of everything that decides the rate, apart from the number of seeds."""
    device = jax.devices()[0]
    kind = f"{os.cpu_count()}-core cpu" if device.platform == "cpu" else device.device_kind
    count = settings.devices or len(jax.devices())
    return f"{kind} {count} {fingerprint(to_json(settings.ppo))}"


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
