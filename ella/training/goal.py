"""The success rate at which training may end early."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ella.training.settings import TrainingSettings
from ella.world.tasks import TaskSpec

LINES = 3
"""Log lines in a row at which success must be high enough, at least: one may be luck."""


@dataclass
class Goal:
    """Counts the log lines in a row at which every seed succeeds often enough."""

    success: float | None
    """The least success rate; None for a goal that is never reached."""
    first_iteration: int = 0
    """Log lines before it do not count."""
    lines: int = LINES
    """How many in a row are needed."""
    in_a_row: int = 0

    @classmethod
    def of(cls, task: TaskSpec, settings: TrainingSettings) -> "Goal":
        """The goal of a run. Until a horizon is over only successes end episodes, so the lines
        before do not count; and the lines needed cover a horizon, since environments that began
        together time out together."""
        horizon = horizon_iterations(task, settings.ppo.rollout_length)
        needed = -(-horizon // settings.log_iterations)
        return cls(settings.until, horizon, max(LINES, needed))

    def count(self, values: Mapping[str, ArrayLike], iteration: int) -> None:
        """Add the log line after an iteration: by name the measurements of every seed, NaN where
        there is none. In a mixture they are of the trained task."""
        if self.success is None or iteration < self.first_iteration:
            return
        is_high = np.asarray(values["success_rate"]) >= self.success
        self.in_a_row = self.in_a_row + 1 if is_high.all() else 0

    @property
    def is_reached(self) -> bool:
        """Whether training may end."""
        return self.in_a_row >= self.lines


def horizon_iterations(task: TaskSpec, rollout_length: int) -> int:
    """Iterations in which every episode that began before them has ended."""
    return -(-max(task.horizons) // rollout_length)
