"""Killing a process that trains a run."""

import os
import signal
import time
from pathlib import Path

from ella.runs.directory import LOCK_FILE


def trainer(directory: Path) -> int:
    """The process that trains, or trained last, in a run's directory."""
    return int((directory / LOCK_FILE).read_text().split()[1])


def kill_once_saved(directory: Path, killed: list[int]) -> None:
    """Kill the process that trains in `directory` as soon as it has a checkpoint to resume from."""
    while not list((directory / "checkpoints").glob("0*")):
        time.sleep(0.01)
    number = trainer(directory)
    os.kill(number, signal.SIGKILL)
    killed.append(number)
