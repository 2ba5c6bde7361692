"""How results show methods: what `ella.methods` says of them. The report names none itself."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from ella.errors import InputError
from ella.methods.method import JOINER, Colour, Panels
from ella.methods.registry import all_methods, find
from ella.settings_table import flat, to_json
from ella.world import tasks


def baseline() -> str:
    """The method others are compared with unless another is named: the first of all."""
    return next(iter(all_methods()))


def method_label(method: str) -> str:
    """What results call a method or a sum of methods; its name where it is not installed here."""
    parts = method.split(JOINER)
    known = all_methods()
    if any(part not in known for part in parts):
        return method
    return f" {JOINER} ".join(_labels()[part] for part in parts)


def _labels() -> dict[str, str]:
    """Labels by method, without commas, after which settings are told; two methods that share one
    are told apart by their names."""
    labels = {name: method.label.replace(",", "") for name, method in all_methods().items()}
    shared = Counter(labels.values())
    return {n: f"{label} ({n})" if shared[label] > 1 else label for n, label in labels.items()}


def method_colours() -> dict[str, Colour]:
    """Colours by label, in the order in which methods are listed."""
    labels = _labels()
    return {labels[name]: one.colour for name, one in all_methods().items() if one.colour}


def panels_by_method() -> dict[str, Panels]:
    """What methods measure that is worth a figure."""
    return {name: method.panels for name, method in all_methods().items() if method.panels}


def panels_in_use(methods: Iterable[str]) -> dict[str, Panels]:
    """Those of the methods that take part in some run."""
    used = {part for method in methods for part in method.split(JOINER)}
    return {name: panels for name, panels in panels_by_method().items() if name in used}


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
