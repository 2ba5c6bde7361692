"""95 % confidence intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

CONFIDENCE = 0.95
UNBOUNDED = (-math.inf, math.inf)
SHARE = (0.0, 1.0)
"""Bounds of a success rate."""
ROUNDING = 1e-9
"""Ends of an interval that differ by less are the same number."""


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"

    @property
    def has_width(self) -> bool:
        """Whether the values it was estimated from vary: those that agree do not tell how far
        others would lie."""
        return not math.isclose(self.low, self.high, rel_tol=ROUNDING, abs_tol=ROUNDING)

    def overlaps(self, other: "Interval") -> bool:
        return self.low <= other.high and other.low <= self.high


def wilson(successes: int, trials: int) -> Interval:
    """Wilson's score interval of a proportion."""
    if trials == 0:
        return Interval(math.nan, *SHARE)
    found = stats.binomtest(successes, trials).proportion_ci(CONFIDENCE, method="wilson")
    return Interval(successes / trials, float(found.low), float(found.high))


def student_t(values: np.ndarray, bounds: tuple[float, float] = UNBOUNDED) -> Interval:
    """Mean of independent values and its Student-t interval, clipped to `bounds`. One value says
    nothing about its spread, so its interval is `bounds`; that of equal values has no width."""
    values = np.asarray(values, np.float64)
    if values.size == 0:
        return Interval(math.nan, *bounds)
    return mean_of_strata([values], bounds)


def mean_rate(successes: np.ndarray, trials: np.ndarray) -> Interval:
    """Mean success rate of seeds, by each one's successes in so many trials: Student-t over seeds,
    and never narrower than Wilson's interval of all trials together, since seeds can agree by
    chance, above all near 0 and 1."""
    between = student_t(successes / trials, SHARE)
    within = wilson(int(successes.sum()), int(trials.sum()))
    return Interval(between.value, min(between.low, within.low), max(between.high, within.high))


def mean_of_strata(
    strata: Sequence[np.ndarray], bounds: tuple[float, float] = UNBOUNDED
) -> Interval:
    """Mean of the means of strata, each float[values] and not empty, with a Student-t interval.

    Its variance is estimated within the strata; Welch's and Satterthwaite's degrees of freedom
    allow strata to differ in size and spread.
    """
    value = float(np.mean([stratum.mean() for stratum in strata]))
    if min(stratum.size for stratum in strata) < 2:
        return Interval(value, *bounds)
    sizes = np.array([stratum.size for stratum in strata])
    variances = np.array([stratum.var(ddof=1) for stratum in strata]) / sizes
    half_width = welch_half_width(variances / len(strata) ** 2, sizes)
    low, high = np.clip((value - half_width, value + half_width), *bounds)
    return Interval(value, float(low), float(high))


def difference_of_means(
    pairs: Sequence[tuple[np.ndarray, np.ndarray]],
) -> Interval:
    """Mean over strata of the difference of two samples' means, with Welch's interval: samples may
    differ in size and spread, and are not paired."""
    sides = [np.asarray(side, np.float64) for pair in pairs for side in pair]
    value = float(np.mean([left.mean() - right.mean() for left, right in pairs]))
    sizes = np.array([side.size for side in sides])
    if sizes.min() < 2:
        return Interval(value, *UNBOUNDED)
    variances = np.array([side.var(ddof=1) for side in sides]) / sizes
    half_width = welch_half_width(variances / len(pairs) ** 2, sizes)
    return Interval(value, value - half_width, value + half_width)


def welch_half_width(variances: np.ndarray, sizes: np.ndarray) -> float:
    """Half the width of the Student-t interval of a sum of independent estimates, by the variance
    of each and the number of values (two or more) it was estimated from."""
    total = variances.sum()
    if total == 0:
        return 0.0
    degrees = total**2 / (variances**2 / (sizes - 1)).sum()
    return float(special.stdtrit(degrees, (1 + CONFIDENCE) / 2)) * math.sqrt(total)
