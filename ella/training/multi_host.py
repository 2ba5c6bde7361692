"""Several processes that train one run together, each with devices of its own.

Every process runs the same program; only the main process, number 0, writes files.
"""

from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from ella.errors import InputError

Tree = TypeVar("Tree")


def join(coordinator: str, processes: int | None, process: int | None) -> None:
    """Connect to the other processes at the main process's address, before JAX is first used.

    `auto` leaves address and numbers to what JAX finds in its environment, for example Slurm.
    """
    found = None if coordinator == "auto" else coordinator
    try:
        jax.distributed.initialize(found, processes, process)
    except (RuntimeError, ValueError, TypeError) as error:
        raise InputError(
            f"cannot join the processes at {coordinator}: {str(error).splitlines()[0]}"
        ) from error


def is_main_process() -> bool:
    """Whether this process writes the files."""
    return jax.process_index() == 0


def fetched(tree: Tree) -> Tree:
    """Arrays of all processes as host arrays, in every process; all must call."""
    return jax.tree.map(_fetched, tree)


def _fetched(leaf: jax.Array) -> jax.Array | np.ndarray:
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(_gathered(jax.random.key_data(leaf))))
    return _gathered(leaf)


def _gathered(leaf: jax.Array) -> np.ndarray:
    if jax.process_count() == 1:
        return np.asarray(jax.device_get(leaf))
    return np.asarray(multihost_utils.process_allgather(leaf, tiled=True))


def any_process(flag: bool) -> bool:
    """Whether the flag is set in some process; all must ask."""
    if jax.process_count() == 1:
        return flag
    return bool(np.any(multihost_utils.process_allgather(np.asarray(flag))))


def from_main_process(tree: Tree) -> Tree:
    """The main process's arrays, in every process; all must call."""
    return tree if jax.process_count() == 1 else multihost_utils.broadcast_one_to_all(tree)
