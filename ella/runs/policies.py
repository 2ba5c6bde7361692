"""The exported policies of a run: `policies/seed-N`, one file per seed."""

from pathlib import Path

import jax

from ella import agents
from ella.errors import InputError
from ella.networks.actor_critic import ActorCritic, RunningStatistics
from ella.runs.config_file import CONFIG_FILE
from ella.runs.directory import POLICIES
from ella.training.policy import SUFFIX, Policy, read_policy
from ella.training.settings import TrainingSettings
from ella.world.tasks import TaskSpec


def export_policies(
    spec: TaskSpec,
    settings: TrainingSettings,
    networks: ActorCritic,
    statistics: RunningStatistics,
    directory: Path,
    *,
    frames: int,
) -> None:
    """Write the policy of every seed; the networks and statistics lie on the host and have the
    seed axis."""
    directory.mkdir(parents=True, exist_ok=True)
    for index, seed in enumerate(settings.seed_numbers):
        network, moments = jax.tree.map(lambda leaf, i=index: leaf[i], (networks, statistics))
        policy = Policy(spec, network, moments, seed, frames)
        policy.save(directory / f"seed-{seed}")


def load_policy(path: Path | str, seed_index: int = 0) -> Policy:
    """A policy file, or one of a run directory's; `agent:NAME` is one that comes with the
    package."""
    path = agents.located(path)
    if path.is_dir():
        path = policy_files(path)[_checked_index(path, seed_index)]
    return read_policy(path)


def policy_files(directory: Path) -> list[Path]:
    """The exported policies of a run, by seed."""
    found = {
        int(path.stem.removeprefix("seed-")): path
        for path in (directory / POLICIES).glob(f"seed-*{SUFFIX}")
        if path.stem.removeprefix("seed-").isdecimal()
    }
    if not found and not (directory / CONFIG_FILE).is_file():
        raise InputError(f"{directory} is not a run: it has no {CONFIG_FILE}")
    if not found:
        raise InputError(
            f"{directory} holds no policies: they are written when training ends or is "
            "stopped with Ctrl-C"
        )
    return [found[seed] for seed in sorted(found)]


def _checked_index(directory: Path, index: int) -> int:
    count = len(policy_files(directory))
    if not 0 <= index < count:
        raise InputError(f"seed index {index} is outside 0..{count - 1} of {directory}")
    return index
