"""Compilation of programs that run only once."""

import os
from collections.abc import Callable
from typing import Any

import jax

OPTIMISATION_LEVEL = "xla_backend_optimization_level"


def jit_for_one_call(function: Callable[..., Any], **options: Any) -> jax.stages.Wrapped:
    """`jax.jit` for a function that is called once, such as the initialisation of networks.

    On a CPU, LLVM takes longer to optimise many small random draws fully than everything else
    about them takes, so it optimises less. A level in XLA_FLAGS is left as it is.
    """
    is_chosen = OPTIMISATION_LEVEL in os.environ.get("XLA_FLAGS", "")
    if jax.default_backend() == "cpu" and not is_chosen:
        options["compiler_options"] = {OPTIMISATION_LEVEL: 1}
    return jax.jit(function, **options)
