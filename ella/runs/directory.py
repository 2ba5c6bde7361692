"""The directory a run leaves behind: its configuration, provenance and lock.

config.json     task and settings, resolved; `ella train TASK --config` reads it
run.json        command line, commit, versions, device; the same again for every time it was resumed
metrics.csv     one row per seed and log line
tensorboard/    the same as events
checkpoints/    whole train states, the newest few, an array file each
policies/       one exported policy per seed, an array file each
shaper/         the networks a shaper learned offline, where it has any
evaluation.json how the final policies do alone, where `ella eval --save` or `ella reproduce` looked
"""

import errno
import fcntl
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax

import ella
from ella.durable_files import write_durably
from ella.errors import InputError, OutOfMemoryError, writing_to
from ella.runs.config_file import CONFIG_FILE, write_config
from ella.runs.metrics import frames_reached
from ella.settings_table import read_table
from ella.training.settings import TrainingSettings
from ella.world.tasks import TaskSpec

PROVENANCE_FILE = "run.json"
CHECKPOINTS = "checkpoints"
POLICIES = "policies"
SHAPER = "shaper"
LOCK_FILE = ".lock"


@contextmanager
def locked_run(
    directory: Path,
    spec: TaskSpec,
    settings: TrainingSettings,
    *,
    resume: bool,
    command: Sequence[str],
    together_with: Sequence[str] = (),
) -> Iterator[None]:
    """Lock the run's directory, made where it is missing, and record what is trained in it and with
    which other runs. A new run that bad input or too little memory stops at its start leaves
    nothing behind."""
    _check_usable(directory, resume)
    with _made_and_locked(directory):
        # Another process may have started here in the meantime.
        is_new = not _check_usable(directory, resume)
        try:
            with writing_to(directory):
                if is_new:
                    write_config(directory, spec, settings)
                _record_provenance(directory, command, together_with, is_new=is_new)
            yield
        except OutOfMemoryError:
            if is_new and not has_trained(directory):
                shutil.rmtree(directory, ignore_errors=True)
            raise
        except (InputError, OSError):
            if is_new:
                _abandon(directory)
            raise


def _check_usable(directory: Path, resume: bool) -> bool:
    """Whether there is a run in the directory, to resume."""
    if directory.exists() and not directory.is_dir():
        raise InputError(f"{directory} is a file; name a directory")
    # Hidden files are what a process killed at its very start may leave.
    used = directory.is_dir() and any(path.name[0] != "." for path in directory.iterdir())
    if used and not resume:
        raise InputError(
            f"{directory} is not empty; choose another directory, or resume the run in it "
            "with --resume"
        )
    if used and not (directory / CONFIG_FILE).exists():
        raise InputError(f"{directory} holds no run to resume: {CONFIG_FILE} is missing")
    return used


@contextmanager
def _made_and_locked(directory: Path) -> Iterator[None]:
    """The directory, made where it is missing and locked."""
    existed = directory.exists()
    with ExitStack() as stack:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            stack.enter_context(lock(directory))
        except OSError as error:
            if not existed:
                _abandon(directory)
            raise InputError(f"cannot write to {directory}: {error.strerror}") from error
        yield


def has_trained(directory: Path) -> bool:
    """Whether a run has measured or saved anything."""
    return (directory / CHECKPOINTS).exists() or frames_reached(directory) > 0


def _abandon(directory: Path) -> None:
    """Remove a directory in which nothing has been trained yet."""
    with suppress(OSError):
        found = list(directory.iterdir())
        recorded = (CONFIG_FILE, PROVENANCE_FILE)
        if all(path.name in recorded or path.name.startswith(".") for path in found):
            for path in found:
                path.unlink()
            directory.rmdir()


def _record_provenance(
    directory: Path, command: Sequence[str], together_with: Sequence[str], *, is_new: bool
) -> None:
    """Record what a result depends on besides its configuration; a resumed run adds to what was
    recorded before."""
    path, now = directory / PROVENANCE_FILE, _provenance(command)
    if together_with:
        now["trained_together_with"] = list(together_with)
    if not is_new:
        try:
            first = read_table(path)
        except InputError:
            first = {}
        if first:
            earlier = first.get("resumed")
            now = {**first, "resumed": [*(earlier if isinstance(earlier, list) else []), now]}
    _write_table(path, now)


@contextmanager
def lock(directory: Path) -> Iterator[None]:
    """Lock the directory, so that two runs never write to it at once. The file names the process
    that has the lock; the system releases it even if that process is killed."""
    with (directory / LOCK_FILE).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            owner = file.read().strip() or "another process"
            raise InputError(f"{directory} is locked by {owner}, which trains there") from error
        except OSError as error:
            error.strerror = (
                f"its file system cannot lock files ({error.strerror}); choose a directory on "
                "another one, or have it mounted with locks (Lustre: flock, NFS: local_lock=flock)"
            )
            raise
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}\n")
        file.flush()
        yield


def _provenance(command: Sequence[str]) -> dict[str, Any]:
    """What a result depends on besides its configuration."""
    versions = {"ella": ella.__version__}
    for package in ("jax", "jaxlib", "equinox", "optax", "numpy"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "unknown"
    devices = jax.devices()
    return {
        "command": list(command),
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "versions": versions,
        **({"commit": commit} if (commit := _commit()) else {}),
        "device": devices[0].device_kind,
        "devices": len(devices),
        "backend": jax.default_backend(),
    }


def _commit() -> str | None:
    """Of the checkout that the package is imported from, `-dirty` if files differ from it; None
    for an installed package."""
    root = Path(ella.__file__).parents[1]
    if not (root / ".git").exists():
        return None
    words = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        found = subprocess.run(words, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


def _write_table(path: Path, table: dict[str, Any]) -> None:
    write_durably(path, json.dumps(table, indent=2) + "\n")


@contextmanager
def writing(what: str, directory: Path) -> Iterator[None]:
    """Turn what the disk refuses into one line. Whatever the run saved before stays."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        remedy = "make room" if full else "put that right"
        raise InputError(
            f"cannot write {what} to {directory}: {error.strerror or error}; {remedy}, then resume "
            "the run"
        ) from error


def folder_above(path: Path, verb: str) -> Path:
    """The nearest folder that exists above what is to be made; refused where that is a file."""
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir():
        raise InputError(f"cannot {verb} {path}: {above} is a file; choose another folder")
    return above
