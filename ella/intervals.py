"""95 % intervals of what an evaluation measured."""

import math
from dataclasses import dataclass

import numpy as np

Z95 = 1.959963984540054
"""The normal quantile of 97.5 %."""


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"

    def overlaps(self, other: "Estimate") -> bool:
        return self.low <= other.high and other.low <= self.high


def wilson(successes: int, trials: int) -> Estimate:
    """Wilson's score interval of a proportion."""
    if trials == 0:
        return Estimate(math.nan, 0.0, 1.0)
    share, z2 = successes / trials, Z95**2
    centre = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = Z95 * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2))
    half /= 1 + z2 / trials
    return Estimate(share, max(0.0, centre - half), min(1.0, centre + half))


def bootstrap_mean(values: np.ndarray, *, seed: int = 0, resamples: int = 2000) -> Estimate:
    """Percentile bootstrap of the mean of independent values."""
    values = np.asarray(values, np.float64)
    if values.size == 0:
        return Estimate(math.nan, math.nan, math.nan)
    generator = np.random.default_rng(seed)
    means = np.array([generator.choice(values, values.size).mean() for _ in range(resamples)])
    low, high = np.quantile(means, (0.025, 0.975))
    return Estimate(float(values.mean()), float(low), float(high))
