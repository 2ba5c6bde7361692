"""Where a run keeps arrays: its checkpoints, and the networks its shaper learned offline."""

from pathlib import Path

from ella.runs import directory as run_directory
from ella.runs.checkpoint import CheckpointStore
from ella.runs.identity import identity
from ella.settings_table import flat
from ella.training.settings import TrainingSettings
from ella.world.tasks import TaskSpec


def checkpoint_store(
    directory: Path, spec: TaskSpec, settings: TrainingSettings
) -> CheckpointStore:
    """The checkpoints of a run."""
    return _store(directory / run_directory.CHECKPOINTS, spec, settings, settings.log.keep)


def shaper_store(directory: Path, spec: TaskSpec, settings: TrainingSettings) -> CheckpointStore:
    """The arrays of a run's shaper."""
    return _store(directory / run_directory.SHAPER, spec, settings, keep=1)


def _store(place: Path, spec: TaskSpec, settings: TrainingSettings, keep: int) -> CheckpointStore:
    return CheckpointStore(place, flat(identity(spec, settings)), keep)
