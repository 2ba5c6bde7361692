"""Exported policies: weights as safetensors, everything else as JSON, never a pickle."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from ella.durable_files import replace_durably, write_durably
from ella.errors import InputError
from ella.networks.actor_critic import ActorCritic, RunningStatistics
from ella.networks.settings import NetworkSettings
from ella.runs.checkpoint import named_arrays, replace_arrays
from ella.runs.config_file import CONFIG_FILE, spec_of
from ella.runs.directory import POLICIES
from ella.settings_table import read_table, to_json, updated
from ella.training.settings import TrainingSettings
from ella.world.grammar import VOCABULARY
from ella.world.tasks import TaskSpec

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Policy:
    """A trained agent that acts alone: `ella.networks.actor_critic.act` takes its parts."""

    spec: TaskSpec
    """The task it was trained on."""
    network: ActorCritic
    statistics: RunningStatistics
    seed: int
    frames: int
    """It was trained on."""


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
        save_policy(policy, directory / f"seed-{seed}")


def save_policy(policy: Policy, path: Path) -> None:
    """Write `path`.safetensors and `path`.json."""
    arrays = {
        name: np.ascontiguousarray(array)
        for name, array in named_arrays(_arrays(policy.network, policy.statistics)).items()
    }
    replace_durably(path.with_suffix(".safetensors"), save(arrays))
    table = {
        "format_version": FORMAT_VERSION,
        "task": to_json(policy.spec),
        "network": to_json(policy.network.config),
        "vocabulary": list(VOCABULARY),
        "seed": policy.seed,
        "frames": policy.frames,
    }
    write_durably(path.with_suffix(".json"), json.dumps(table, indent=2) + "\n")


def load_policy(path: Path | str, seed_index: int = 0) -> Policy:
    """A policy file (.json or .safetensors), or one of a run directory's."""
    path = Path(path)
    if path.is_dir():
        path = policy_files(path)[_checked_index(path, seed_index)]
    if not path.with_suffix(".json").is_file():
        raise InputError(f"{path} is neither the directory of a run nor a policy file")
    table = read_table(path.with_suffix(".json"))
    where = str(path.with_suffix(".json"))
    if table.get("format_version") != FORMAT_VERSION:
        raise InputError(
            f"{where} has format version {table.get('format_version')}, this program reads "
            f"version {FORMAT_VERSION}"
        )
    if table.get("vocabulary") != list(VOCABULARY):
        raise InputError(f"{where}: the policy was trained with another vocabulary")
    config = updated(NetworkSettings(), table.get("network"), where=f"{where}: network")
    network, statistics = _load_arrays(path.with_suffix(".safetensors"), config)
    return Policy(
        spec=spec_of(table.get("task"), where=where),
        network=network,
        statistics=statistics,
        seed=int(table.get("seed", 0)),
        frames=int(table.get("frames", 0)),
    )


def policy_files(directory: Path) -> list[Path]:
    """The exported policies of a run, by seed."""
    found = {
        int(path.stem.removeprefix("seed-")): path
        for path in (directory / POLICIES).glob("seed-*.json")
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


def _arrays(network: ActorCritic, statistics: RunningStatistics) -> dict[str, Any]:
    return {"network": network, "statistics": statistics}


def _load_arrays(path: Path, config: NetworkSettings) -> tuple[ActorCritic, RunningStatistics]:
    try:
        arrays = load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    network = eqx.filter_eval_shape(lambda: ActorCritic(config, key=jax.random.key(0)))
    like = _arrays(network, eqx.filter_eval_shape(network.initial_statistics))
    expected = {name: (leaf.shape, str(leaf.dtype)) for name, leaf in named_arrays(like).items()}
    found = {name: (array.shape, str(array.dtype)) for name, array in arrays.items()}
    if found != expected:
        raise InputError(f"{path} does not hold the network its JSON file describes")
    loaded = jax.tree.map(jax.numpy.asarray, replace_arrays(like, arrays))
    return loaded["network"], loaded["statistics"]
