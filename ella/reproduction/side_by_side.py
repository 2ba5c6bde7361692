"""Training many runs on this machine, several programs at a time, each in a process of its own."""

import logging
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from ella.errors import InputError
from ella.reproduction.local_launcher import seed_frames_left
from ella.runs.planned_run import PlannedRun
from ella.runs.progress_lines import ProgressLines
from ella.runs.run_result import Outcome, RunResult
from ella.runs.stop_signals import stop_signals
from ella.runs.training_run import train_runs

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.5
PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"
"""Whether a process takes most of a GPU's memory at once, which leaves the others too little."""
Answer = list[RunResult] | str
"""The last message of a process: results, or an error in one line."""
LogRecord = tuple[int, str]
"""The messages before: level and text of what it logs."""


@dataclass(frozen=True)
class _Program:
    name: str
    group: Sequence[PlannedRun]
    process: BaseProcess
    messages: Connection


def train_side_by_side(
    groups: Sequence[Sequence[PlannedRun]], *, at_most: int, command: Sequence[str]
) -> list[RunResult]:
    """Train groups on this machine's devices, `at_most` at a time, the longest first; each is
    resumed where it stands.

    Ctrl-C saves and ends all of them. A program that fails does not end the others; it is an error
    once they are done.
    """
    os.environ.setdefault(PREALLOCATE, "false")
    _hint_at_sharing()
    waiting = sorted(groups, key=_frames_left)
    running: list[_Program] = []
    results: list[RunResult] = []
    failures: list[str] = []
    is_stopping = False
    try:
        with stop_signals() as stop:
            while running or (waiting and not is_stopping):
                while waiting and len(running) < at_most and not is_stopping:
                    name = f"program {len(groups) - len(waiting) + 1} of {len(groups)}"
                    running.append(_started(name, waiting.pop(), command))
                ready = wait([one.messages for one in running], timeout=POLL_SECONDS)
                for one in [one for one in running if one.messages in ready]:
                    message = _received(one)
                    if isinstance(message, tuple):
                        logger.log(message[0], "%s: %s", one.name, message[1])
                        continue
                    running.remove(one)
                    one.process.join()
                    if isinstance(message, str):
                        failures.append(f"{one.name}: {message}")
                        logger.warning(failures[-1])
                    else:
                        results += message
                if not is_stopping and (stop() or _is_interrupted(results)):
                    is_stopping = True
                    for one in running:
                        one.process.terminate()
    finally:
        for one in running:
            one.process.kill()
            one.process.join()
    if is_stopping and not _is_interrupted(results):
        # Stopped between two programs, or before one had begun.
        left = [planned for group in waiting for planned in group] or [groups[-1][0]]
        results += [RunResult(Outcome.INTERRUPTED, one.directory, 0, 0, None) for one in left]
    elif failures:
        raise InputError(f"{failures[0]}; the same command resumes what is left")
    return results


def _frames_left(group: Sequence[PlannedRun]) -> int:
    return sum(seed_frames_left(planned) for planned in group)


def _is_interrupted(results: Sequence[RunResult]) -> bool:
    return any(result.outcome == Outcome.INTERRUPTED for result in results)


def _hint_at_sharing() -> None:
    """Log how programs can share a GPU at once, where they would take turns."""
    pipes = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
    if shutil.which("nvidia-smi") and not pipes.exists():
        logger.info(
            "programs will take turns on a GPU; started before, NVIDIA's multi-process service "
            "lets them run at once: nvidia-cuda-mps-control -d"
        )


def _started(name: str, group: Sequence[PlannedRun], command: Sequence[str]) -> _Program:
    logger.info("%s: %s", name, ", ".join(planned.directory.name for planned in group))
    # A forked process could not use JAX's threads.
    context = multiprocessing.get_context("spawn")
    messages, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_train, args=(list(group), list(command), theirs))
    # Until it is in a process group of its own, Ctrl-C would end it in the middle of its imports.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    process.start()
    signal.signal(signal.SIGINT, before)
    theirs.close()
    return _Program(name, group, process, messages)


def _received(program: _Program) -> LogRecord | Answer:
    """The next message of a process, or what its end without an answer means."""
    try:
        message: LogRecord | Answer = program.messages.recv()
    except EOFError:
        program.process.join()
        status = program.process.exitcode or 0
        if status == -signal.SIGTERM:
            # Nothing was to be saved yet.
            return [
                RunResult(Outcome.INTERRUPTED, planned.directory, 0, 0, None)
                for planned in program.group
            ]
        how = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
        return f"ended before it was done ({how})"
    return message


class _ToParent(logging.Handler):
    """Sends a process's log records to the one that started it."""

    def __init__(self, messages: Connection) -> None:
        super().__init__(logging.INFO)
        self._messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        # A parent that was killed reads nothing.
        with suppress(OSError):
            self._messages.send((record.levelno, record.getMessage()))


def _train(group: Sequence[PlannedRun], command: Sequence[str], messages: Connection) -> None:
    """In a process of its own: start, or resume from the newest checkpoint."""
    # Ctrl-C is the parent's, which passes it on once.
    os.setpgid(0, 0)
    threading.Thread(target=_stop_without_parent, daemon=True).start()
    package, to_parent = logging.getLogger("ella"), _ToParent(messages)
    package.addHandler(to_parent)
    package.setLevel(logging.INFO)
    package.propagate = False
    answer: Answer
    try:
        answer = train_runs(
            group, resume=True, sinks=lambda planned: [ProgressLines(planned)], command=command
        )
    except (InputError, OSError) as error:
        answer = str(error)
    # Nothing is logged after the answer, nor in the middle of it.
    to_parent.acquire()
    with suppress(OSError):
        messages.send(answer)
    # Python would wait for threads that still compile.
    os._exit(0)


def _stop_without_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
