"""The command line: finds the sub-command, reads its arguments, turns errors into one line."""

import contextlib
import gc
import importlib
import io
import re
import sys
from collections.abc import Sequence
from typing import Any

from ella.errors import InputError, unknown_name

COMMANDS = {
    "tasks": "list the tasks",
    "show": "draw or film a task or a trained run",
    "play": "play a task with the keyboard",
    "train": "train agents",
    "eval": "measure a trained run on fresh levels",
    "offline": "learn from expert episodes of low-level tasks, ahead of training",
    "bound": "the largest bonus that keeps optimal policies optimal",
    "explain": "what a trained run calls relevant to an instruction",
    "report": "compare runs in a page and in figures",
    "reproduce": "train the runs of a figure of the paper and draw it",
    "bench": "measure frames a second",
    "demo": "train a small agent in a small room and film it",
}
"""Sub-commands in the order help shows them. `ella NAME` is the module `ella.commands.NAME`: a
frozen dataclass `Arguments`, and `run(arguments)` that returns an exit status or None. A module
that chooses its defaults by what was typed also has `defaults(words)`."""

_MODULES = {"eval": "evaluate"}

TRAIN_EXTRA = {"matplotlib", "orbax", "PIL", "rich", "tensorboard", "tyro"}
"""Packages that come with `pip install 'ella[train]'`; the world works without them."""

EXIT_BROKEN_PIPE = 128 + 13
"""As a shell reports a command that SIGPIPE ended."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the command in `words` (the process's own arguments by default)."""
    # Tracing allocates much that stays: looking through it for garbage takes time and finds little.
    gc.set_threshold(100_000, 50, 50)
    try:
        status = _answer(list(sys.argv[1:] if words is None else words))
        sys.stdout.flush()
        return status
    except InputError as error:
        print(f"ella: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in TRAIN_EXTRA:
            raise
        print(f"ella: {package} is not installed: pip install 'ella[train]'", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # Whoever read the output has seen enough.
        from ella.runs.log_sinks import silence

        silence(sys.stdout)
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
    except KeyboardInterrupt:
        print("ella: interrupted", file=sys.stderr)
        return 130


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
    import tyro

    module: Any = importlib.import_module(f"ella.commands.{_MODULES.get(name, name)}")
    options: dict[str, Any] = {}
    if hasattr(module, "defaults"):
        options["default"] = module.defaults(words)
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            arguments = tyro.cli(module.Arguments, prog=f"ella {name}", args=words, **options)
    except SystemExit as stop:
        if not stop.code:
            raise
        # A setting that was read but refused has a line of its own.
        refused = _input_error_behind(stop)
        raise refused or InputError(_one_line(complaint.getvalue(), name)) from None
    return int(module.run(arguments) or 0)


def _input_error_behind(error: BaseException | None) -> InputError | None:
    """The InputError that led to an exception, if one did."""
    while error is not None and not isinstance(error, InputError):
        error = error.__cause__ or error.__context__
    return error


def _one_line(complaint: str, name: str) -> str:
    """What the reader of arguments says in a box, as one line. Rules separate the box's parts; in
    a terminal without its characters the title is a part too."""
    rows = [line.strip("│| ") for line in complaint.splitlines() if line[:1] not in ("╭", "╰")]
    parts = re.split("[─-]{10,}", "\n".join(rows))
    wrong, *hints = parts if complaint.startswith("╭") or len(parts) == 1 else parts[1:]
    wrong = wrong.partition("Got errors:")[0].replace("(required)", "")
    wrong = " ".join(wrong.split()).removesuffix(".")
    near = [
        option
        for hint in hints
        if "Perhaps you meant" in hint
        for option in re.findall(r"^--[\w.-]+", hint, re.MULTILINE)
    ]
    suggestion = f"; did you mean {' or '.join(near)}?" if near else ";"
    return f"{wrong}{suggestion} see `ella {name} --help`"


def _usage() -> str:
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:{width}}  {text}" for name, text in COMMANDS.items())
    return f"usage: ella COMMAND [options]\n\n{rows}\n\n`ella COMMAND --help` lists its options."


if __name__ == "__main__":
    sys.exit(main())
