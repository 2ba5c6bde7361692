"""Compiles a training program while the offline stage of its shapers runs."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import equinox as eqx
import jax
from jaxtyping import PyTree

from ella.shaping.shaper import AbstractRewardShaper
from ella.training.assembly import Sweep, make_program, sweeps_of
from ella.training.program import SeedProgram
from ella.training.settings import TrainingSettings
from ella.world.environment import Environment

Build = Callable[[bool], Sequence[AbstractRewardShaper]]
"""The shapers of all members; `False` for untrained ones of the same shape."""


def compiles_ahead() -> bool:
    """Whether a program is compiled while other programs run: on the CPUs of one process. On GPUs
    kernels are chosen by timing them, which other work would disturb."""
    return jax.default_backend() == "cpu" and jax.process_count() == 1


def assembled(
    settings: TrainingSettings,
    env: Environment,
    seeds: Sequence[Sequence[int]],
    build: Build,
) -> tuple[SeedProgram, list[Sweep]]:
    """The program that trains with the shapers of `build(True)`, and its sweeps.

    Where `compiles_ahead()`, compilation for the shapers of `build(False)` runs in threads while
    `build(True)` runs the offline stages; compiled code takes the shapers' arrays as arguments.
    """
    if not compiles_ahead():
        sweeps = sweeps_of(build(True), seeds)
        return make_program(settings, env, sweeps), sweeps
    is_abandoned = threading.Event()

    def prepare() -> tuple[SeedProgram, list[Sweep]]:
        sweeps = sweeps_of(build(False), seeds)
        program = make_program(settings, env, sweeps)
        program.prepare()
        if not is_abandoned.is_set():
            program.compile_in_background()
        return program, sweeps

    # Not a daemon: an interpreter that ends while XLA compiles in one is aborted.
    thread = ThreadPoolExecutor(1, "compilation")
    prepared = thread.submit(prepare)
    thread.shutdown(wait=False)
    try:
        sweeps = sweeps_of(build(True), seeds)
        program, expected = prepared.result()
    except BaseException:
        is_abandoned.set()
        raise
    if not _same_program(expected, sweeps):
        return make_program(settings, env, sweeps), sweeps
    program.set_shapers([sweep.shaper for sweep in sweeps])
    return program, sweeps


def _same_program(one: Sequence[Sweep], other: Sequence[Sweep]) -> bool:
    """Whether the sweeps differ at most in the values of their shapers' arrays."""
    return [sweep.members for sweep in one] == [sweep.members for sweep in other] and bool(
        eqx.tree_equal(
            [(_without_values(sweep.shaper), sweep.numbers) for sweep in one],
            [(_without_values(sweep.shaper), sweep.numbers) for sweep in other],
        )
    )


def _without_values(shaper: AbstractRewardShaper) -> PyTree:
    return jax.tree.map(
        lambda leaf: (leaf.shape, str(leaf.dtype)) if eqx.is_array(leaf) else leaf, shaper
    )
