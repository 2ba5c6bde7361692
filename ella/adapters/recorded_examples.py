"""Labelled observations in a file: what an `ExampleRecorder` collects and a `TrainedJudge` learns
from."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ella.adapters.trained_judge import JudgeSettings, TrainedJudge
from ella.array_file import DamagedFileError, load_arrays, save_arrays
from ella.errors import InputError, writing_to

KIND = "RecordedExamples"
FORMAT_VERSION = 1
OBSERVATION = "observation/"
"""Begins the names of an observation's parts in a file."""


@dataclass(frozen=True)
class RecordedExamples:
    """N observations of one environment, labelled for some or all of L instructions."""

    instructions: tuple[str, ...]
    observations: dict[str, np.ndarray]
    """[N, ...] by the names of the observations' parts; "" where an observation is one array."""
    labels: np.ndarray
    """bool[N, L]: whether the observation shows the instruction completed."""
    known: np.ndarray
    """bool[N, L]: which labels were given."""
    episodes: np.ndarray
    """int32[N], ascending."""

    def __post_init__(self) -> None:
        count, width = len(self.episodes), len(self.instructions)
        if self.labels.shape != (count, width) or self.known.shape != (count, width):
            raise InputError(f"labels and known must be [{count}, {width}]")
        if any(len(part) != count for part in self.observations.values()):
            raise InputError(f"there must be {count} observations")

    def __len__(self) -> int:
        return len(self.episodes)

    def fit_judge(self, settings: JudgeSettings | None = None, *, seed: int = 0) -> TrainedJudge:
        """A judge learned from the examples; whole episodes are held out to measure it."""
        return TrainedJudge.fit(
            self.observations,
            self.instructions,
            self.labels,
            known=self.known,
            episodes=self.episodes,
            settings=settings,
            seed=seed,
        )

    def save(self, path: Path | str) -> None:
        """Write the examples to one array file (safetensors)."""
        arrays = {"labels": self.labels, "known": self.known, "episodes": self.episodes}
        arrays |= {OBSERVATION + name: part for name, part in self.observations.items()}
        table = {"instructions": self.instructions}
        with writing_to(Path(path)):
            save_arrays(Path(path), arrays, kind=KIND, version=FORMAT_VERSION, table=table)

    @classmethod
    def load(cls, *paths: Path | str) -> "RecordedExamples":
        """Read files that `save` wrote, one after the other."""
        if not paths:
            raise InputError("load needs the path of at least one file")
        return concatenated([cls._load(Path(path)) for path in paths])

    @classmethod
    def _load(cls, path: Path) -> "RecordedExamples":
        try:
            found = load_arrays(path, kind=KIND, version=FORMAT_VERSION)
            arrays = dict(found.arrays)
            return cls(
                instructions=tuple(str(text) for text in found.table["instructions"]),
                labels=arrays.pop("labels").astype(bool),
                known=arrays.pop("known").astype(bool),
                episodes=arrays.pop("episodes").astype(np.int32),
                observations={
                    name.removeprefix(OBSERVATION): part for name, part in arrays.items()
                },
            )
        except (DamagedFileError, OSError, KeyError, TypeError) as error:
            raise InputError(
                f"{path} is not a file that RecordedExamples.save wrote ({error})"
            ) from error


def concatenated(parts: Sequence[RecordedExamples]) -> RecordedExamples:
    """Examples of several recordings, their episodes renumbered. A label is unknown where a
    recording did not have its instruction."""
    shapes = [{name: part.shape[1:] for name, part in one.observations.items()} for one in parts]
    if any(found != shapes[0] for found in shapes):
        raise InputError(f"the recordings have different observations: {shapes}")
    instructions = tuple(dict.fromkeys(text for one in parts for text in one.instructions))
    labels: list[np.ndarray] = []
    known: list[np.ndarray] = []
    episodes: list[np.ndarray] = []
    begun = 0
    for one in parts:
        columns = [instructions.index(text) for text in one.instructions]
        for values, found in ((one.labels, labels), (one.known, known)):
            wide = np.zeros((len(one), len(instructions)), bool)
            wide[:, columns] = values
            found.append(wide)
        numbers = np.unique(one.episodes, return_inverse=True)[1].reshape(-1)
        episodes.append(begun + numbers)
        begun += len(np.unique(one.episodes))
    return RecordedExamples(
        instructions=instructions,
        observations={
            name: np.concatenate([one.observations[name] for one in parts]) for name in shapes[0]
        },
        labels=np.concatenate(labels),
        known=np.concatenate(known),
        episodes=np.concatenate(episodes).astype(np.int32),
    )
