"""Training settings on the command line: an option for every setting, on top of a preset."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ella.errors import InputError
from ella.methods.method import JOINER
from ella.methods.registry import all_methods
from ella.training.settings import PLAIN_FIELDS, TrainingSettings, from_table


def settings_sections() -> dict[str, Any]:
    """Every setting of training and of every method, with the values help shows."""
    methods = {name: method() for name, method in all_methods().items() if fields(method)}
    return {"": TrainingSettings(), **methods}


def with_options(settings: TrainingSettings, typed: Mapping[str, Any]) -> TrainingSettings:
    """The settings with what was typed; an option of a method that is not in use is refused."""
    in_use = settings.method.name.split(JOINER)
    for name in typed:
        if name not in PLAIN_FIELDS and name not in in_use:
            option = _first_option(name, typed[name])
            raise InputError(
                f"{option} is an option of method {name}, but the method is "
                f"{settings.method.name}; name it with --method, or leave the option out"
            )
    return from_table(typed, settings, where="options")


def _first_option(name: str, value: Any) -> str:
    while isinstance(value, Mapping):
        inner, value = next(iter(value.items()))
        name = f"{name}.{inner}"
    return f"--{name.replace('_', '-')}"
