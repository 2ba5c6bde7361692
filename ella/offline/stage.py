"""How an offline stage runs: Ctrl-C ends it at once, and its progress is shown with an estimate."""

import logging
import shutil
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

WAIT = 0.1
"""Seconds between two looks for Ctrl-C."""
BAR_WIDTH = 24
LINES = 10
"""Log lines of a whole stage where there is no terminal."""
CLEAR_LINE = "\r\x1b[K"
CHANCE = 0.5
"""Balanced accuracy of guessing."""
BARELY_BETTER = 0.6
"""Balanced accuracy below which a classifier is warned of."""


def run_stage(work: Callable[[], Result]) -> Result:
    """What `work` returns. Compiled code cannot be interrupted, so it runs in a thread of its own,
    which Ctrl-C abandons; it ends at its next report of progress."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    worker = _Worker(work)
    try:
        worker.start()
        while worker.is_alive():
            worker.join(WAIT)
    except BaseException:
        worker.abandon()
        raise
    if worker.error is not None:
        raise worker.error
    return worker.result


class _Worker(threading.Thread):
    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(name="offline stage", daemon=True)
        self._work = work
        self._is_abandoned = False
        self.progress: AbstractStageProgress | None = None
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self._work()
        except BaseException as error:
            self.error = error

    def abandon(self) -> None:
        """Let nothing more be shown, and end at the next report."""
        self._is_abandoned = True
        if self.progress is not None:
            self.progress.close()

    def check(self) -> None:
        """End if nobody waits any more."""
        if self._is_abandoned:
            raise SystemExit


class AbstractStageProgress(ABC):
    """Shows how far a stage has come."""

    def __init__(self, what: str, unit: str) -> None:
        self._what, self._unit = what, unit
        self._began = (0, time.monotonic())
        self._is_first = True

    def __call__(self, done: int, total: int, text: str = "") -> None:
        """`done` of `total` are done; `text` tells what was found so far."""
        worker = threading.current_thread()
        if isinstance(worker, _Worker):
            worker.check()
        counts = f"{done:,}/{total:,} {self._unit}  left {self._time_left(done, total)}  {text}"
        if self._is_first and done:
            # The first part is compiled too: it says little about the rest.
            self._is_first, self._began = False, (done, time.monotonic())
        self.show(min(done / total, 1.0), counts.rstrip())

    def counting(self, total: int) -> Callable[[int], None]:
        """A function that adds what has been done since its last call."""
        done = 0

        def count(more: int) -> None:
            nonlocal done
            done += more
            self(done, total)

        return count

    @abstractmethod
    def show(self, share: float, text: str) -> None:
        """Put a report where people see it."""

    @abstractmethod
    def close(self) -> None:
        """Leave the terminal to others."""

    def _time_left(self, done: int, total: int) -> str:
        before, then = self._began
        if done <= before:
            return "?"
        seconds = int((total - done) * (time.monotonic() - then) / (done - before))
        return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


class StageBar(AbstractStageProgress):
    """One line of standard error, redrawn in place."""

    def show(self, share: float, text: str) -> None:
        full = round(BAR_WIDTH * share)
        line = f"{self._what} {'━' * full}{'╌' * (BAR_WIDTH - full)} {text}"
        sys.stderr.write(CLEAR_LINE + line[: shutil.get_terminal_size().columns - 1])
        sys.stderr.flush()

    def close(self) -> None:
        sys.stderr.write(CLEAR_LINE)
        sys.stderr.flush()


class StageLines(AbstractStageProgress):
    """A log line at the start and every tenth of the stage."""

    def __init__(self, what: str, unit: str) -> None:
        super().__init__(what, unit)
        self._logged = 0
        logger.info(what)

    def show(self, share: float, text: str) -> None:
        if int(LINES * share) > self._logged:
            self._logged = int(LINES * share)
            logger.info(text)

    def close(self) -> None:
        """Every line is whole."""


@contextmanager
def stage_progress(what: str, unit: str) -> Iterator[AbstractStageProgress]:
    """Shows progress in `unit`s while the block does `what`."""
    on_terminal = sys.stderr.isatty() and logger.isEnabledFor(logging.INFO)
    progress = StageBar(what, unit) if on_terminal else StageLines(what, unit)
    worker = threading.current_thread()
    if isinstance(worker, _Worker):
        worker.progress = progress
    if on_terminal:
        progress.show(0.0, "left ?")
    try:
        yield progress
    finally:
        progress.close()


def log_accuracy(what: str, accuracy: float, remedy: str) -> None:
    """Log a classifier's balanced accuracy on held-out examples; warn if it is near chance."""
    if accuracy >= BARELY_BETTER:
        logger.info(f"{what}: {accuracy:.1%} balanced accuracy on held-out examples")
        return
    logger.warning(
        f"{what}: {accuracy:.1%} balanced accuracy on held-out examples is barely better than "
        f"chance ({CHANCE:.0%}), so bonuses are close to noise; {remedy}"
    )
