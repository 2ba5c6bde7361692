"""Signals that ask a process to stop."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any


@contextmanager
def stop_signals(*, at_once: bool = False) -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C, SIGTERM or loss of the terminal into a wish to stop; a second one
    stops at once, and so does the first where nothing would be saved (`at_once`). Stopped at once,
    the block raises KeyboardInterrupt."""
    asked = at_once
    is_stopped = False

    def ask(number: int, frame: Any) -> None:
        nonlocal asked, is_stopped
        if asked:
            is_stopped = True
            raise KeyboardInterrupt
        asked = True
        with suppress(OSError):
            sys.stderr.write("stopping after this log line; once more stops at once\n")

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup leaves it
        numbers.append(signal.SIGHUP)
    try:
        before = {number: signal.signal(number, ask) for number in numbers}
    except ValueError:  # not the main thread: signals are someone else's
        yield lambda: False
        return
    try:
        yield lambda: asked
    except Exception as error:
        # Libraries that the signal found in a callback raise errors of their own.
        if is_stopped:
            raise KeyboardInterrupt from error
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
