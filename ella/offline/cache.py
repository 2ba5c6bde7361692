"""Results of offline stages on disk: computed once, shared by concurrent runs.

An entry is one array file, named after what was computed and a hash of its configuration; its table
holds the configuration and a record. A lock file lets one process compute while others wait.
"""

import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ella.array_file import (
    DamagedFileError,
    MismatchedArraysError,
    load_arrays,
    named_arrays,
    replace_arrays,
    save_arrays,
)
from ella.durable_files import remove_unfinished
from ella.errors import InputError
from ella.offline.stage import run_stage

logger = logging.getLogger(__name__)

KIND = "result of an offline stage"
FORMAT_VERSION = 2
"""Raise when what an entry means changes; older entries are then not found."""

Weights = TypeVar("Weights", bound=PyTree)

CACHE_VARIABLE = "ELLA_CACHE"
"""Names the place of the cache in the environment."""


def default_directory() -> Path:
    """$ELLA_CACHE, or `ella` in the user's cache directory."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ella"


def entry_path(directory: Path, name: str, configuration: dict[str, Any]) -> Path:
    """Where the result of a configuration is kept."""
    text = json.dumps(_plain(configuration), sort_keys=True)
    digest = hashlib.sha256(f"{FORMAT_VERSION} {name} {text}".encode()).hexdigest()
    return directory / f"{name}-{digest[:16]}.safetensors"


def cached(
    directory: Path,
    name: str,
    configuration: dict[str, Any],
    template: Weights,
    compute: Callable[[], tuple[Weights, dict[str, Any]]],
) -> tuple[Weights, dict[str, Any]]:
    """The weights and record of a configuration, computed if they are not there yet.

    Args:
        name: What is computed; part of the file's name.
        configuration: Everything the result depends on: plain values or dataclasses of them.
        template: A PyTree shaped like the weights (arrays, or what `jax.eval_shape` gives).
        compute: Gives (weights, record); the record must be plain JSON values.
    """
    path = entry_path(directory, name, configuration)
    found = _read(path, template)
    if found is not None:
        return found
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the cache {directory}: {error.strerror}") from error
    with _locked(path.with_suffix(".lock")) as is_locked:
        if is_locked:
            remove_unfinished(directory, path.name)
        # Another process may have finished while this one waited.
        found = _read(path, template)
        if found is not None:
            return found
        weights, record = run_stage(compute)
        try:
            save_arrays(
                path,
                named_arrays(weights),
                kind=KIND,
                version=FORMAT_VERSION,
                table={"configuration": _plain(configuration), "record": record},
            )
        except OSError as error:
            raise InputError(
                f"cannot write to the cache {directory}: {error.strerror}; make room there or name "
                "another folder in $ELLA_CACHE"
            ) from error
    return weights, record


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value


def _read(path: Path, template: Weights) -> tuple[Weights, dict[str, Any]] | None:
    if not path.exists():
        return None
    try:
        found = load_arrays(path, kind=KIND, version=FORMAT_VERSION)
        weights = replace_arrays(template, found.arrays)
    except (DamagedFileError, MismatchedArraysError, InputError, OSError) as error:
        logger.warning("cache entry %s is damaged (%s); computing it again", path, error)
        return None
    return jax.tree.map(jnp.asarray, weights), found.table["record"]


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Hold an exclusive lock that the system releases even if the process is killed; whether there
    is one."""
    is_locked = True
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.info("another process is computing %s; waiting for it", path.stem)
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            # Without locks two processes may compute the same, but no entry is ever half written.
            logger.warning("cannot lock %s (%s); computing without", path, error.strerror)
            is_locked = False
        yield is_locked
