"""The success rate at which training may end early."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

LINES = 3
"""Log lines in a row at which success must be high enough: one may be luck."""


@dataclass
class Goal:
    """Counts the log lines in a row at which every seed succeeds often enough."""

    success: float | None
    """The least success rate; None for a goal that is never reached."""
    in_a_row: int = 0

    def count(self, values: Mapping[str, ArrayLike]) -> None:
        """Add a log line: by name the measurements of every seed, NaN where there is none. In a
        mixture they are of the trained task."""
        if self.success is None:
            return
        is_high = np.asarray(values["success_rate"]) >= self.success
        self.in_a_row = self.in_a_row + 1 if is_high.all() else 0

    @property
    def is_reached(self) -> bool:
        """Whether training may end."""
        return self.in_a_row >= LINES
