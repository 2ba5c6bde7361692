"""Pipes that fill up soon, so that a test need not be faster than the run it interrupts."""

import os
from contextlib import suppress

LINE = 150
"""Bytes of a line of progress, at most."""


def narrow_pipe(*, lines: int) -> tuple[int, int]:
    """(reader, writer) of a pipe with room for so many lines of progress; whoever writes more
    waits."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    capacity = 0
    with suppress(BlockingIOError):
        while True:
            capacity += os.write(writer, bytes(4096))
    os.read(reader, capacity)
    os.write(writer, bytes(capacity - lines * LINE))
    os.set_blocking(writer, True)
    return reader, writer
