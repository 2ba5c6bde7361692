"""Checks of settings. Values that are traced, as in a sweep under `vmap`, are not checked.

Errors name a field after the name of its settings, `of` or their own attribute `name`.
"""

import math
from numbers import Real
from typing import Any

from ella.errors import InputError


def require_at_least(settings: Any, least: float, *names: str, of: str = "") -> None:
    """Refuse values below `least`, and values that are not finite."""
    for name, value in _numbers(settings, names):
        if not least <= value < math.inf:
            raise _refusal(settings, of, name, f"be >= {least:g}" + _finite(value), value)


def require_positive(settings: Any, *names: str, of: str = "") -> None:
    """Refuse values that are not above 0, or not finite."""
    for name, value in _numbers(settings, names):
        if not 0 < value < math.inf:
            raise _refusal(settings, of, name, "be > 0" + _finite(value), value)


def require_within(settings: Any, least: float, most: float, *names: str, of: str = "") -> None:
    """Refuse values outside [least, most]."""
    for name, value in _numbers(settings, names):
        if not least <= value <= most:
            raise _refusal(settings, of, name, f"lie in [{least:g}, {most:g}]", value)


def _numbers(settings: Any, names: tuple[str, ...]) -> list[tuple[str, Any]]:
    values = [(name, getattr(settings, name)) for name in names]
    return [(name, value) for name, value in values if isinstance(value, Real)]


def _refusal(settings: Any, of: str, name: str, demand: str, value: Any) -> InputError:
    place = f"{of} {name}" if of else _place(settings, name)
    return InputError(f"{place} must {demand}, got {value:g}")


def _finite(value: Any) -> str:
    return " and finite" if value == math.inf else ""


def _place(settings: Any, name: str) -> str:
    owner = getattr(settings, "name", None)
    return f"{owner}.{name}" if isinstance(owner, str) else name
