"""What is checked while tests run: shapes in annotations, and promotion of dtypes."""

import inspect
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, get_args

import beartype
import jax
import optax
from jaxtyping import AbstractArray


def checked(function: Callable) -> Callable:
    """What `jaxtyping.install_import_hook` applies to every function and dataclass it sees.

    Arrays are checked. Everything else is left to mypy, and to the function itself, which may
    have an error of its own for a wrong value.

    JAX calls `__init__` of a registered dataclass whenever it rebuilds one from leaves, which may
    have further axes or be no arrays at all. So fields are checked only where our own code, while
    it is traced, makes the object.
    """
    hints = function.__annotations__
    if not any(map(_names_an_array, hints.values())):
        return function
    function.__annotations__ = {
        name: hint if _names_an_array(hint) else Any for name, hint in hints.items()
    }
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


def _names_an_array(hint: Any) -> bool:
    if inspect.isclass(hint) and issubclass(hint, AbstractArray | jax.Array):
        return True
    return any(map(_names_an_array, get_args(hint)))


def forbid_promotion() -> None:
    """Make implicit promotion of dtypes an error, except in Optax, which raises decay rates to the
    power of a step count."""
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    original = optax.tree.bias_correction

    @wraps(original)
    def bias_correction(*args: Any, **kwargs: Any) -> Any:
        with jax.numpy_dtype_promotion("standard"):
            return original(*args, **kwargs)

    optax.tree.bias_correction = bias_correction
