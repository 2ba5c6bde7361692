"""Checkpoints of the whole train state.

A checkpoint is a directory `checkpoints/<iteration>` that appears by one rename, so it is either
complete or absent:

    state/          the arrays, written by Orbax as one flat dictionary of names
    manifest.json   format version, fingerprint of the settings, size and checksum of every file

The checksums tell a damaged checkpoint from a good one before anything is restored.
"""

import errno
import hashlib
import json
import logging
import os
import shutil
import sys
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ella.durable_files import write_durably
from ella.errors import InputError

FORMAT_VERSION = 1
UNFINISHED = ".unfinished-"
"""Begins the name of a checkpoint that is being written."""
_DIGITS = 9
_OVERHEAD = 1 << 20
"""Bytes of a checkpoint beside its arrays, with room to spare."""


class DamagedCheckpointError(Exception):
    """A checkpoint's files are missing, cut short or altered."""


@dataclass(frozen=True)
class Checkpoint:
    """A restored checkpoint."""

    state: PyTree
    iteration: int
    path: Path


@dataclass(frozen=True)
class CheckpointStore:
    """The checkpoints of one run."""

    directory: Path
    fingerprint: str
    """Of everything that decides how training goes on; another one is refused."""
    keep: int = 2
    """How many of the newest checkpoints stay."""

    def save(self, state: PyTree, iteration: int) -> Path:
        """Write a checkpoint of `state`, then drop the oldest beyond `keep`."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._remove_unfinished()
        # Threads of a write that failed may still fill its directory, so each has its own.
        unfinished = self.directory / f"{UNFINISHED}{iteration}-{uuid.uuid4().hex}"
        arrays = {
            name: np.asarray(jax.device_get(leaf)) for name, leaf in named_arrays(state).items()
        }
        _check_space(self.directory, sum(array.nbytes for array in arrays.values()) + _OVERHEAD)
        try:
            with _quiet_logs(), _quiet_threads(), _checkpointer() as checkpointer:
                try:
                    checkpointer.save((unfinished / "state").absolute(), arrays)
                except ValueError as error:
                    raise _disk_error(error) from error
            self._finish(unfinished, arrays, iteration)
        except Exception:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        final = self.directory / f"{iteration:0{_DIGITS}d}"
        if final.exists():
            shutil.rmtree(final)
        os.replace(unfinished, final)
        _sync_directory(self.directory)
        for old in self.paths()[: -self.keep]:
            shutil.rmtree(old, ignore_errors=True)
        return final

    def _finish(self, unfinished: Path, arrays: dict[str, np.ndarray], iteration: int) -> None:
        manifest = {
            "format_version": FORMAT_VERSION,
            "fingerprint": self.fingerprint,
            "iteration": iteration,
            "arrays": {
                name: [list(array.shape), str(array.dtype)] for name, array in arrays.items()
            },
            "files": _file_sums(unfinished / "state"),
        }
        write_durably(unfinished / "manifest.json", json.dumps(manifest))

    def paths(self) -> list[Path]:
        """Complete checkpoints, oldest first."""
        if not self.directory.is_dir():
            return []
        return sorted(path for path in self.directory.iterdir() if path.name.isdigit())

    def restore_newest(
        self,
        like: PyTree,
        *,
        at_most: int | None = None,
        on_damage: Callable[[str], None] = lambda line: None,
    ) -> Checkpoint | None:
        """The newest checkpoint that is whole (and not newer than iteration `at_most`), as arrays
        of `like`'s structure; None if there is none. Every damaged one that is passed over is
        reported to `on_damage`."""
        paths = [path for path in self.paths() if at_most is None or int(path.name) <= at_most]
        for path in reversed(paths):
            try:
                return self._restore(path, like)
            except DamagedCheckpointError as error:
                on_damage(f"checkpoint {path.name} is damaged ({error}); trying the one before it")
        if paths:
            raise InputError(f"every checkpoint in {self.directory} is damaged; start a new run")
        return None

    def _restore(self, path: Path, like: PyTree) -> Checkpoint:
        import orbax.checkpoint as ocp

        manifest = _read_manifest(path)
        if manifest.get("format_version") != FORMAT_VERSION:
            raise InputError(
                f"checkpoint {path} has format version {manifest.get('format_version')}, this "
                f"program reads version {FORMAT_VERSION}; start a new run"
            )
        if manifest.get("fingerprint") != self.fingerprint:
            raise InputError(
                f"checkpoint {path} was made with other settings; resume with the run's own "
                "config.json or start a new run in another directory"
            )
        _check_files(path / "state", manifest["files"])
        expected = {
            name: [list(leaf.shape), str(leaf.dtype)] for name, leaf in named_arrays(like).items()
        }
        if expected != manifest["arrays"]:
            raise InputError(
                f"checkpoint {path} holds arrays of other names or sizes: it was made by another "
                "version of this program; start a new run"
            )
        try:
            with _checkpointer() as checkpointer:
                arrays = checkpointer.restore(
                    (path / "state").absolute(),
                    restore_args={
                        name: ocp.RestoreArgs(restore_type=np.ndarray) for name in expected
                    },
                )
        except Exception as error:
            raise DamagedCheckpointError(f"unreadable: {error}") from error
        return Checkpoint(replace_arrays(like, arrays), int(manifest["iteration"]), path)

    def _remove_unfinished(self) -> None:
        for path in self.directory.glob(f"{UNFINISHED}*"):
            shutil.rmtree(path, ignore_errors=True)


def _checkpointer() -> Any:
    """Orbax for host arrays, in this process alone even where several train together."""
    import orbax.checkpoint as ocp

    process = jax.process_index()
    alone = ocp.options.MultiprocessingOptions(
        primary_host=process, active_processes={process}, barrier_sync_key_prefix=f"alone-{process}"
    )
    handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=alone)
    return ocp.Checkpointer(handler, multiprocessing_options=alone)


def named_arrays(tree: PyTree) -> dict[str, Any]:
    """Every array of a tree by a file-safe name; random keys as their raw numbers."""
    found: dict[str, Any] = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        if not hasattr(leaf, "dtype"):
            continue
        found[_name(path)] = _raw_aval(leaf) if _is_key(leaf) else leaf
    return found


def replace_arrays(tree: PyTree, arrays: dict[str, np.ndarray]) -> PyTree:
    """`tree` with its arrays taken from `arrays` (host arrays; random keys rebuilt)."""

    def take(path: Any, leaf: Any) -> Any:
        if not hasattr(leaf, "dtype"):
            return leaf
        array = arrays[_name(path)]
        if _is_key(leaf):
            return jax.random.wrap_key_data(jnp.asarray(array))
        return array

    return jax.tree_util.tree_map_with_path(take, tree)


def fingerprint(settings: Any) -> str:
    """A short digest of JSON values."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


@contextmanager
def _quiet_logs() -> Iterator[None]:
    """Orbax logs the traceback of a failed write, which is raised as well."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _quiet_threads() -> Iterator[None]:
    """After one array could not be written, the threads that write the others complain that Orbax
    no longer listens. They may do so later, so only a success puts things back as they were."""
    before, logger = sys.unraisablehook, logging.getLogger("asyncio")

    def pass_on(unraisable: Any) -> None:
        if str(unraisable.exc_value) != "Event loop is closed":
            before(unraisable)

    def is_not_of_a_checkpoint(record: logging.LogRecord) -> bool:
        return UNFINISHED not in record.getMessage()

    sys.unraisablehook = pass_on
    logger.addFilter(is_not_of_a_checkpoint)
    yield
    sys.unraisablehook = before
    logger.removeFilter(is_not_of_a_checkpoint)


def _disk_error(error: ValueError) -> OSError:
    """What TensorStore says in one long sentence after another."""
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        if os.strerror(number) in str(error):
            return OSError(number, os.strerror(number))
    return OSError(errno.EIO, str(error).splitlines()[0])


def _is_key(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _raw_aval(leaf: Any) -> Any:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return jax.eval_shape(jax.random.key_data, leaf)
    return jax.random.key_data(leaf)


def _name(path: Any) -> str:
    parts = (
        str(getattr(entry, "name", getattr(entry, "key", getattr(entry, "idx", entry))))
        for entry in path
    )
    return ".".join(parts) or "value"


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((path / "manifest.json").read_text())
    except (OSError, ValueError) as error:
        raise DamagedCheckpointError(f"no readable manifest: {error}") from error
    if not isinstance(manifest, dict):
        raise DamagedCheckpointError("its manifest is not a table")
    return manifest


def _file_sums(directory: Path) -> dict[str, list[int]]:
    return {
        str(path.relative_to(directory)): [path.stat().st_size, _crc(path)]
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def _check_files(directory: Path, sums: dict[str, list[int]]) -> None:
    for name, (size, crc) in sums.items():
        path = directory / name
        if not path.is_file():
            raise DamagedCheckpointError(f"{name} is missing")
        if path.stat().st_size != size or _crc(path) != crc:
            raise DamagedCheckpointError(f"{name} has changed")


def _crc(path: Path) -> int:
    digest = 0
    with path.open("rb") as file:
        while chunk := file.read(2**22):
            digest = zlib.crc32(chunk, digest)
    return digest


def _check_space(directory: Path, size: int) -> None:
    """Raise OSError now if `size` bytes cannot be written, rather than half-way through."""
    probe = directory / ".space"
    try:
        with probe.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(size, 1))
    finally:
        probe.unlink(missing_ok=True)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
