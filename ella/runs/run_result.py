"""How the training of a run ended."""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from ella.training.log_line import LogLine


class Outcome(Enum):
    """How a call of `train_run` ended."""

    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    """By Ctrl-C, SIGTERM or loss of the terminal; the run is saved and can be resumed."""
    DIVERGED = "diverged"
    """A measurement was not finite; the last good checkpoint is kept."""


@dataclass(frozen=True)
class RunResult:
    """What a call of `train_run` leaves behind."""

    outcome: Outcome
    directory: Path
    iteration: int
    frames: int
    """By each seed."""
    last: LogLine | None
    """The last log line of this call."""
