"""Method names and the shapers they stand for.

`register` adds a method: every command then knows it, also in sums such as `ella+mine`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ella.errors import InputError, unknown_name
from ella.experiment.config import Settings
from ella.shaping.shaper import AbstractRewardShaper, NoShaping, Sum
from ella.world.tasks import TaskSpec


@dataclass(frozen=True)
class MethodContext:
    """What a method is built from."""

    task: TaskSpec
    settings: Settings
    say: Callable[[str], None]
    """Takes remarks, for example that an offline stage is under way."""


Builder = Callable[[MethodContext], AbstractRewardShaper]


def _ppo(context: MethodContext) -> AbstractRewardShaper:
    return NoShaping()


METHODS: dict[str, Builder] = {"ppo": _ppo}
"""By name."""


def register(name: str, builder: Builder) -> None:
    """Make a method known by name; '+' joins names and cannot be part of one."""
    if "+" in name or not name:
        raise InputError(f"'{name}' cannot be a method's name")
    if name in METHODS:
        raise InputError(f"a method named '{name}' exists; choose another name")
    METHODS[name] = builder


def check_method(method: str) -> tuple[str, ...]:
    """The names in a method, or an error with the nearest known ones."""
    names = tuple(method.split("+"))
    for name in names:
        if name not in METHODS:
            raise unknown_name("method", name, METHODS)
    if len(set(names)) < len(names):
        raise InputError(f"method '{method}' names a part twice")
    return names


def build_shaper(
    task: TaskSpec, settings: Settings, *, say: Callable[[str], None] = lambda line: None
) -> AbstractRewardShaper:
    """The shaper of the settings' method, its offline stage run or taken from the cache."""
    context = MethodContext(task, settings, say)
    parts = {name: METHODS[name](context) for name in check_method(settings.method)}
    return next(iter(parts.values())) if len(parts) == 1 else Sum(parts)
