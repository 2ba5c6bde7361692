"""Python's garbage collector while programs are traced.

Tracing makes hundreds of thousands of objects that stay; looking for garbage among them takes a
tenth of its time and finds little.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

RARELY = (100_000, 50, 50)
"""Thresholds with which the collector hardly ever runs."""


def collect_rarely() -> None:
    """From now on."""
    gc.set_threshold(*RARELY)


@contextmanager
def rarely_collected() -> Iterator[None]:
    """Within the block."""
    before = gc.get_threshold()
    collect_rarely()
    try:
        yield
    finally:
        gc.set_threshold(*before)
