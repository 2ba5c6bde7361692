"""What training logs, shown to people whose program shows no logs."""

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ella.training.log_line import LogLine

SECONDS_BETWEEN_LINES = 10.0

logger = logging.getLogger("ella")


@contextmanager
def progress_shown(is_wanted: bool = True) -> Iterator[None]:
    """Write what the package logs to standard error during the block. A program that handles logs
    itself gets them as records only."""
    if not is_wanted or logger.hasHandlers():
        yield
        return
    handler, level = logging.StreamHandler(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def log_progress(total_frames: int) -> Callable[[LogLine], None]:
    """A function that logs log lines: the last, and others at least ten seconds apart."""
    before = -SECONDS_BETWEEN_LINES

    def log(line: LogLine) -> None:
        nonlocal before
        if line.frames >= total_frames or time.monotonic() - before >= SECONDS_BETWEEN_LINES:
            before = time.monotonic()
            success = line.mean("success_rate")
            logger.info(
                f"{line.frames:,}/{total_frames:,} frames a seed  {line.frames_per_second:,.0f}/s"
                + ("" if math.isnan(success) else f"  success {success:.1%}")
            )

    return log
