"""How an offline stage runs: interrupted at once, shown on a terminal, logged elsewhere."""

import logging
import os
import signal
import threading

import pytest
from pseudo_terminal import pseudo_terminal

from ella.errors import InputError
from ella.offline.stage import log_accuracy, run_stage, stage_progress


def test_a_stage_gives_its_result_or_its_error():
    assert run_stage(lambda: 7) == 7

    def fail():
        raise InputError("too few examples")

    with pytest.raises(InputError, match="too few examples"):
        run_stage(fail)


def test_the_first_ctrl_c_ends_a_stage_that_never_looks_up(monkeypatch, caplog):
    """As compiled code: the stage returns to Python only after the interruption."""
    released, ended = threading.Event(), threading.Event()

    def work():
        try:
            with stage_progress("counting", "sheep") as shown:
                shown(1, 10)
                os.kill(os.getpid(), signal.SIGINT)
                released.wait(60)
                shown(2, 10)
                released.clear()  # Must not be reached: nobody waits for it.
        finally:
            ended.set()

    # A shell's background jobs ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with pseudo_terminal() as terminal:
        monkeypatch.setattr("sys.stderr", terminal.screen)
        monkeypatch.setenv("COLUMNS", "120")
        caplog.set_level(logging.INFO, "ella")
        with pytest.raises(KeyboardInterrupt):
            run_stage(work)
        signal.signal(signal.SIGINT, before)
        assert not ended.is_set()
        released.set()
        assert ended.wait(60)
        assert released.is_set()
        shown = terminal.text()
    assert "1/10 sheep" in shown
    assert "2/10" not in shown
    # The line is left to others.
    assert shown.endswith("\r\x1b[K")


def test_a_terminal_shows_a_bar_with_an_estimate(monkeypatch, caplog):
    with pseudo_terminal() as terminal:
        monkeypatch.setattr("sys.stderr", terminal.screen)
        monkeypatch.setenv("COLUMNS", "120")
        caplog.set_level(logging.INFO, "ella")
        with stage_progress("training", "steps") as shown:
            shown(250, 1000, "accuracy 70 %")
            shown(500, 1000, "accuracy 90 %")
        drawn = terminal.text().split("\r\x1b[K")
    lines = [line for line in drawn if line]
    assert lines[0] == f"training {'╌' * 24} left ?"
    assert lines[-1].startswith(f"training {'━' * 12}{'╌' * 12} 500/1,000 steps  left 0:00:00")
    assert lines[-1].endswith("accuracy 90 %")
    assert max(map(len, lines)) < 120


def test_elsewhere_every_tenth_is_logged(caplog):
    caplog.set_level(logging.INFO, "ella")
    with stage_progress("training the classifier", "steps") as shown:
        count = shown.counting(1000)
        for _ in range(100):
            count(10)
    assert caplog.messages[0] == "training the classifier"
    assert [line.split()[0] for line in caplog.messages[1:]] == [
        f"{hundreds * 100:,}/1,000" for hundreds in range(1, 11)
    ]


@pytest.mark.parametrize(("accuracy", "warned"), [(0.52, True), (0.88, False)])
def test_accuracy_barely_better_than_chance_is_warned_of(caplog, accuracy, warned):
    caplog.set_level(logging.INFO, "ella")
    log_accuracy("classifier of goto-room", accuracy, "train longer")
    (record,) = caplog.records
    assert (record.levelno == logging.WARNING) == warned
    assert f"{accuracy:.1%} balanced accuracy" in record.getMessage()
    assert ("train longer" in record.getMessage()) == warned
