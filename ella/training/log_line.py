"""What was measured between two moments of training, averaged for every seed."""

import math
from dataclasses import dataclass

import jax
import numpy as np

from ella.measurement import Measurements


@dataclass(frozen=True)
class LogLine:
    """The measurements since the line before, averaged, for every seed."""

    iteration: int
    """Iterations done."""
    frames: int
    """Environment steps done by each seed."""
    seconds: float
    """Spent training since the run began, interruptions excluded."""
    frames_per_second: float
    """Of all seeds together, since the line before."""
    values: dict[str, np.ndarray]
    """Per name float64[seeds]; NaN where nothing was measured."""

    def mean(self, name: str) -> float:
        """Over the seeds that measured something; NaN if none did or the name is unknown."""
        values = self.values.get(name, np.array([np.nan]))
        finite = values[~np.isnan(values)]
        return float(finite.mean()) if finite.size else math.nan


def averages(measurements: Measurements) -> dict[str, np.ndarray]:
    """Means of sums with a leading seed axis, NaN where nothing was counted."""
    found = {}
    for name, mean in jax.device_get(measurements).items():
        total, count = np.asarray(mean.total, np.float64), np.asarray(mean.count, np.float64)
        found[name] = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    return found


def non_finite(measurements: Measurements) -> list[str]:
    """Names of measurements whose sums are not finite for some seed."""
    sums = jax.device_get(measurements)
    return [name for name, mean in sums.items() if not np.isfinite(mean.total).all()]
