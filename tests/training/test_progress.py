"""What training shows of itself in a program that handles no logs."""

import logging

import numpy as np

from ella.training.log_line import LogLine
from ella.training.progress import log_progress, progress_shown

LOGGER = logging.getLogger("ella")


def handle_no_logs(monkeypatch):
    """As in a program that has configured no logging."""
    monkeypatch.setattr(LOGGER, "handlers", [])
    monkeypatch.setattr(LOGGER, "propagate", False)


def line(frames: int) -> LogLine:
    return LogLine(frames, frames, 1.0, 1234.5, {"success_rate": np.array([0.25, 0.75])})


def test_progress_is_written_where_nothing_handles_logs(monkeypatch, capsys):
    handle_no_logs(monkeypatch)
    before = LOGGER.level
    log = log_progress(3)
    with progress_shown():
        for frames in (1, 2, 3):
            log(line(frames))
    # The second line came less than ten seconds after the first; the last is always logged.
    assert capsys.readouterr().err.splitlines() == [
        "1/3 frames a seed  1,234/s  success 50.0%",
        "3/3 frames a seed  1,234/s  success 50.0%",
    ]
    assert (LOGGER.handlers, LOGGER.level) == ([], before)


def test_progress_is_not_written_where_it_is_not_wanted_or_logs_are_handled(monkeypatch, capsys):
    handle_no_logs(monkeypatch)
    with progress_shown(False):
        log_progress(1)(line(1))
    LOGGER.addHandler(logging.NullHandler())
    with progress_shown():
        log_progress(1)(line(1))
    assert capsys.readouterr().err == ""
