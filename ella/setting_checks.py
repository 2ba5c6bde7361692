"""Checks of settings. Values that are traced, as in a sweep under `vmap`, are not checked."""

import math
from typing import Any

from ella.errors import InputError


def require_at_least(settings: Any, least: float, *names: str) -> None:
    """Refuse values below `least`, and values that are not finite."""
    for name, value in _numbers(settings, names):
        if not least <= value < math.inf:
            raise InputError(f"{_place(settings, name)} must be >= {least:g}, got {value:g}")


def require_positive(settings: Any, *names: str) -> None:
    """Refuse values that are not above 0, or not finite."""
    for name, value in _numbers(settings, names):
        if not 0 < value < math.inf:
            raise InputError(f"{_place(settings, name)} must be > 0, got {value:g}")


def require_within(settings: Any, least: float, most: float, *names: str) -> None:
    """Refuse values outside [least, most]."""
    for name, value in _numbers(settings, names):
        if not least <= value <= most:
            raise InputError(
                f"{_place(settings, name)} must lie in [{least:g}, {most:g}], got {value:g}"
            )


def _numbers(settings: Any, names: tuple[str, ...]) -> list[tuple[str, float]]:
    values = [(name, getattr(settings, name)) for name in names]
    return [(name, value) for name, value in values if isinstance(value, (int, float))]


def _place(settings: Any, name: str) -> str:
    owner = getattr(settings, "name", None)
    return f"{owner}.{name}" if isinstance(owner, str) else name
