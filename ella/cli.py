"""The command line: finds the sub-command, reads its arguments, turns errors into one line."""

import contextlib
import importlib
import logging
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any

from ella.commands.exit_statuses import EXIT_BROKEN_PIPE, EXIT_INTERRUPTED
from ella.commands.options import parse
from ella.commands.plain_output import write_what_can_be_shown
from ella.errors import InputError, is_out_of_memory, unknown_name
from ella.garbage_collection import collect_rarely

COMMANDS = {
    "tasks": "list the tasks",
    "agents": "list the trained agents that come with the package",
    "show": "record a video of a task, of a trained run or of an agent",
    "play": "play a task with the keyboard",
    "studio": "watch an agent step by step in a local web page, and take over",
    "train": "train agents",
    "eval": "measure a trained run on fresh levels",
    "offline": "learn from expert episodes of low-level tasks, ahead of training",
    "demos": "write expert demonstrations as a Minari dataset",
    "bound": "the bonus below which no failure returns as much as a success",
    "explain": "what a trained run calls relevant to an instruction",
    "export": "a trained run's agent as a small folder with a card",
    "report": "compare runs in a page and in figures",
    "reproduce": "train the runs of a figure of the paper and draw it",
    "bench": "measure frames a second",
    "demo": "train ELLA beside PPO on a small task and show what it learned",
}
"""Sub-commands in the order help shows them. `ella NAME` is the module `ella.commands.NAME`: a
frozen dataclass `Arguments`, and `run(arguments)` that returns an exit status or None. A module
with options for settings also has `sections()`, and its `run` takes what was typed of them. Modules
import what starts JAX inside `run`, so that help appears at once."""

_MODULES = {"eval": "evaluate"}

TRAIN_EXTRA = {"matplotlib", "PIL", "rich"}
"""Packages of the extra `train`; the world works without them."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the command in `words` (the process's own arguments by default)."""
    collect_rarely()
    write_what_can_be_shown()
    _log_to_standard_error()
    status = _status(list(sys.argv[1:] if words is None else words))
    if words is None and (status == EXIT_INTERRUPTED or (status and _is_compiling())):
        # What can be saved is saved; JAX would wait for compiled code that is still running, and
        # Python for threads that still compile.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status


def _is_compiling() -> bool:
    """Whether threads are left that the interpreter would wait for."""
    others = set(threading.enumerate()) - {threading.main_thread()}
    return any(not thread.daemon for thread in others)


def _status(words: list[str]) -> int:
    """The exit status of a command; what went wrong becomes one line."""
    try:
        status = _answer(words)
        sys.stdout.flush()
        return status
    except InputError as error:
        print(f"ella: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in TRAIN_EXTRA:
            raise
        remedy = "install the extra 'train' (in the clone: pip install -e '.[train]')"
        print(f"ella: {package} is not installed; {remedy}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # Nobody reads the output any more, nor what the stream still holds.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        return EXIT_BROKEN_PIPE
    except SystemExit as stop:
        # What Rich makes of the same.
        if isinstance(stop.__context__, BrokenPipeError):
            return EXIT_BROKEN_PIPE
        raise
    except OSError as error:
        if error.errno is None:
            raise
        place = f"{error.filename}: " if error.filename else ""
        print(f"ella: {place}{error.strerror}", file=sys.stderr)
        return 2
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        print("ella: out of memory; choose smaller sizes (see --help)", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("ella: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


class _PlainFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        level = "warning: " if record.levelno >= logging.WARNING else ""
        return level + record.getMessage()


class _StandardError(logging.Handler):
    """Writes to whatever standard error is at the moment."""

    def emit(self, record: logging.LogRecord) -> None:
        # A terminal that is gone must not stop training.
        with contextlib.suppress(OSError):
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()


def _log_to_standard_error() -> None:
    logger = logging.getLogger("ella")
    if not any(isinstance(handler, _StandardError) for handler in logger.handlers):
        handler = _StandardError()
        handler.setFormatter(_PlainFormatter())
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def _answer(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(_usage())
        return 0 if words else 2
    if words[0] == "--version":
        from ella import __version__

        print(f"ella {__version__}")
        return 0
    return _call(words[0], words[1:])


def _call(name: str, words: list[str]) -> int:
    if name not in COMMANDS:
        raise unknown_name("command", name, COMMANDS)
    module: Any = importlib.import_module(f"ella.commands.{_MODULES.get(name, name)}")
    sections = module.sections() if hasattr(module, "sections") else {}
    try:
        arguments, typed = parse(module.Arguments, words, prog=f"ella {name}", sections=sections)
    except SystemExit:  # help was shown
        return 0
    status = module.run(arguments, typed) if sections else module.run(arguments)
    return int(status or 0)


def _usage() -> str:
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:{width}}  {text}" for name, text in COMMANDS.items())
    return f"usage: ella COMMAND [options]\n\n{rows}\n\n`ella COMMAND --help` lists its options."


if __name__ == "__main__":
    sys.exit(main())
