"""Expert demonstrations as a Minari dataset."""

import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, UInt8

from ella.durable_files import UNFINISHED
from ella.errors import InputError, writing_to
from ella.world.environment import Environment, make
from ella.world.expert import Solutions, solve
from ella.world.state import State, Timestep

try:
    import h5py  # noqa: F401  Minari looks for it late
    import minari
    from gymnasium.envs.registration import EnvSpec
    from minari.data_collector import EpisodeBuffer
    from minari.dataset.minari_dataset import parse_dataset_id
    from minari.dataset.minari_storage import MinariStorage
except ModuleNotFoundError as error:
    raise InputError(
        f"demonstrations need the extra minari: {error.msg} (in the clone: pip install -e "
        "'.[minari]')"
    ) from error

from ella.adapters.gymnasium_env import EllaEnv, draw_key, level_generator
from ella.adapters.gymnasium_registration import ENVIRONMENT_IDS

CHUNK = 128
"""Episodes computed at once."""
LENGTH_STEP = 32
"""Replays are compiled for lengths that are multiples of this."""
BYTES_PER_EPISODE, BYTES_PER_STEP = 48 * 1024, 1024
"""More than HDF5 takes."""
MAX_SEED = 2**31 - 1
MOST_FAILURES = 0.5
"""Share of levels the expert may fail on before the search for more is given up."""


@dataclass(frozen=True)
class WrittenDemonstrations:
    """What `write_demonstrations` wrote."""

    dataset_id: str
    """As `minari.load_dataset` takes it, with the environment variable MINARI_DATASETS_PATH set to
    the root."""
    path: Path
    episodes: int
    steps: int
    mean_reward: float
    """Over episodes."""


def write_demonstrations(
    task: str,
    episodes: int,
    root: Path,
    *,
    seed: int = 0,
    written: Callable[[int], None] = lambda episodes: None,
) -> WrittenDemonstrations:
    """Write episodes that the expert solves as the Minari dataset `ella/TASK/expert-v0` in `root`.

    The episodes are those of `EllaEnv(task, mission="text")` after `reset(seed=seed)`,
    `reset(seed=seed + 1)` and so on; levels the expert fails on are left out. The dataset appears
    whole or not at all. `written` is called with the number of episodes of every part.
    """
    if episodes < 1:
        raise InputError(f"episodes must be >= 1, got {episodes}")
    if not 0 <= seed <= MAX_SEED - episodes:
        raise InputError(f"a seed lies between 0 and {MAX_SEED} - episodes, got {seed}")
    world, env = make(task), EllaEnv(task, mission="text")
    dataset_id = f"ella/{task}/expert-v0"
    try:
        parse_dataset_id(dataset_id)
    except ValueError:
        raise InputError(f"Minari takes no dataset named '{dataset_id}'") from None
    path = root / dataset_id
    if path.exists():
        raise InputError(f"{path} exists; choose another folder, or remove it")
    steps, total = 0, 0.0
    # Absolute, since Minari measures the size of a relative one wrongly.
    unfinished = root.absolute() / f".{task}.{uuid.uuid4().hex}{UNFINISHED}"
    is_new_root = not root.exists()
    try:
        (unfinished / "data").mkdir(parents=True)
        storage = MinariStorage.new(
            unfinished / "data",
            observation_space=env.observation_space,
            action_space=env.action_space,
            env_spec=environment_spec(task),
            data_format="hdf5",
        )
        storage.update_metadata(_metadata(dataset_id, task))
        for part in _expert_episodes(world, episodes, seed):
            _check_room(unfinished, part, path)
            storage.update_episodes(part)
            steps += sum(len(one.rewards) for one in part)
            total += sum(float(np.sum(one.rewards)) for one in part)
            written(len(part))
        _sync(unfinished)
        path.parent.mkdir(parents=True, exist_ok=True)
        os.rename(unfinished, path)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        if is_new_root:
            with suppress(OSError):
                root.rmdir()
        raise
    return WrittenDemonstrations(dataset_id, path, episodes, steps, total / episodes)


def _check_room(folder: Path, episodes: list[EpisodeBuffer], path: Path) -> None:
    """Write and remove as many bytes as the episodes will add to the dataset: HDF5 does not survive
    a disk that fills up, and may take the process with it."""
    steps = sum(len(one.rewards) + 1 for one in episodes)
    more = len(episodes) * BYTES_PER_EPISODE + steps * BYTES_PER_STEP
    trial = folder / "room"
    try:
        with writing_to(path), trial.open("wb") as file:
            file.seek(sum(one.stat().st_size for one in folder.rglob("*.hdf5")))
            file.write(bytes(more))
    finally:
        trial.unlink(missing_ok=True)


def environment_spec(task: str) -> EnvSpec:
    """What Minari makes the environment from; also of tasks without an id of Gymnasium's."""
    return EnvSpec(
        ENVIRONMENT_IDS.get(task, f"ELLA/{task}-v0"),
        entry_point="ella.adapters.gymnasium_env:EllaEnv",
        kwargs={"task": task, "mission": "text"},
    )


def _metadata(dataset_id: str, task: str) -> dict[str, Any]:
    return {
        "dataset_id": dataset_id,
        "algorithm_name": "shortest-path planner",
        "description": f"Episodes of the task {task} that the planner of ella solved, which knows "
        "the whole level. The seed of an episode is that of the environment's reset.",
        "minari_version": minari.__version__,
        "requirements": [_requirement()],
    }


def _requirement() -> str:
    """The distribution whose levels these are, as Minari checks it."""
    try:
        return f"ella-rl=={version('ella-rl')}"
    except PackageNotFoundError:  # used from its source alone
        return "ella-rl"


def _expert_episodes(env: Environment, count: int, seed: int) -> Iterator[list[EpisodeBuffer]]:
    """`count` solved episodes on the levels of seeds from `seed` on, some at a time."""
    found, tried = 0, 0
    while found < count:
        seeds = range(seed + tried, seed + tried + CHUNK)
        levels = _levels(env, jnp.stack([draw_key(level_generator(one)) for one in seeds]))
        part = _episodes(env, seeds, levels, solve(env, levels))[: count - found]
        found, tried = found + len(part), tried + CHUNK
        if found < (1 - MOST_FAILURES) * min(tried, count):
            raise InputError(
                f"the expert solves only {found} of {tried} levels of task '{env.spec.name}'"
            )
        yield part


def _episodes(
    env: Environment, seeds: Sequence[int], levels: State, solutions: Solutions
) -> list[EpisodeBuffer]:
    """The episodes among these that are solved."""
    lengths, success = np.asarray(solutions.lengths), np.asarray(solutions.success)
    longest = -(-int(lengths.max()) // LENGTH_STEP) * LENGTH_STEP
    actions = np.asarray(solutions.actions)[:, :longest]
    played: Timestep = jax.device_get(_play(env, levels, actions))
    observed, language = played.observation, env.language
    episodes = []
    for row in np.flatnonzero(success):
        steps = int(lengths[row])
        ids = observed.instruction_id[row, : steps + 1]
        episodes.append(
            EpisodeBuffer(
                seed=seeds[int(row)],
                observations={
                    "image": observed.image[row, : steps + 1],
                    "direction": observed.direction[row, : steps + 1].astype(np.int64),
                    "mission": observed.mission[row, : steps + 1],
                    "mission_text": [language.text(int(one)) for one in ids],
                },
                actions=actions[row, :steps].astype(np.int64),
                rewards=played.reward[row, 1 : steps + 1].astype(np.float64),
                terminations=played.terminated[row, 1 : steps + 1],
                truncations=played.truncated[row, 1 : steps + 1],
                infos={"instruction_id": ids},
            )
        )
    return episodes


@partial(jax.jit, static_argnums=0)
def _levels(env: Environment, keys: Key[Array, " N"]) -> State:
    return jax.vmap(env.reset)(keys).state


@partial(jax.jit, static_argnums=0)
def _play(env: Environment, levels: State, actions: UInt8[Array, "N T"]) -> Timestep:
    """[N, T + 1]: the start, then the outcome of every action, also of those after an end."""

    def play(level: State, actions: UInt8[Array, " T"]) -> Timestep:
        def step(state: State, action: Array) -> tuple[State, Timestep]:
            timestep = env.step(state, action.astype(jnp.int32))
            return timestep.state, timestep

        nothing = jnp.zeros((), jnp.float32)
        first = Timestep(level, env.observe(level), nothing, nothing > 0, nothing > 0)
        later = jax.lax.scan(step, level, actions)[1]
        return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, later)

    return jax.vmap(play)(levels, actions)


def _sync(folder: Path) -> None:
    """Make the files' contents last before their folder gets its name."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
