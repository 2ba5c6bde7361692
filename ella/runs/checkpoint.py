"""Checkpoints of the whole train state: array files `checkpoints/<iteration>.safetensors`.

A checkpoint appears by one rename, so it is either complete or absent; its checksum tells a damaged
one from a good one before anything is restored.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

logger = logging.getLogger(__name__)

KIND = "checkpoint"
FORMAT_VERSION = 2
_DIGITS = 9
_SUFFIX = ".safetensors"


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
    settings: Mapping[str, Any]
    """Every setting that training depends on, by dotted name, as JSON; checkpoints with another
    value of one are refused."""
    keep: int = 2
    """How many of the newest checkpoints stay."""

    def save(self, state: PyTree, iteration: int) -> Path:
        """Write a checkpoint of `state`, then drop the oldest beyond `keep`."""
        self.directory.mkdir(parents=True, exist_ok=True)
        remove_unfinished(self.directory)
        path = self.directory / f"{iteration:0{_DIGITS}d}{_SUFFIX}"
        save_arrays(
            path,
            named_arrays(state),
            kind=KIND,
            version=FORMAT_VERSION,
            table={"settings": dict(self.settings), "iteration": iteration},
        )
        for old in self.paths()[: -self.keep]:
            old.unlink(missing_ok=True)
        return path

    def paths(self) -> list[Path]:
        """Complete checkpoints, oldest first."""
        if not self.directory.is_dir():
            return []
        return sorted(
            path
            for path in self.directory.iterdir()
            if path.stem.isdecimal() and path.suffix == _SUFFIX
        )

    def restore_newest(self, like: PyTree, *, at_most: int | None = None) -> Checkpoint | None:
        """The newest checkpoint that is whole (and not newer than iteration `at_most`), as host
        arrays in `like`'s structure; None if there is none. Damaged ones are skipped with a
        warning."""
        paths = [path for path in self.paths() if at_most is None or int(path.stem) <= at_most]
        for path in reversed(paths):
            try:
                return self._restore(path, like)
            except DamagedFileError as error:
                logger.warning(
                    "checkpoint %s is damaged (%s); trying the one before it", path.name, error
                )
        if paths:
            raise InputError(f"every checkpoint in {self.directory} is damaged; start a new run")
        return None

    def _restore(self, path: Path, like: PyTree) -> Checkpoint:
        try:
            found = load_arrays(path, kind=KIND, version=FORMAT_VERSION)
        except OSError as error:
            raise DamagedFileError(f"cannot be read: {error.strerror}") from error
        # Settings that only one of the two has were added or dropped by a version in between.
        for name, value in found.table.get("settings", {}).items():
            if self.settings.get(name, value) != value:
                raise InputError(
                    f"checkpoint {path} was made with other settings ({name} {value} instead of "
                    f"{self.settings[name]}); resume with the run's own config.json or start a new "
                    "run in another directory"
                )
        try:
            state = replace_arrays(like, found.arrays)
        except MismatchedArraysError as error:
            raise InputError(
                f"checkpoint {path} holds arrays of other names or sizes ({error}): it was made by "
                "another version of ella; start a new run"
            ) from error
        return Checkpoint(state, int(found.table["iteration"]), path)
