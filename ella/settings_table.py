"""Frozen dataclasses of settings to JSON and back, with errors a person can act on."""

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from ella.errors import InputError, unknown_name

T = TypeVar("T")

NOT_WRITTEN = "not_written"
"""Marks a field that JSON leaves out."""


def to_json(value: Any) -> Any:
    """JSON values of a dataclass, nested ones as tables."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: to_json(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if not field.metadata.get(NOT_WRITTEN)
        }
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {key: to_json(item) for key, item in value.items()}
    return str(value) if isinstance(value, Path) else value


def updated(default: T, values: Any, *, where: str) -> T:
    """`default` with the fields that `values` (a JSON table) names; `where` is for errors."""
    if not isinstance(values, dict):
        raise InputError(f"{where}: expected a table of settings, found {values!r}")
    hints = typing.get_type_hints(type(default))
    changes = {}
    for name, value in values.items():
        if name not in hints:
            raise InputError(f"{where}: {unknown_name('setting', name, hints)}")
        current = getattr(default, name)
        if dataclasses.is_dataclass(current):
            changes[name] = updated(current, value, where=f"{where}: {name}")
        else:
            changes[name] = _checked(value, hints[name], f"{where}: {name}")
    return dataclasses.replace(default, **changes)  # type: ignore[type-var]


def merged(*tables: Mapping[str, Any]) -> dict[str, Any]:
    """Tables of tables as one; of values that several name, the last counts."""
    found: dict[str, Any] = {}
    for table in tables:
        for name, value in table.items():
            is_table = isinstance(value, Mapping)
            found[name] = merged(found.get(name, {}), value) if is_table else value
    return found


def flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A table of tables as one, names joined by dots."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def read_table(path: Path) -> dict[str, Any]:
    """The table in a JSON file."""
    try:
        table = json.loads(path.read_text())
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}") from error
    if not isinstance(table, dict):
        raise InputError(f"{path} does not hold a JSON table")
    return table


def _checked(value: Any, hint: Any, where: str) -> Any:
    """`value` as the type `hint` asks for, or an error."""
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _checked(value, options[0], where)
    if origin is typing.Literal:
        if value not in options:
            raise InputError(f"{where}: {unknown_name('choice', str(value), map(str, options))}")
        return value
    if origin in (typing.Union, types.UnionType):
        for option in options:
            try:
                return _checked(value, option, where)
            except InputError:
                continue
    elif hint is type(None) and value is None:
        return None
    elif origin is tuple and isinstance(value, list):
        inner = options[0] if options else Any
        return tuple(_checked(item, inner, where) for item in value)
    elif hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    elif hint is Path and isinstance(value, str):
        return Path(value)
    elif hint is Any or (
        isinstance(hint, type)
        and isinstance(value, hint)
        and not (hint is int and isinstance(value, bool))
    ):
        return value
    raise InputError(f"{where}: {value!r} is not {getattr(hint, '__name__', hint)}")
