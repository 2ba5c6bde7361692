"""ELLA: reward shaping through learned language abstraction, on a JAX-native BabyAI."""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ella import world
    from ella.world import make

__all__ = ["__version__", "make", "world"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`ella.world` and `ella.make` are loaded when first used, so `import ella` starts no JAX."""
    if name == "world":
        return importlib.import_module("ella.world")
    if name == "make":
        return importlib.import_module("ella.world").make
    raise AttributeError(f"module 'ella' has no attribute '{name}'")


if importlib.util.find_spec("gymnasium") is not None:
    from ella.adapters.gymnasium_registration import register_all

    register_all()
