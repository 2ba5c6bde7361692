"""Results of offline stages on disk: computed once, shared by concurrent runs.

An entry is one safetensors file, named after what was computed and a hash of its configuration,
with the configuration, a record and a digest of the weights in its header; a JSON file beside it
says the same for people. Files are written elsewhere first and then moved into place, so a reader
never sees half of one. A lock file lets one process compute while others wait.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from jaxtyping import PyTree
from safetensors import SafetensorError, safe_open

from ella.errors import InputError

FORMAT = 1
"""Raise when what an entry means changes; older entries are then not found."""

Weights = TypeVar("Weights", bound=PyTree)
Say = Callable[[str], None]


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
    digest = hashlib.sha256(f"{FORMAT} {name} {text}".encode()).hexdigest()
    return directory / f"{name}-{digest[:16]}.safetensors"


def cached(
    directory: Path,
    name: str,
    configuration: dict[str, Any],
    template: Weights,
    compute: Callable[[], tuple[Weights, dict[str, Any]]],
    say: Say = lambda line: None,
) -> tuple[Weights, dict[str, Any]]:
    """The weights and record of a configuration, computed if they are not there yet.

    Args:
        name: What is computed; part of the file's name.
        configuration: Everything the result depends on: plain values or dataclasses of them.
        template: A PyTree shaped like the weights (arrays, or what `jax.eval_shape` gives).
        compute: Gives (weights, record); the record must be plain JSON values.
        say: Takes a line about a damaged entry, or about waiting for another process.
    """
    path = entry_path(directory, name, configuration)
    found = _read(path, template, say)
    if found is not None:
        return found
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the cache {directory}: {error.strerror}") from error
    with _locked(path.with_suffix(".lock"), say):
        # Another process may have finished while this one waited.
        found = _read(path, template, say)
        if found is not None:
            return found
        weights, record = compute()
        try:
            _write(path, weights, record, configuration)
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


def _named(weights: PyTree) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_leaves_with_path(weights)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def _digest(arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def _read(path: Path, template: Weights, say: Say) -> tuple[Weights, dict[str, Any]] | None:
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            # The names are a method's, the file not being a mapping.
            arrays = {name: file.get_tensor(name) for name in list(file.keys())}
        leaves = jax.tree_util.tree_leaves_with_path(template)
        expected = {jax.tree_util.keystr(path): leaf.shape for path, leaf in leaves}
        if {name: array.shape for name, array in arrays.items()} != expected:
            raise ValueError("other weights than expected")
        if header.get("digest") != _digest(arrays):
            raise ValueError("the weights do not match their digest")
        record = json.loads(header["record"])
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        say(f"cache entry {path} is damaged ({error}); computing it again")
        return None
    found = [jnp.asarray(arrays[name]) for name in expected]
    return jax.tree.unflatten(jax.tree.structure(template), found), record


def _write(path: Path, weights: PyTree, record: dict[str, Any], configuration: dict) -> None:
    arrays = _named(weights)
    description = {"configuration": _plain(configuration), "record": record}
    header = {key: json.dumps(part) for key, part in description.items()}
    blob = safetensors.numpy.save(arrays, metadata={**header, "digest": _digest(arrays)})
    text = json.dumps({"format": FORMAT, **description}, indent=2, sort_keys=True) + "\n"
    _replace(path.with_suffix(".json"), text.encode())
    _replace(path, blob)


def _replace(path: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def _locked(path: Path, say: Say) -> Iterator[None]:
    """Hold an exclusive lock that the system releases even if the process is killed."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process is computing {path.stem}; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
