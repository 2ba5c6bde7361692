"""A trained agent, and its file: one array file, without pickles."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ella.array_file import (
    ArrayFile,
    DamagedFileError,
    MismatchedArraysError,
    load_arrays,
    named_arrays,
    replace_arrays,
    save_arrays,
)
from ella.errors import InputError
from ella.networks.actor_critic import ActorCritic, RunningStatistics
from ella.networks.settings import NetworkSettings
from ella.settings_table import to_json, updated
from ella.world.grammar import VOCABULARY
from ella.world.tasks import TaskSpec, task_of

KIND = "policy"
FORMAT_VERSION = 2
SUFFIX = ".safetensors"


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

    def save(
        self, path: Path | str, *, dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    ) -> None:
        """Write `path`, with .safetensors appended unless it ends so; the network's weights as
        `dtype`. Folders that are missing are made."""
        path = _with_ending(Path(path))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise InputError(f"cannot write {path}: {error.filename} is not a folder") from None
        arrays = named_arrays(_tree(self.network, self.statistics))
        for name, array in arrays.items():
            # The statistics hold counts of frames, too large for float16.
            if name.startswith("network.") and array.dtype == np.float32:
                arrays[name] = np.asarray(array).astype(jnp.dtype(dtype))
        save_arrays(
            path,
            arrays,
            kind=KIND,
            version=FORMAT_VERSION,
            table={
                "task": to_json(self.spec),
                "network": to_json(self.network.config),
                "vocabulary": list(VOCABULARY),
                "seed": self.seed,
                "frames": self.frames,
            },
        )


def read_policy(path: Path | str) -> Policy:
    """The policy in a file; weights of half precision become float32."""
    path = _policy_file(Path(path))
    found, where = _load(path), str(path)
    if found.table.get("vocabulary") != list(VOCABULARY):
        raise InputError(f"{where}: the policy was trained with another vocabulary")
    config = updated(NetworkSettings(), found.table.get("network"), where=f"{where}: network")
    network, statistics = _restored(found.arrays, config, where)
    return Policy(
        spec=task_of(found.table.get("task"), where=where),
        network=network,
        statistics=statistics,
        seed=_whole_number(found.table, "seed", where),
        frames=_whole_number(found.table, "frames", where),
    )


def _with_ending(path: Path) -> Path:
    """Appended, not replaced: in `lambda0.25` the dot begins no suffix."""
    return path if path.name.endswith(SUFFIX) else path.with_name(path.name + SUFFIX)


def _policy_file(named: Path) -> Path:
    """The file of a policy that is named with or without its ending."""
    path = _with_ending(named)
    if path.is_file():
        return path
    message = f"{named} is neither the directory of a run nor a policy file"
    # Earlier versions took what follows a name's last dot for its suffix.
    if named.suffix and (earlier := named.with_suffix(SUFFIX)).is_file():
        message += f"; an earlier version of ella may have saved it as {earlier}"
    raise InputError(message)


def _whole_number(table: dict[str, Any], name: str, where: str) -> int:
    number = table.get(name)
    if not isinstance(number, int):
        raise InputError(f"{where}: {name} must be a whole number, got {number}")
    return number


def _tree(network: ActorCritic, statistics: RunningStatistics) -> dict[str, Any]:
    return {"network": network, "statistics": statistics}


def _load(path: Path) -> ArrayFile:
    try:
        return load_arrays(path, kind=KIND, version=FORMAT_VERSION)
    except DamagedFileError as error:
        raise InputError(f"{path} is damaged: {error}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def _restored(
    arrays: dict[str, np.ndarray], config: NetworkSettings, where: str
) -> tuple[ActorCritic, RunningStatistics]:
    network = eqx.filter_eval_shape(lambda: ActorCritic(config, key=jax.random.key(0)))
    like = _tree(network, eqx.filter_eval_shape(network.initial_statistics))
    halves = (jnp.float16, jnp.bfloat16)
    full = {
        name: array.astype(np.float32) if array.dtype in halves else array
        for name, array in arrays.items()
    }
    try:
        loaded = jax.device_put(replace_arrays(like, full))
    except MismatchedArraysError as error:
        raise InputError(f"{where} does not hold the network it describes: {error}") from error
    return loaded["network"], loaded["statistics"]
