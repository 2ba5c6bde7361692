"""A run before it is trained."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ella.training.settings import Settings
from ella.world.tasks import TaskSpec


@dataclass(frozen=True)
class PlannedRun:
    """A run to be trained, or trained further."""

    spec: TaskSpec
    settings: Settings
    directory: Path


def seeds_of(group: Sequence[PlannedRun]) -> int:
    """Seeds of all runs together."""
    return sum(planned.settings.seeds for planned in group)
