"""A run before it is trained."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ella.training.settings import TrainingSettings
from ella.world.tasks import TaskSpec


@dataclass(frozen=True)
class PlannedRun:
    """A run to be trained, or trained further."""

    spec: TaskSpec
    settings: TrainingSettings
    directory: Path

    def resolved(self) -> "PlannedRun":
        """The run with every default that depends on the task filled in."""
        return replace(self, settings=self.settings.resolved(self.spec))


def seeds_of(group: Sequence[PlannedRun]) -> int:
    """Seeds of all runs together."""
    return sum(planned.settings.seeds for planned in group)
