"""Refuses to train from a start that a shaper finds fault with."""

from collections.abc import Sequence

import equinox as eqx
import jax
import numpy as np

from ella.errors import InputError
from ella.ppo.iteration import TrainState
from ella.shaping.shaper import AbstractRewardShaper
from ella.training import multi_host as hosts


def check_start(
    shapers: Sequence[AbstractRewardShaper],
    groups: Sequence[TrainState],
    seeds: Sequence[Sequence[int]],
) -> None:
    """Raise an InputError if a shaper finds a problem in the first train state of one of its
    seeds. All processes must call."""
    for shaper, group, numbers in zip(shapers, groups, seeds, strict=True):
        problems = hosts.fetched(_problems(shaper, group.shaper, len(numbers)))
        for line, applies in problems.items():
            if applies.any():
                bad = ", ".join(str(numbers[index]) for index in np.flatnonzero(applies))
                raise InputError(f"seed {bad}: {line}")


@eqx.filter_jit
def _problems(shaper: AbstractRewardShaper, states: object, seeds: int) -> dict[str, jax.Array]:
    # A shaper without arrays in its state does not tell how many seeds there are.
    return jax.vmap(shaper.start_problems, axis_size=seeds)(states)
