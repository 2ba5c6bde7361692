"""Progress of runs that train together, as lines of text."""

import time

from ella.runs.log_sinks import AbstractLogSink, headline, print_progress
from ella.runs.planned_run import PlannedRun
from ella.training.log_line import LogLine
from ella.training.progress import SECONDS_BETWEEN_LINES


class ProgressLines(AbstractLogSink):
    """A line about a run every few seconds."""

    def __init__(self, planned: PlannedRun) -> None:
        self._planned = planned
        self._written = -SECONDS_BETWEEN_LINES

    def write(self, line: LogLine) -> None:
        finished = line.frames >= self._planned.settings.total_frames
        if not finished and time.monotonic() - self._written < SECONDS_BETWEEN_LINES:
            return
        self._written = time.monotonic()
        print_progress(
            f"{self._planned.directory.name}: "
            f"{line.frames:,}/{self._planned.settings.total_frames:,} frames a seed  "
            f"{line.frames_per_second:,.0f}/s in this program  {headline(line)}"
        )

    def close(self) -> None:
        """Every line is flushed when written."""
