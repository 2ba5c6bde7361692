"""What a run makes of signals that ask it to stop."""

import signal

import pytest

from ella.runs.stop_signals import stop_signals


def test_the_loss_of_the_terminal_asks_a_run_to_stop_unless_it_is_ignored(capfd):
    before = signal.getsignal(signal.SIGHUP)
    try:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with stop_signals() as stop:
            assert not stop()
            signal.raise_signal(signal.SIGHUP)
            assert stop()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with stop_signals() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert "stopping" in capfd.readouterr().err


def test_a_stop_at_once_is_an_interrupt_whatever_a_library_makes_of_it():
    def library(error: Exception) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise error from None

    with pytest.raises(KeyboardInterrupt), stop_signals(at_once=True):
        library(RuntimeError("INTERNAL: callback failed"))
    with pytest.raises(ValueError, match="its own"), stop_signals(at_once=True):
        raise ValueError("its own")
