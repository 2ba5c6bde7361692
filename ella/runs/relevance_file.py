"""What ELLA learned of relevance in one seed, in a file of its own.

Enough to explain and to mark payments without a checkpoint: the relevance judge's state without its
optimiser, and the online dataset D. Whether a low-level instruction is completed is then judged
from the view, since the termination classifier, forty times as large, is not in the file.
"""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ella.array_file import (
    DamagedFileError,
    MismatchedArraysError,
    load_arrays,
    named_arrays,
    replace_arrays,
    save_arrays,
)
from ella.errors import InputError
from ella.shaping.ella import EllaShaper, EllaState
from ella.shaping.oracle import low_level_of
from ella.shaping.termination import visible_termination
from ella.world.tasks import TaskSpec

RELEVANCE_FILE = "relevance.safetensors"
KIND = "relevance"
FORMAT_VERSION = 2
LEDGER, OPTIMISER = "ledger.", ".optimiser."
"""In the names of what only training needs, which is left out; where beliefs are learned, the
optimiser lies deeper in the state."""
CLASSIFIER = ".classifier."
"""In the names of weights. Other floats may be counts, and half precision ends at 65,504."""
TABLE, SEEN = "dataset.members", "dataset.seen"
"""D, and the ids of the instructions in it: only their rows are written."""


def save_relevance(directory: Path, state: EllaState) -> None:
    """Write one seed's file; the classifier's weights in half precision."""
    arrays = {
        name: np.asarray(array, np.float16 if _is_weight(name, array) else array.dtype)
        for name, array in named_arrays(state).items()
        if not _is_left_out(name)
    }
    arrays[SEEN] = np.flatnonzero(arrays[TABLE].any(axis=-1)).astype(np.int32)
    arrays[TABLE] = arrays[TABLE][arrays[SEEN]]
    save_arrays(directory / RELEVANCE_FILE, arrays, kind=KIND, version=FORMAT_VERSION, table={})


def load_relevance(
    directory: Path, spec: TaskSpec, shaper: EllaShaper
) -> tuple[EllaShaper, EllaState]:
    """ELLA and the state of one environment. `shaper` has the run's settings; its termination judge
    is replaced by what a view shows."""
    path = directory / RELEVANCE_FILE
    like = shaper.state_shapes(1)
    try:
        saved = load_arrays(path, kind=KIND, version=FORMAT_VERSION).arrays
        state = replace_arrays(like, {**_zeros(like), **_full(saved, like.dataset.members)})
    except (DamagedFileError, MismatchedArraysError) as error:
        raise InputError(f"{path} is damaged or of another run: {error}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    low = shaper.low_level or low_level_of(spec).language
    judged = eqx.tree_at(lambda one: one.termination, shaper, visible_termination(low))
    return judged, jax.device_put(state)


def _is_left_out(name: str) -> bool:
    return name.startswith(LEDGER) or OPTIMISER in name


def _is_weight(name: str, array: Any) -> bool:
    return CLASSIFIER in name and array.dtype == np.float32


def _zeros(like: Any) -> dict[str, np.ndarray]:
    """What files leave out."""
    return {
        name: np.zeros(leaf.shape, leaf.dtype)
        for name, leaf in named_arrays(like).items()
        if _is_left_out(name)
    }


def _full(saved: dict[str, np.ndarray], members: jax.ShapeDtypeStruct) -> dict[str, np.ndarray]:
    """The arrays in single precision, and D with a row for every instruction."""
    arrays = {
        name: array.astype(np.float32) if array.dtype == np.float16 else array
        for name, array in saved.items()
    }
    try:
        seen, rows = arrays.pop(SEEN), arrays[TABLE]
        arrays[TABLE] = np.zeros(members.shape, members.dtype)
        arrays[TABLE][seen] = rows
    except (KeyError, IndexError, ValueError) as error:
        raise MismatchedArraysError(f"the table D does not fit: {error}") from error
    return arrays
