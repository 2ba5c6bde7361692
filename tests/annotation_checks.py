"""Checking annotations at run time, shapes included."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import beartype
import jax


def checked(function: Callable) -> Callable:
    """What `jaxtyping.install_import_hook` applies to every function and dataclass of the package.

    JAX calls `__init__` of a registered dataclass whenever it rebuilds one from leaves, which may
    have further axes or be no arrays at all. So fields are checked only where our own code, while
    it is traced, makes the object.
    """
    check = beartype.beartype(function)
    if function.__name__ != "__init__":
        return check

    @wraps(check)
    def check_fields(*args: Any, **kwargs: Any) -> None:
        caller = sys._getframe(3).f_globals["__name__"]  # beyond two frames of jaxtyping's
        values = [*args, *kwargs.values()]
        is_traced = any(isinstance(value, jax.core.Tracer) for value in values)
        if is_traced and not caller.startswith("jax."):
            check(*args, **kwargs)

    return check_fields
