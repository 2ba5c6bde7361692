"""A run as it stands: its shaper and the train states of its newest checkpoint."""

from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ella.errors import InputError
from ella.methods.ella import EllaMethod
from ella.ppo.iteration import TrainState, init_train_state
from ella.runs import directory as run_directory
from ella.runs.config_file import read_run
from ella.runs.planned_run import PlannedRun
from ella.runs.training_run import run_shaper, store_of
from ella.shaping.ella import EllaShaper, EllaState
from ella.shaping.shaper import AbstractRewardShaper, Sum
from ella.training.program import training_key
from ella.training.settings import TrainingSettings
from ella.world.environment import make
from ella.world.tasks import TaskSpec


@dataclass(frozen=True)
class RestoredRun:
    """A run's parts; the train states have the seed axis and lie on the host."""

    spec: TaskSpec
    settings: TrainingSettings
    shaper: AbstractRewardShaper
    states: TrainState
    iteration: int

    def seed(self, index: int) -> TrainState:
        """One seed's train state."""
        if not 0 <= index < self.settings.seeds:
            raise InputError(f"seed index {index} is outside 0..{self.settings.seeds - 1}")
        return jax.tree.map(lambda leaf: leaf[index], self.states)

    def ella(self, index: int) -> tuple[EllaShaper, EllaState]:
        """ELLA and its state in one seed, also where it is a part of a sum."""
        shaper, state = self.shaper, self.seed(index).shaper
        if isinstance(shaper, EllaShaper):
            return shaper, state
        if isinstance(shaper, Sum):
            for name, part in shaper.parts.items():
                if isinstance(part, EllaShaper):
                    return part, state[name]
        raise InputError(
            f"the run was trained with method '{self.settings.method.name}', without ELLA"
        )


def has_ella(directory: Path) -> bool:
    """Whether a run was trained with ELLA and still has what that learned."""
    _, settings = read_run(directory)
    with_ella = any(isinstance(part, EllaMethod) for part in settings.method.parts)
    return with_ella and (directory / run_directory.CHECKPOINTS).is_dir()


def restore_run(directory: Path) -> RestoredRun:
    """The newest whole checkpoint of a run, with everything it was trained with."""
    spec, settings = read_run(directory)
    env, shaper = make(spec), run_shaper(directory, spec, settings)

    def start(seeds: jax.Array) -> PyTree:
        keys = jax.vmap(training_key)(seeds)
        return jax.vmap(lambda key: init_train_state(env, settings.ppo, shaper, key=key))(keys)

    like = jax.eval_shape(start, jnp.zeros(settings.seeds, jnp.uint32))
    found = store_of(PlannedRun(spec, settings, directory)).restore_newest(like)
    if found is None:
        raise InputError(f"{directory} has no checkpoint yet")
    return RestoredRun(spec, settings, shaper, found.state, found.iteration)
