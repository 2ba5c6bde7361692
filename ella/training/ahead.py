"""Compiles a training program while the offline stage of its shapers runs."""

import logging
import threading
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
from jaxtyping import PyTree

from ella.shaping.shaper import AbstractRewardShaper
from ella.training.assembly import Sweep, make_program, sweeps_of
from ella.training.program import SeedProgram
from ella.training.settings import TrainingSettings
from ella.world.environment import Environment

logger = logging.getLogger(__name__)

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

    Where `compiles_ahead()`, the program is compiled for the shapers of `build(False)` while
    `build(True)` runs their offline stages; compiled code takes their arrays as arguments.
    """
    if not compiles_ahead():
        sweeps = sweeps_of(build(True), seeds)
        return make_program(settings, env, sweeps), sweeps
    compilation = _Compilation(settings, env, seeds, build)
    compilation.start()
    sweeps = sweeps_of(build(True), seeds)
    if compilation.is_alive():
        logger.info("compiling")
    program, expected = compilation.wait()
    if not _same_program(expected, sweeps):
        return make_program(settings, env, sweeps), sweeps
    program.set_shapers([sweep.shaper for sweep in sweeps])
    return program, sweeps


class _Compilation(threading.Thread):
    """Traces the program of untrained shapers, then compiles its initialisation and its loop at
    the same time.

    Not a daemon: an interpreter that ends while XLA compiles in one is aborted.
    """

    def __init__(
        self,
        settings: TrainingSettings,
        env: Environment,
        seeds: Sequence[Sequence[int]],
        build: Build,
    ) -> None:
        super().__init__(name="compilation")
        self._settings, self._env, self._seeds, self._build = settings, env, seeds, build
        self._found: tuple[SeedProgram, list[Sweep]] | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            sweeps = sweeps_of(self._build(False), self._seeds)
            program = make_program(self._settings, self._env, sweeps)
            program.prepare()
            beside = threading.Thread(target=self._compile_start, args=(program,))
            beside.start()
            program.compile()
            beside.join()
            self._found = program, sweeps
        except BaseException as error:
            self._error = error

    def _compile_start(self, program: SeedProgram) -> None:
        try:
            program.compile_start()
        except BaseException as error:
            self._error = error

    def wait(self) -> tuple[SeedProgram, list[Sweep]]:
        """(program, sweeps) once it is compiled; raises what went wrong."""
        self.join()
        if self._error is not None:
            raise self._error
        assert self._found is not None
        return self._found


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
