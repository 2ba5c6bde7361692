"""Training many runs on a Ray cluster: one task per program, resumed elsewhere if a worker dies."""

import logging
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ella.errors import InputError
from ella.offline.cache import CACHE_VARIABLE
from ella.runs.metrics import frames_reached
from ella.runs.planned_run import PlannedRun
from ella.runs.run_result import RunResult
from ella.runs.training_run import train_runs

logger = logging.getLogger(__name__)

RETRIES = 3
"""How often a program is resumed from its newest checkpoint after its worker died."""
POLL_SECONDS = 5.0
CONNECT_SECONDS = 5.0


def train_on_ray(
    groups: Sequence[Sequence[PlannedRun]],
    *,
    address: str | None,
    gpus: float | None,
    cpus: float,
    command: Sequence[str],
) -> list[RunResult]:
    """Train groups as tasks of the cluster at `address` (None: one of its own on this machine).

    A task takes `gpus` GPUs (by default one where the cluster has any) and `cpus` CPUs. Run
    directories must lie where every machine of the cluster sees them.
    """
    try:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
    except ImportError as error:
        raise InputError("the Ray launcher needs the package: pip install ray") from error

    _check_reachable(address)
    try:
        # Without "local", Ray would join whatever cluster its surroundings name.
        ray.init(address=address or "local", log_to_driver=False, ignore_reinit_error=True)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise InputError(f"no Ray cluster at {address}: {str(error).splitlines()[0]}") from error
    try:
        present = ray.cluster_resources()
        if gpus is None:
            gpus = 1.0 if present.get("GPU", 0) else 0.0
        for what, asked in (("GPU", gpus), ("CPU", cpus)):
            if asked > present.get(what, 0):
                logger.warning(f"a task asks for {asked:g} {what}, more than the cluster has now")
        task = ray.remote(
            num_cpus=cpus,
            num_gpus=gpus,
            max_retries=RETRIES,
            # A worker that ends gives its GPU's memory back.
            max_calls=1,
            runtime_env={"env_vars": {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **_own_cache()}},
        )(_train_group)
        # Takes no CPU from the tasks, and is lost with the driver only.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        records = ray.remote(_Records).options(num_cpus=0, scheduling_strategy=here).remote()
        pending = {
            task.remote([_portable(planned) for planned in group], list(command), records): group
            for group in groups
        }
        logger.info("programs: %d; machines in the cluster: %d", len(pending), len(ray.nodes()))
        return _gathered(ray, pending, records)
    finally:
        ray.shutdown()


def _own_cache() -> dict[str, str]:
    """The place of what is learned offline, where the user chose one."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return {CACHE_VARIABLE: str(Path(chosen).resolve())} if chosen else {}


def _check_reachable(address: str | None) -> None:
    """Refuse at once an address where nothing listens: Ray itself tries for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise InputError(f"no Ray cluster at {address}: {error.strerror or error}") from error


class _Records:
    """Log records of workers that the driver has not taken yet."""

    def __init__(self) -> None:
        self._records: list[tuple[int, str]] = []

    def add(self, level: int, line: str) -> None:
        self._records.append((level, line))

    def take(self) -> list[tuple[int, str]]:
        records, self._records = self._records, []
        return records


class _ToDriver(logging.Handler):
    """Sends a worker's log records to the driver, after the names of its runs."""

    def __init__(self, records: Any, names: str) -> None:
        super().__init__(logging.INFO)
        self._records, self._names = records, names

    def emit(self, record: logging.LogRecord) -> None:
        import ray

        # Training is worth more than what is logged about it.
        with suppress(ray.exceptions.RayError):
            ray.get(
                self._records.add.remote(record.levelno, f"{self._names}: {record.getMessage()}")
            )


def _train_group(
    group: Sequence[PlannedRun], command: Sequence[str], records: Any
) -> list[RunResult]:
    """In a worker: start, or resume from the newest checkpoint."""
    package = logging.getLogger("ella")
    package.setLevel(logging.INFO)
    package.addHandler(_ToDriver(records, _names(group)))
    return train_runs(group, resume=True, command=command)


def _names(group: Sequence[PlannedRun]) -> str:
    return ", ".join(planned.directory.name for planned in group)


def _portable(planned: PlannedRun) -> PlannedRun:
    """Workers have working directories of their own."""
    return replace(planned, directory=planned.directory.resolve())


def _gathered(ray: Any, pending: dict[Any, Sequence[PlannedRun]], records: Any) -> list[RunResult]:
    results: list[RunResult] = []
    logged: dict[str, int] = {}
    while pending:
        done, _ = ray.wait(list(pending), num_returns=1, timeout=POLL_SECONDS)
        with suppress(ray.exceptions.RayError):
            for level, line in ray.get(records.take.remote()):
                logger.log(level, line)
        for reference in done:
            group = pending.pop(reference)
            names = _names(group)
            try:
                results += ray.get(reference)
            except ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, InputError):
                    raise InputError(str(error.cause)) from error
                raise
            except ray.exceptions.RayError as error:
                raise InputError(
                    f"{names}: the worker died more than {RETRIES} times; run the command again "
                    "to resume"
                ) from error
            logger.info("done: %s", names)
        for group in pending.values():
            for planned in group:
                frames = 0
                # A line about progress is not worth ending the others for.
                with suppress(InputError):
                    frames = frames_reached(planned.directory)
                if frames > logged.get(planned.directory.name, 0):
                    logged[planned.directory.name] = frames
                    total = planned.settings.total_frames
                    logger.info(f"{planned.directory.name}: {frames:,}/{total:,} frames a seed")
    return results
