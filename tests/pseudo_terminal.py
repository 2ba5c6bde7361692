"""A terminal that a test can read."""

import os
import pty
import select
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

QUIET = 0.2
"""Seconds without output after which everything has arrived."""


class PseudoTerminal:
    """`screen` is where a program writes; `text()` is what has been written since the last call."""

    def __init__(self, screen: IO[str], reader: int) -> None:
        self.screen = screen
        self._reader = reader

    def text(self) -> str:
        self.screen.flush()
        received = b""
        while select.select([self._reader], [], [], QUIET)[0]:
            received += os.read(self._reader, 1 << 16)
        return received.decode()


@contextmanager
def pseudo_terminal() -> Iterator[PseudoTerminal]:
    reader, writer = pty.openpty()
    try:
        with os.fdopen(writer, "w") as screen:
            yield PseudoTerminal(screen, reader)
    finally:
        os.close(reader)
