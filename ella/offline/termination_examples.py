"""Examples for the termination classifier: from the expert, or from a file of one's own.

The file format is described in docs/offline.md.
"""

import hashlib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from ella.errors import InputError
from ella.offline.demonstrations import demonstrations
from ella.shaping.termination import AGENT_CELL
from ella.world.encoding import MOVABLE_TYPES, NUM_COLOURS, NUM_STATES, NUM_TYPES
from ella.world.environment import make
from ella.world.language import Language
from ella.world.tasks import TaskSpec

FIELDS = ("images", "instructions", "labels")
FEWEST_PER_LABEL = 2


@dataclass(frozen=True)
class TerminationExamples:
    """Observations that do and do not show a low-level instruction carried out. Host arrays."""

    done_images: np.ndarray
    """uint8[P, 7, 7, 3]."""
    done_ids: np.ndarray
    """int32[P]: the low-level instruction each shows carried out."""
    undone_images: np.ndarray
    """uint8[N, 7, 7, 3]."""
    undone_ids: np.ndarray
    """int32[N]: the low-level instruction each shows not yet carried out."""
    exclusive: bool
    """Whether an observation that shows its own instruction carried out counts as a negative
    example of every other one."""

    @property
    def num_done(self) -> int:
        return len(self.done_ids)


def expert_examples(
    spec: TaskSpec,
    num_episodes: int,
    *,
    key: PRNGKeyArray,
    collected: Callable[[int], None] = lambda episodes: None,
) -> TerminationExamples:
    """Of each of the expert's episodes the last observation and one random earlier one."""
    found = demonstrations(make(spec), key, num_episodes, collected=collected)
    kept = found.success
    if not kept.any():
        raise InputError(f"the expert solved none of {num_episodes} episodes of '{spec.name}'")
    ids = found.instruction_ids[kept].astype(np.int32)
    return TerminationExamples(
        done_images=found.final_images[kept],
        done_ids=ids,
        undone_images=found.earlier_images[kept],
        undone_ids=ids,
        exclusive=True,
    )


def read_examples(path: Path, language: Language) -> TerminationExamples:
    """Labelled examples from a file, every field checked against the low-level language."""
    arrays = _open(path)
    images, texts, labels = (arrays[name] for name in FIELDS)
    _check_images(path, images)
    count = len(images)
    if texts.shape != (count,) or texts.dtype.kind != "U":
        raise InputError(f"{path}: 'instructions' must be {count} strings, one per image")
    if labels.shape != (count,) or labels.dtype.kind not in "bui":
        raise InputError(f"{path}: 'labels' must be {count} integers, one per image")
    wrong = np.flatnonzero((labels != 0) & (labels != 1))
    if wrong.size:
        raise InputError(f"{path}: label {labels[wrong[0]]} of example {wrong[0]} is not 0 or 1")
    ids = _instruction_ids(path, texts, language)
    done = labels == 1
    for value, amount in ((1, done.sum()), (0, (~done).sum())):
        if amount < FEWEST_PER_LABEL:
            raise InputError(
                f"{path}: needs at least {FEWEST_PER_LABEL} examples with label {value}, "
                f"has {amount}"
            )
    return TerminationExamples(images[done], ids[done], images[~done], ids[~done], exclusive=False)


def split_examples(
    examples: TerminationExamples, share: float, seed: int
) -> tuple[TerminationExamples, TerminationExamples]:
    """(training, validation) examples; at least one of each label on both sides."""
    rng = np.random.default_rng(seed)

    def halves(count: int) -> tuple[np.ndarray, np.ndarray]:
        order = rng.permutation(count)
        held_out = min(max(1, round(share * count)), count - 1)
        return order[held_out:], order[:held_out]

    done, undone = halves(examples.num_done), halves(len(examples.undone_ids))
    training, validation = (
        TerminationExamples(
            examples.done_images[chosen_done],
            examples.done_ids[chosen_done],
            examples.undone_images[chosen_undone],
            examples.undone_ids[chosen_undone],
            examples.exclusive,
        )
        for chosen_done, chosen_undone in zip(done, undone, strict=True)
    )
    return training, validation


def digest_of(path: Path) -> str:
    """A hash of a file's contents."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def _open(path: Path) -> dict[str, np.ndarray]:
    try:
        file = np.load(path, allow_pickle=False)
        if isinstance(file, np.ndarray):
            raise InputError(f"{path}: not an .npz archive but a single array")
        with file:
            missing = [name for name in FIELDS if name not in file.files]
            if missing:
                raise InputError(f"{path}: has no array '{missing[0]}'; needs {', '.join(FIELDS)}")
            return {name: file[name] for name in FIELDS}
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or 'damaged file'}") from error
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile, NotImplementedError) as error:
        raise InputError(
            f"{path}: not a readable .npz archive of plain arrays (pickled objects are refused)"
        ) from error


def _check_images(path: Path, images: np.ndarray) -> None:
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != (7, 7, 3):
        raise InputError(
            f"{path}: 'images' must be uint8[N, 7, 7, 3], got "
            f"{images.dtype}[{', '.join(map(str, images.shape))}]"
        )
    limits = np.array([NUM_TYPES, NUM_COLOURS, NUM_STATES])
    wrong = np.argwhere(images >= limits)
    if wrong.size:
        example, column, row, channel = wrong[0]
        name = ("type", "colour", "state")[channel]
        raise InputError(
            f"{path}: image {example} has {name} {images[tuple(wrong[0])]} at column {column}, "
            f"row {row}; the largest is {limits[channel] - 1}"
        )


def _instruction_ids(path: Path, texts: np.ndarray, language: Language) -> np.ndarray:
    known: dict[str, int] = {}
    for index, text in enumerate(texts.tolist()):
        if text not in known:
            try:
                known[text] = language.find(text)
            except InputError as error:
                raise InputError(f"{path}: example {index}: {error}") from error
    return np.array([known[text] for text in texts.tolist()], np.int32)


def with_locked_room(spec: TaskSpec) -> TaskSpec | None:
    """The same task with a locked room in every level; None for a task without doors."""
    if spec.num_doors == 0:
        return None
    return replace(spec, lock_probability=1.0, implicit_unlock=True)


def concatenated(*parts: TerminationExamples) -> TerminationExamples:
    """Examples of several sources, one after the other."""
    return TerminationExamples(
        done_images=np.concatenate([part.done_images for part in parts]),
        done_ids=np.concatenate([part.done_ids for part in parts]),
        undone_images=np.concatenate([part.undone_images for part in parts]),
        undone_ids=np.concatenate([part.undone_ids for part in parts]),
        exclusive=all(part.exclusive for part in parts),
    )


def with_channels(examples: TerminationExamples, channels: np.ndarray) -> TerminationExamples:
    """The same examples in another language: instruction i has become `channels[i]`."""
    return replace(
        examples, done_ids=channels[examples.done_ids], undone_ids=channels[examples.undone_ids]
    )


def with_carried_objects(
    examples: TerminationExamples, share: float, *, seed: int
) -> TerminationExamples:
    """The same examples, in a share of whose views the agent carries a random object."""
    random = np.random.default_rng(seed)
    return replace(
        examples,
        done_images=_carrying(examples.done_images, share, random),
        undone_images=_carrying(examples.undone_images, share, random),
    )


def _carrying(images: np.ndarray, share: float, random: np.random.Generator) -> np.ndarray:
    found = images.copy()
    chosen = np.flatnonzero(random.random(len(images)) < share)
    found[chosen, *AGENT_CELL, 0] = random.choice(MOVABLE_TYPES, len(chosen))
    found[chosen, *AGENT_CELL, 1] = random.integers(NUM_COLOURS, size=len(chosen))
    return found


@dataclass(frozen=True)
class ExpertExamples:
    """From separate expert episodes."""

    training: TerminationExamples
    held_out: TerminationExamples
    """Of the task itself."""
    held_out_locked: TerminationExamples | None
    """Of the task with a locked room; None for a task without doors."""


def expert_split(
    spec: TaskSpec,
    num_episodes: int,
    num_validation: int,
    locked_share: float,
    seed: int,
    collected: Callable[[int], None] = lambda episodes: None,
) -> ExpertExamples:
    """Examples to learn from and as many to validate with, of either layout.

    Where the task has doors but never locks one, `locked_share` of the episodes to learn from are
    of the task with a locked room. `collected` is called with the number of episodes of each chunk.
    """
    keys = jax.random.split(jax.random.key(seed), 4)
    locked = with_locked_room(spec)

    def examples(one: TaskSpec, number: int, key: PRNGKeyArray) -> TerminationExamples:
        return expert_examples(one, number, key=key, collected=collected)

    num_locked = round(locked_share * num_episodes) if spec.lock_probability == 0 else 0
    if locked is None or num_locked == 0:
        training = examples(spec, num_episodes, keys[0])
    elif num_locked == num_episodes:
        training = examples(locked, num_episodes, keys[2])
    else:
        training = concatenated(
            examples(spec, num_episodes - num_locked, keys[0]),
            examples(locked, num_locked, keys[2]),
        )
    return ExpertExamples(
        training=training,
        held_out=examples(spec, num_validation, keys[1]),
        held_out_locked=None if locked is None else examples(locked, num_validation, keys[3]),
    )
