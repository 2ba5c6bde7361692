"""Files that are replaced whole or not at all."""

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

UNFINISHED = ".unfinished"
"""Ends the name of a file that is being written, or was when its process was killed."""


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file that replaces `path` when the block ends.

    A reader sees the old file or the new one, also after a power failure. If the block or the disk
    fails, the old file stays and nothing else is left. Each of several writers at once has a file
    of its own; the last to end wins.
    """
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}{UNFINISHED}")
    try:
        with unfinished.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
        _sync_directory(path.parent)
    except BaseException as error:
        with suppress(OSError):
            unfinished.unlink()
        if isinstance(error, OSError):
            error.filename = error.filename or str(path)
        raise


def replace_durably(path: Path, content: bytes) -> None:
    """Replace a file in one step; if that fails, the old one stays and nothing else is left."""
    with replacing(path) as file:
        file.write(content)


def write_durably(path: Path, text: str) -> None:
    """Replace a small file in one step, so that a reader sees the old or the new text."""
    replace_durably(path, text.encode())


def remove_unfinished(directory: Path, name: str = "*") -> None:
    """Remove what killed processes left of the files of that name, or of all; no other process may
    be writing them."""
    for path in directory.glob(f".{name}.*{UNFINISHED}"):
        path.unlink(missing_ok=True)


def _sync_directory(path: Path) -> None:
    """Make a rename in the directory last."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems sync names by themselves and refuse to be asked.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
