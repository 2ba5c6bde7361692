"""How results show methods: what `ella.methods` says of them. The report names none itself."""

from typing import Any

from ella.errors import InputError
from ella.methods.method import Colour, Panels
from ella.methods.registry import all_methods, find
from ella.settings_table import flat, to_json
from ella.world import tasks


def baseline() -> str:
    """The method others are compared with unless another is named: the first of all."""
    return next(iter(all_methods()))


def method_colours() -> dict[str, Colour]:
    """Colours by method, in the order in which methods are listed."""
    return {name: method.colour for name, method in all_methods().items() if method.colour}


def panels_by_method() -> dict[str, Panels]:
    """What methods measure that is worth a figure."""
    return {name: method.panels for name, method in all_methods().items() if method.panels}


def drawn_columns() -> tuple[str, ...]:
    """Every column that has a panel of its own."""
    return tuple(column.name for panels in panels_by_method().values() for column in panels.columns)


def is_default_of_task(name: str, value: Any, task: str) -> bool:
    """Whether a setting has a default that depends on the task, and `value` is that one: the same
    choice on every task, although the numbers differ."""
    section = name.partition(".")[0]
    try:
        method, spec = find(section)(), tasks.find(task)
        plain = flat({section: to_json(method)})
        resolved = flat({section: to_json(method.resolved(spec))})
    except InputError:
        return False
    return plain.get(name, value) is None and resolved.get(name) == value
