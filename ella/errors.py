"""The one exception for things a user can put right."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


class InputError(ValueError):
    """Bad input from outside: a name, a size, a sentence, a file.

    Its message is one line that says what is wrong and what to do. The command
    line prints that line and exits with status 2.
    """


class OutOfMemoryError(InputError):
    """A computation that does not fit into the memory of the device or the host."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether Python or XLA found too little memory. XLA's error is recognised by its text, so
    that this needs no JAX."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" in str(error)
    )


def unknown_name(kind: str, name: str, known: Iterable[str], *, also: str = "") -> InputError:
    """An error for a name that is not in a list, with the nearest names that are. `also` says after
    the name what else it is not."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}"
    return InputError(f"unknown {kind} '{name}'{also}; {hint}")


@contextmanager
def writing_to(place: Path) -> Iterator[None]:
    """Turn what the file system refuses within the block into one line about the place that was
    named for the files."""
    try:
        yield
    except OSError as error:
        if error.strerror is None:
            raise
        raise InputError(f"cannot write to {place}: {error.strerror}") from error
