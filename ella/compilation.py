"""How programs are compiled: those that run once or a few times, and training."""

import os
from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Any

import jax

OPTIMISATION_LEVEL = "xla_backend_optimization_level"
FUSION_EMITTERS = "xla_cpu_use_fusion_emitters"
TRITON_PRODUCTS = "xla_gpu_enable_triton_gemm"
SEEDS_FOR_TRITON_PRODUCTS = 32
"""The least that was measured to be faster with them; between 1 and this none was measured."""


def jit_for_one_call(function: Callable[..., Any], **options: Any) -> jax.stages.Wrapped:
    """`jax.jit` for a function that is called once, such as the initialisation of networks.

    On a CPU, LLVM takes longer to optimise many small random draws fully than everything else
    about them takes, so it optimises less. A level in XLA_FLAGS is left as it is.
    """
    if _may_choose():
        options["compiler_options"] = {OPTIMISATION_LEVEL: 1}
    return jax.jit(function, **options)


def jit_for_few_calls(
    function: Callable[..., Any], *, level: int = 0, **options: Any
) -> Callable[..., Any]:
    """`jax.jit` for a function that a person waits for, such as the first level of an episode: on a
    CPU it is compiled in a third of the time and, at level 0, hardly optimised. Nothing starts JAX
    before the first call. Inside another program it is a part of that."""

    @cache
    def compiled() -> jax.stages.Wrapped:
        return jax.jit(function, compiler_options=_quick_options(level), **options)

    @wraps(function)
    def call(*arguments: Any) -> Any:
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(arguments)):
            # Only a whole program takes options.
            return function(*arguments)
        return compiled()(*arguments)

    return call


def training_options(seeds_of_runs: Sequence[int]) -> dict[str, Any]:
    """Compiler options of the training of runs with so many seeds each as one program.

    On a GPU only many seeds of a single run are trained with Triton's matrix products. They make 32
    seeds 1.013 times as fast and one 0.98 times; both compile sooner without, as do fewer seeds
    beside each other and several runs as one program, by minutes (docs/performance.md). A choice in
    XLA_FLAGS is left as it is.
    """
    many_seeds = len(seeds_of_runs) == 1 and seeds_of_runs[0] >= SEEDS_FOR_TRITON_PRODUCTS
    if many_seeds or _is_chosen(TRITON_PRODUCTS) or jax.default_backend() != "gpu":
        return {}
    return {TRITON_PRODUCTS: False}


def _is_chosen(option: str) -> bool:
    return option in os.environ.get("XLA_FLAGS", "")


def _may_choose() -> bool:
    return jax.default_backend() == "cpu" and not _is_chosen(OPTIMISATION_LEVEL)


@cache
def _quick_options(level: int) -> dict[str, Any]:
    """What makes compilation quick, as far as this version of XLA knows it."""
    if not _may_choose():
        return {}
    options: dict[str, Any] = {OPTIMISATION_LEVEL: level, FUSION_EMITTERS: False}
    try:
        jax.jit(lambda: 0, compiler_options=options).lower().compile()
    except (RuntimeError, ValueError):
        del options[FUSION_EMITTERS]
    return options
