"""From settings to a program: shapers, the devices that hold seeds, sweeps over numbers."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from ella.errors import InputError
from ella.methods.method import BuildContext
from ella.ppo.iteration import init_train_state, run_iteration, train_state_shapes
from ella.shaping.shaper import AbstractRewardShaper, numbers_of, with_numbers
from ella.training.program import SeedProgram, seed_mesh
from ella.training.settings import TrainingSettings
from ella.world.environment import Environment, make
from ella.world.tasks import TaskSpec

logger = logging.getLogger(__name__)


def build_shaper(
    task: TaskSpec,
    settings: TrainingSettings,
    *,
    trained: bool = True,
    only_judges: bool = False,
) -> AbstractRewardShaper:
    """The shaper of the settings' method, its offline stage run or taken from the cache; or, not
    `trained`, one of the same shape whose weights are yet to be put in; `only_judges`, without what
    training alone needs (`ella.methods.method.BuildContext`)."""
    trained_task = settings.trained_task(task)
    method = settings.method.resolved(trained_task)
    context = BuildContext(trained_task, settings.ppo, trained, only_judges, settings.seed_numbers)
    return method.build(context)


def training_environment(task: TaskSpec, settings: TrainingSettings) -> Environment:
    """The environment that the settings train on: the task's, or a mixture's."""
    return make(settings.trained_task(task))


@dataclass(frozen=True)
class Sweep:
    """Members that share a shaper except for its numbers: one group of a program."""

    members: tuple[int, ...]
    """Their places in what was asked for."""
    shaper: AbstractRewardShaper
    numbers: dict[str, np.ndarray]
    """Per name [seeds of all members]: the numbers in which the members differ."""
    seeds: tuple[int, ...]
    """Random seeds of all members, one member after the other."""


def sweeps_of(
    shapers: Sequence[AbstractRewardShaper], seeds: Sequence[Sequence[int]]
) -> list[Sweep]:
    """Members grouped so that those whose shapers differ in numbers alone share one."""
    found: list[list[int]] = []
    for index, shaper in enumerate(shapers):
        for members in found:
            if _differ_in_numbers_only(shapers[members[0]], shaper):
                members.append(index)
                break
        else:
            found.append([index])
    return [_sweep(members, shapers, seeds) for members in found]


def _sweep(
    members: Sequence[int],
    shapers: Sequence[AbstractRewardShaper],
    seeds: Sequence[Sequence[int]],
) -> Sweep:
    values = [numbers_of(shapers[index]) for index in members]
    counts = [len(seeds[index]) for index in members]
    numbers = {
        name: np.repeat(np.array([one[name] for one in values], np.float32), counts)
        for name in values[0]
        if any(one[name] != values[0][name] for one in values)
    }
    together = tuple(seed for index in members for seed in seeds[index])
    return Sweep(tuple(members), shapers[members[0]], numbers, together)


def _differ_in_numbers_only(one: AbstractRewardShaper, other: AbstractRewardShaper) -> bool:
    numbers = numbers_of(other)
    if numbers_of(one).keys() != numbers.keys():
        return False
    return bool(eqx.tree_equal(with_numbers(one, numbers), other))


def chosen_devices(settings: TrainingSettings) -> list[jax.Device]:
    """The devices that the settings ask for."""
    devices = jax.devices()
    if settings.devices > len(devices):
        raise InputError(f"devices is {settings.devices}, but there are {len(devices)}")
    return devices[: settings.devices or None]


def make_program(
    settings: TrainingSettings, env: Environment, sweeps: Sequence[Sweep]
) -> SeedProgram:
    """The compiled training of the seeds of some sweeps on the settings' devices."""
    devices = chosen_devices(settings)
    sizes = [len(sweep.seeds) for sweep in sweeps]
    mesh = seed_mesh(sizes, devices)
    used = {device.process_index for device in mesh.devices.flat}
    if len(used) < jax.process_count():
        raise InputError(
            f"{settings.seeds} seeds do not divide over the {len(devices)} devices of "
            f"{jax.process_count()} processes; choose a multiple"
        )
    if mesh.size < len(devices):
        counts = " and ".join(map(str, sizes))
        logger.info(
            "%s seeds do not divide over %d devices: using %d", counts, len(devices), mesh.size
        )

    def initialise(shaper: AbstractRewardShaper, key: jax.Array) -> PyTree:
        return init_train_state(env, settings.ppo, shaper, key=key)

    return SeedProgram(
        initialise,
        partial(run_iteration, env, settings.ppo, mixing=settings.curriculum),
        [sweep.shaper for sweep in sweeps],
        [sweep.seeds for sweep in sweeps],
        mesh,
        [sweep.numbers for sweep in sweeps],
        partial(train_state_shapes, env, settings.ppo),
    )


def seeds_between(tree: Any, begin: int, end: int) -> Any:
    """Some seeds of a PyTree whose arrays have the seed axis first."""
    return jax.tree.map(lambda leaf: leaf[begin:end], tree)
