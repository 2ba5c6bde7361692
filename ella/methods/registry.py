"""Methods by name: those of this package, of installed packages, and of the running program.

Every module of `ella.methods` may define methods; `@register` makes them known. An installed
package offers one by an entry point of the group `ella.methods` that names its class.
"""

import importlib
import pkgutil
from dataclasses import fields
from functools import cache
from importlib.metadata import entry_points
from typing import TypeVar

import ella.methods
from ella.errors import InputError, unknown_name
from ella.methods.method import JOINER, Method, MethodSum

PLUGINS = "ella.methods"
"""The group of entry points in which packages offer methods."""

RESERVED = (
    "method",
    "seeds",
    "frames",
    "until",
    "seed",
    "devices",
    "also",
    "start_from",
    "ppo",
    "curriculum",
    "log",
    "task",
    "format_version",
    "low_level_task",
    "named_tasks",
)
"""Tables and values that config.json has beside those of methods."""

_METHODS: dict[str, type[Method]] = {}

SomeMethod = TypeVar("SomeMethod", bound=type[Method])


def register(method: SomeMethod) -> SomeMethod:
    """Make a method known by name, on the command line too. A class decorator."""
    name = getattr(method, "name", "")
    if not name or JOINER in name:
        raise InputError(f"'{name}' cannot be a method's name")
    if name in RESERVED and fields(method):
        raise InputError(f"'{name}' names other settings; choose another name for the method")
    known = _METHODS.get(name)
    if known is not None and known.__module__ != method.__module__:
        raise InputError(f"a method named '{name}' exists; choose another name")
    _METHODS[name] = method
    return method


def all_methods() -> dict[str, type[Method]]:
    """Every method by name, in the order in which results list them."""
    _load()
    return dict(sorted(_METHODS.items(), key=lambda item: (item[1].order, item[0])))


def find(name: str) -> type[Method]:
    """The method of that name, or an error with the nearest names."""
    _load()
    if name not in _METHODS:
        raise unknown_name("method", name, _METHODS)
    return _METHODS[name]


def classes_of(method: str) -> dict[str, type[Method]]:
    """The methods in a name such as `ella` or `ella+ride`."""
    names = method.split(JOINER)
    if method and "" in names:
        raise InputError(f"method '{method}' lacks a name beside '{JOINER}'")
    if len(set(names)) < len(names):
        raise InputError(f"method '{method}' names a part twice")
    return {name: find(name) for name in names}


def summed(parts: tuple[Method, ...]) -> Method:
    """One method, or the sum of several."""
    return parts[0] if len(parts) == 1 else MethodSum(parts)


@cache
def _load() -> None:
    for module in pkgutil.iter_modules(ella.methods.__path__):
        importlib.import_module(f"{ella.methods.__name__}.{module.name}")
    for point in entry_points(group=PLUGINS):
        found = point.load()
        if not (isinstance(found, type) and issubclass(found, Method)):
            raise InputError(
                f"entry point '{point.name}' of group {PLUGINS} must name a subclass of "
                f"ella.Method, got {point.value}"
            )
        if getattr(found, "name", None) != point.name:
            raise InputError(
                f"entry point '{point.name}' of group {PLUGINS} names a method called "
                f"'{getattr(found, 'name', '')}'; use one name"
            )
        register(found)
