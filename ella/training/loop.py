"""The loop over log lines that every way of training shares."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from ella.measurement import Measurements
from ella.training import multi_host
from ella.training.program import SeedProgram, States


@dataclass(frozen=True)
class Stretch:
    """The training between two log lines."""

    states: States
    """Valid until the next stretch."""
    before: int
    """Iterations done before it."""
    iteration: int
    """Iterations done after it."""
    measured: tuple[Measurements, ...]
    """Sums over its iterations for every group, with the seed axis, on the host."""
    seconds: float


def stretches(
    program: SeedProgram, states: States, iteration: int, *, iterations: int, every: int
) -> Iterator[Stretch]:
    """Train from `iteration` until `iterations` are done, `every` of them at a time."""
    while iteration < iterations:
        count = min(every, iterations - iteration)
        began = time.perf_counter()
        states, measured = program.advance(states, iteration, count)
        on_host = multi_host.fetched(measured)
        elapsed = time.perf_counter() - began
        yield Stretch(states, iteration, iteration + count, on_host, elapsed)
        iteration += count
