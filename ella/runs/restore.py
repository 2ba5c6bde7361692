"""Reads a run as it stands, also while it trains: nothing is trained and nothing is written."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ella.errors import InputError
from ella.ppo.iteration import TrainState, init_train_state
from ella.runs import directory as run_directory
from ella.runs.config_file import read_run
from ella.runs.policies import load_policy, policy_files
from ella.runs.relevance_file import RELEVANCE_FILE, load_relevance
from ella.runs.stores import checkpoint_store, shaper_store
from ella.schedule import LARGEST_COUNT
from ella.shaping.ella import EllaShaper, EllaState
from ella.shaping.shaper import AbstractRewardShaper, Sum
from ella.training.assembly import build_shaper, training_environment
from ella.training.policy import Policy
from ella.training.program import training_key
from ella.training.settings import TrainingSettings
from ella.world.tasks import TaskSpec

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RestoredRun:
    """A run's parts; the train states have the seed axis and lie on the host."""

    spec: TaskSpec
    settings: TrainingSettings
    shaper: AbstractRewardShaper
    states: TrainState
    iteration: int

    @property
    def frames(self) -> int:
        """Of each seed."""
        return self.iteration * self.settings.ppo.frames_per_iteration

    def seed(self, index: int) -> TrainState:
        """One seed's train state."""
        _check_seed_index(self.settings.seeds, index)
        return jax.tree.map(lambda leaf: leaf[index], self.states)

    def ella(self, index: int) -> tuple[EllaShaper, EllaState]:
        """ELLA and its state in one seed, also where it is a part of a sum."""
        name = _ella_part(self.shaper)
        if name is None:
            raise _without_ella(self.settings)
        state = jax.tree.map(jnp.asarray, self.seed(index).shaper)
        if isinstance(self.shaper, Sum):
            part = self.shaper.parts[name]
            assert isinstance(part, EllaShaper)
            return part, state[name]
        assert isinstance(self.shaper, EllaShaper)
        return self.shaper, state


@dataclass(frozen=True)
class LearnedElla:
    """ELLA as one of a run's seeds has learned it."""

    spec: TaskSpec
    shaper: EllaShaper
    state: EllaState
    """As of one environment that had taken all of the seed's steps; the ledger is the run's."""
    source: str
    """Where it was read from, for a log line."""


def learned_ella(directory: Path, seed_index: int = 0) -> LearnedElla:
    """ELLA in the newest complete checkpoint of a run or, where there is none, as it was exported
    with an agent (`ella.runs.relevance_file`)."""
    spec, settings = read_run(directory)
    _check_seed_index(_learned_seeds(directory, spec, settings), seed_index)
    if checkpoint_store(directory, spec, settings).paths():
        restored = restore_run(directory)
        source = f"its newest checkpoint, at {restored.frames:,} frames a seed"
        shaper, state = restored.ella(seed_index)
        return LearnedElla(spec, shaper, _as_of_one(state, settings), source)
    judging = _judging_shaper(spec, settings)
    name = _ella_part(judging)
    if name is None:
        raise _without_ella(settings)
    part = judging.parts[name] if isinstance(judging, Sum) else judging
    assert isinstance(part, EllaShaper)
    source = "exported without its termination classifier, so views tell what is completed"
    shaper, state = load_relevance(directory, spec, part)
    return LearnedElla(spec, shaper, _as_of_one(state, settings), source)


def _as_of_one(state: EllaState, settings: TrainingSettings) -> EllaState:
    envs = settings.ppo.num_envs
    return replace(state, steps=jnp.minimum(state.steps, LARGEST_COUNT // envs) * envs)


def has_ella(directory: Path) -> bool:
    """Whether a run is trained with ELLA and what that learned is saved."""
    spec, settings = read_run(directory)
    return (
        _is_ella_saved(directory, spec, settings)
        and _ella_part(_judging_shaper(spec, settings)) is not None
    )


def _is_ella_saved(directory: Path, spec: TaskSpec, settings: TrainingSettings) -> bool:
    saved = checkpoint_store(directory, spec, settings).paths()
    return bool(saved) or (directory / RELEVANCE_FILE).is_file()


def _learned_seeds(directory: Path, spec: TaskSpec, settings: TrainingSettings) -> int:
    """How many seeds `learned_ella` can choose from: an exported agent has one, whatever the
    settings of its run say."""
    saved = checkpoint_store(directory, spec, settings).paths()
    is_exported = not saved and (directory / RELEVANCE_FILE).is_file()
    return 1 if is_exported else settings.seeds


def check_has_ella(directory: Path, seed_index: int) -> TaskSpec:
    """The run's task, if `learned_ella(directory, seed_index)` can be expected to succeed: tells
    cheaply what is wrong before anything large is read."""
    spec, settings = read_run(directory)
    _check_seed_index(_learned_seeds(directory, spec, settings), seed_index)
    if _ella_part(_judging_shaper(spec, settings)) is None:
        raise _without_ella(settings)
    if not _is_ella_saved(directory, spec, settings):
        raise InputError(f"{directory} has no checkpoint yet")
    return spec


def restore_run(directory: Path) -> RestoredRun:
    """The newest complete checkpoint of a run, with the shaper it is trained with."""
    spec, settings = read_run(directory)
    states, iteration = _newest_states(directory, spec, settings)
    shaper = _stored_shaper(directory, spec, settings)
    return RestoredRun(spec, settings, shaper, states, iteration)


def newest_policy(directory: Path, seed_index: int = 0) -> Policy:
    """The newest policy of one of a run's seeds; see `newest_policies`."""
    policies = newest_policies(directory)
    _check_seed_index(len(policies), seed_index)
    return policies[seed_index]


def newest_policies(directory: Path) -> list[Policy]:
    """The newest policy of each of a run's seeds: the exported one, or that of the newest
    checkpoint, which is logged, where a running, killed or resumed run has gone further."""
    exported = _exported_policies(directory)
    try:
        spec, settings = read_run(directory)
    except InputError:
        if exported:
            return exported  # All that is needed is in them.
        raise
    saved = checkpoint_store(directory, spec, settings).paths()
    saved_frames = int(saved[-1].stem) * settings.ppo.frames_per_iteration if saved else -1
    if exported and min(policy.frames for policy in exported) >= saved_frames:
        return exported
    if not saved:
        raise InputError(f"{directory} has neither policies nor a checkpoint yet")
    states, iteration = _newest_states(directory, spec, settings)
    frames = iteration * settings.ppo.frames_per_iteration
    logger.info(f"{directory}: using its newest checkpoint, at {frames:,} frames a seed")
    policies = []
    for index, seed in enumerate(settings.seed_numbers):
        network, statistics = jax.tree.map(
            lambda leaf, i=index: jnp.asarray(leaf[i]), (states.network, states.statistics)
        )
        policies.append(Policy(spec, network, statistics, seed, frames))
    return policies


def _exported_policies(directory: Path) -> list[Policy]:
    if not list((directory / run_directory.POLICIES).glob("seed-*.safetensors")):
        return []
    return [load_policy(path) for path in policy_files(directory)]


def _newest_states(
    directory: Path, spec: TaskSpec, settings: TrainingSettings
) -> tuple[TrainState, int]:
    """(train states with the seed axis, iterations done) of the newest complete checkpoint."""
    env, shaper = training_environment(spec, settings), _untrained_shaper(spec, settings)

    def start(seeds: jax.Array) -> PyTree:
        keys = jax.vmap(training_key)(seeds)
        return jax.vmap(lambda key: init_train_state(env, settings.ppo, shaper, key=key))(keys)

    like = jax.eval_shape(start, jnp.zeros(settings.seeds, jnp.uint32))
    found = checkpoint_store(directory, spec, settings).restore_newest(like)
    if found is None:
        raise InputError(f"{directory} has no checkpoint yet")
    return found.state, found.iteration


def _stored_shaper(
    directory: Path, spec: TaskSpec, settings: TrainingSettings
) -> AbstractRewardShaper:
    """The shaper a run is trained with; its arrays are those kept in the run's directory."""
    shaper = _untrained_shaper(spec, settings)
    arrays, static = eqx.partition(shaper, eqx.is_array)
    if not jax.tree.leaves(arrays):
        return shaper
    store = shaper_store(directory, spec, settings)
    found = store.restore_newest(arrays)
    if found is None:
        raise InputError(f"{store.directory} is missing: the run's offline networks cannot be read")
    return eqx.combine(jax.tree.map(jnp.asarray, found.state), static)


def _untrained_shaper(spec: TaskSpec, settings: TrainingSettings) -> AbstractRewardShaper:
    """A shaper of the shape of the run's, without its offline networks' weights."""
    return build_shaper(spec, settings, trained=False)


def _judging_shaper(spec: TaskSpec, settings: TrainingSettings) -> AbstractRewardShaper:
    """A shaper that only judges, quickly made: nothing that training alone needs is in it."""
    return build_shaper(spec, settings, trained=False, only_judges=True)


def _ella_part(shaper: AbstractRewardShaper) -> str | None:
    """The name of the part of a sum that is ELLA, "" for ELLA alone, None without."""
    parts = shaper.parts if isinstance(shaper, Sum) else {"": shaper}
    return next((name for name, part in parts.items() if isinstance(part, EllaShaper)), None)


def _without_ella(settings: TrainingSettings) -> InputError:
    return InputError(f"the run was trained with method '{settings.method.name}', without ELLA")


def _check_seed_index(seeds: int, index: int) -> None:
    if not 0 <= index < seeds:
        raise InputError(f"seed index {index} is outside 0..{seeds - 1}")
