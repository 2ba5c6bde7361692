"""A full disk without one, and little memory."""

import resource
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager


def files_of_at_most(size: int) -> AbstractContextManager[None]:
    """No file may grow beyond `size` bytes; what fits is written first, as on a full disk."""
    return _at_most(size, resource.RLIMIT_FSIZE)


def address_space_of_at_most(size: int) -> AbstractContextManager[None]:
    """More memory is refused at once, whatever the machine has and its kernel would promise."""
    return _at_most(size, resource.RLIMIT_AS)


@contextmanager
def _at_most(size: int, limit: int) -> Iterator[None]:
    before = resource.getrlimit(limit)
    resource.setrlimit(limit, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(limit, before)
