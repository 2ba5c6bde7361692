"""Command-line options from dataclasses: every field is an option, its docstring the help text.

Only what was typed is reported, so that a command can start from any preset or file and apply the
typed values on top.
"""

import argparse
import ast
import difflib
import inspect
import itertools
import shutil
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from ella.errors import InputError
from ella.training.settings import NO_OPTION

Arguments = TypeVar("Arguments")

HELP_COLUMN, WIDEST = 32, 100
NONE = "none"
"""Typed for an option that may be left open."""


@dataclass(frozen=True)
class Positional:
    """Marks a field (`Annotated[str, Positional("TASK")]`) that is typed without its name."""

    metavar: str


def parse(
    arguments: type[Arguments],
    words: Sequence[str],
    *,
    prog: str,
    sections: Mapping[str, Any] | None = None,
) -> tuple[Arguments, dict[str, Any]]:
    """A command's own arguments, and the typed settings as a table of tables.

    Args:
        arguments: The dataclass of the command's own arguments.
        words: What was typed after the command.
        prog: The command, for help and errors.
        sections: Dataclass instances by the first part of their options' names ("" for none);
            nested dataclasses become dotted names. Their values are the defaults help shows.
    """
    parser = _Parser(prog=prog, description=_summary(arguments))
    own = parser.add_argument_group("arguments")
    own.add_argument("-h", "--help", action="help", help="show this text and exit")
    hints, docs = _hints(arguments), _docs(arguments)
    required: dict[str, str] = {}
    for one in fields(arguments):  # type: ignore[arg-type]
        default = one.default if one.default_factory is MISSING else one.default_factory()
        name = _add(own, one.name, hints[one.name], docs.get(one.name, ""), default)
        if default is MISSING:
            required[one.name] = name
    for prefix, settings in (sections or {}).items():
        _add_section(parser, prefix, settings)
    typed = parser.typed(words)
    for name, shown in required.items():
        if name not in typed:
            parser.error(f"{shown} is missing")
    own_names = {one.name for one in fields(arguments)}  # type: ignore[arg-type]
    table: dict[str, Any] = {}
    for name in typed.keys() - own_names:
        *path, last = name.split(".")
        inner = table
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = typed[name]
    own_values = {name: typed[name] for name in typed.keys() & own_names}
    for name, value in own_values.items():
        own_values[name] = tuple(value) if isinstance(value, list) else value
    return arguments(**own_values), table


class _Parser(argparse.ArgumentParser):
    def __init__(self, **options: Any) -> None:
        super().__init__(
            add_help=False,
            allow_abbrev=False,
            formatter_class=_Formatter,
            argument_default=argparse.SUPPRESS,
            **options,
        )

    def typed(self, words: Sequence[str]) -> dict[str, Any]:
        """Values by name."""
        found, unknown = self.parse_known_args(list(words))
        if unknown:
            self._refuse(unknown)
        return vars(found)

    def print_help(self, file: Any = None) -> None:
        # Not argparse's own, which ignores that nobody reads any more.
        (file or sys.stdout).write(self.format_help())

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; see `{self.prog} --help`")

    def _refuse(self, words: Sequence[str]) -> NoReturn:
        wrong = next((word for word in words if word.startswith("-")), words[0])
        flag = wrong.partition("=")[0]
        if not flag.startswith("-"):
            self.error(f"unexpected argument '{wrong}'")
        known = [option for action in self._actions for option in action.option_strings]
        near = difflib.get_close_matches(_dashed(flag), known, n=2, cutoff=0.6)
        if near:
            flag = f"{flag}; did you mean {' or '.join(near)}?"
            raise InputError(f"unknown option {flag} see `{self.prog} --help`")
        self.error(f"unknown option {flag}")


class _Formatter(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        width = min(shutil.get_terminal_size().columns, WIDEST)
        super().__init__(prog, max_help_position=HELP_COLUMN, width=width)

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any = None) -> None:
        names = [str(action.metavar) for action in actions if not action.option_strings]
        super().add_usage(" ".join([self._prog, *names, "[options]"]), actions, groups, prefix)


class _Switch(argparse.Action):
    """A flag that is on or, with "no-" before its last part, off."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        options.pop("type"), options.pop("metavar")
        super().__init__(option_strings, dest, **{**options, "nargs": 0})

    def __call__(self, parser: Any, namespace: Any, values: Any, option: Any = None) -> None:
        setattr(namespace, self.dest, option == self.option_strings[0])


def _add_section(parser: argparse.ArgumentParser, prefix: str, settings: Any) -> None:
    kind = type(settings)
    hints, docs = _hints(kind), _docs(kind)
    group = parser.add_argument_group(prefix or "settings", _summary(kind))
    for one in fields(settings):
        if one.metadata.get(NO_OPTION):
            continue
        value, name = getattr(settings, one.name), f"{prefix}.{one.name}".removeprefix(".")
        if is_dataclass(value):
            _add_section(parser, name, value)
        else:
            _add(group, name, hints[one.name], docs.get(one.name, ""), value)


def _add(group: Any, name: str, hint: Any, doc: str, default: Any) -> str:
    """One field as one option; what people call it."""
    marker = next(
        (one for one in getattr(hint, "__metadata__", ()) if isinstance(one, Positional)), None
    )
    hint = typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint
    text = " ".join(doc.split())
    if default is not MISSING and default not in ("", (), None):
        text += f" [{_written(default)}]"
    count, item = _repetition(hint)
    flag = f"--{_dashed(name)}"
    shown = marker.metavar if marker else flag
    options: dict[str, Any] = {
        "help": text.replace("%", "%%"),
        "type": _reader(item, shown),
        "metavar": marker.metavar if marker else _metavar(item),
        "nargs": count,
    }
    if marker is not None:
        # A positional that is missing has a line of its own.
        group.add_argument(name, **{**options, "nargs": count or "?"})
    elif hint is bool:
        start, _, last = flag.rpartition(".")
        off = f"{start}.no-{last}" if start else f"--no-{flag[2:]}"
        group.add_argument(flag, off, action=_Switch, dest=name, **options)
    else:
        group.add_argument(flag, dest=name, **options)
    return shown


def _reader(hint: Any, shown: str) -> Callable[[str], Any]:
    """Reads one word as a value of the type."""

    def read(word: str) -> Any:
        try:
            return _value(word, hint)
        except (ValueError, OverflowError):
            raise argparse.ArgumentTypeError(f"'{word}' is not {_expected(hint)}") from None

    return read


def _value(word: str, hint: Any) -> Any:
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if type(None) in options and word.lower() == NONE:
            return None
        return _value(word, next(option for option in options if option is not type(None)))
    if origin is typing.Literal:
        if word not in options:
            raise ValueError
        return word
    if hint is int:
        number = float(word)
        if not word.replace("_", "").lstrip("+-").isdecimal() and number != int(number):
            raise ValueError
        return int(word) if word.replace("_", "").lstrip("+-").isdecimal() else int(number)
    if hint is Path and not word:
        raise ValueError
    return hint(word)


def _expected(hint: Any) -> str:
    options = [option for option in typing.get_args(hint) if option is not type(None)]
    if typing.get_origin(hint) is typing.Literal:
        return f"one of {', '.join(options)}"
    if options:
        return _expected(options[0])
    return {int: "a whole number", float: "a number"}.get(hint, f"a {_metavar(hint).lower()}")


def _metavar(hint: Any) -> str:
    options = [option for option in typing.get_args(hint) if option is not type(None)]
    if typing.get_origin(hint) is typing.Literal:
        return "|".join(options)
    if options:
        return _metavar(options[0])
    return {int: "N", float: "X", str: "TEXT", Path: "PATH"}.get(hint, "VALUE")


def _repetition(hint: Any) -> tuple[int | str | None, Any]:
    """How many words an option takes, and the type of each."""
    if typing.get_origin(hint) is not tuple:
        return None, hint
    items = typing.get_args(hint)
    return ("*" if items[-1] is Ellipsis else len(items)), items[0]


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else str(value)


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _summary(kind: type) -> str:
    return " ".join((inspect.getdoc(kind) or "").split())


def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def _docs(kind: type) -> dict[str, str]:
    """The strings below the fields of a dataclass and of those it inherits from."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        if not is_dataclass(one):
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(one)))
        except (OSError, TypeError):  # defined where there is no source
            continue
        body = tree.body[0].body  # type: ignore[attr-defined]
        for field_, after in itertools.pairwise(body):
            if (
                isinstance(field_, ast.AnnAssign)
                and isinstance(field_.target, ast.Name)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
            ):
                found[field_.target.id] = str(after.value.value)
    return found
