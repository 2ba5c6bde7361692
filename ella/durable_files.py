"""Files that are replaced whole or not at all."""

import os
from pathlib import Path


def write_durably(path: Path, text: str) -> None:
    """Replace a small file in one step, so that a reader sees the old or the new text."""
    replace_durably(path, text.encode())


def replace_durably(path: Path, content: bytes) -> None:
    """Replace a file in one step; if that fails, the old one stays and nothing else is left."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        with unfinished.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        error.filename = error.filename or str(path)
        raise
