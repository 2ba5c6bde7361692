"""Statistics of a few seeds on a few tasks, with 95 % confidence intervals.

Scores come as one array per task (a stratum), with one value per seed. Tasks are fixed: an interval
speaks of other seeds on the same tasks. Point estimates are those of Agarwal et al., *Deep
Reinforcement Learning at the Edge of the Statistical Precipice* (2021). A percentile bootstrap, as
used there, is too narrow with eight seeds; tests/report/test_coverage.py simulates what the
intervals used here cover. Seeds that do not vary have neither an interval nor a verdict.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import optimize, special

from ella.intervals import CONFIDENCE, UNBOUNDED, Interval, welch_half_width

RESAMPLES = 2000
ENOUGH_SEEDS = 5
"""Of one task, for a bootstrap interval that covers 94 % or more. That of four would be their
range, which covers 87 %."""
TINY = 1e-9
THRESHOLDS = (0.25, 0.5, 0.9)
"""Success rates whose first frames are compared."""

Scores = Sequence[np.ndarray]
"""Per task float[seeds]; tasks may have different numbers of seeds."""
Aggregate = Callable[[np.ndarray], np.ndarray]
"""Reduces the last axis."""
Verdict = Literal["better", "worse", "equivalent", "undecided"]


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """Mean of the middle half along the last axis: a quarter of the values, rounded down, is
    dropped at each end. Of three values or fewer it is the mean."""
    cut = values.shape[-1] // 4
    ordered = np.sort(values, axis=-1)
    return ordered[..., cut : values.shape[-1] - cut].mean(axis=-1)


def bootstrap_interval(
    scores: Scores,
    aggregate: Aggregate,
    bounds: tuple[float, float] = UNBOUNDED,
    *,
    seed: int = 0,
) -> Interval:
    """An aggregate of all scores together, with its expanded percentile interval: a bootstrap
    stratified by task. Where a task has a single seed the interval is `bounds`."""
    value = float(aggregate(np.concatenate(list(scores))))
    count = min(len(task) for task in scores)
    if count < 2:
        return Interval(value, *bounds)
    drawn = np.concatenate(_draws(scores, np.random.default_rng(seed)), axis=-1)
    low, high = np.quantile(aggregate(drawn), _expanded_levels(count))
    return Interval(value, float(low), float(high))


def curve_band(
    curves: np.ndarray, aggregate: Aggregate
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """At every point of curves [seeds, T] an aggregate, and the low and high end of its
    `bootstrap_interval`, or of the range of seeds where fewer than `ENOUGH_SEEDS` measured the
    point; each [T].

    A draw takes whole curves. Points that no seed measured stay NaN; where only some seeds measured
    a point, the others are left out of it.
    """
    value, low, high = (np.full(curves.shape[1], np.nan) for _ in range(3))
    known = ~np.isnan(curves)
    for pattern in np.unique(known.T, axis=0):
        if not pattern.any():
            continue
        points = (pattern == known.T).all(axis=1)
        part = curves[pattern][:, points].T
        value[points] = aggregate(part)
        if pattern.sum() < ENOUGH_SEEDS:
            low[points], high[points] = part.min(axis=1), part.max(axis=1)
            continue
        rows = _rows(np.random.default_rng(0), part.shape[1])
        levels = _expanded_levels(part.shape[1])
        low[points], high[points] = np.quantile(aggregate(part[:, rows]), levels, axis=1)
    return value, low, high


def _expanded_levels(count: int) -> tuple[float, float]:
    """Quantiles of a bootstrap of strata of `count` or more values.

    A bootstrap draws too small a spread from few values, by a factor sqrt((n - 1) / n), and uses
    normal instead of Student-t quantiles; wider levels correct both (Hesterberg, *What Teachers
    Should Know About the Bootstrap*, 2015).
    """
    quantile = special.stdtrit(count - 1, (1 + CONFIDENCE) / 2) * math.sqrt(count / (count - 1))
    tail = float(special.ndtr(-quantile))
    return tail, 1 - tail


def _rows(generator: np.random.Generator, count: int) -> np.ndarray:
    """Draws with replacement, int[resamples, count]."""
    return generator.integers(count, size=(RESAMPLES, count))


def _draws(scores: Scores, generator: np.random.Generator) -> list[np.ndarray]:
    """Per task float[resamples, seeds], drawn within the task."""
    return [task[_rows(generator, len(task))] for task in map(np.asarray, scores)]


def probability_of_improvement(left: Scores, right: Scores) -> Interval:
    """Probability that a seed of `left` beats a seed of `right` on a task, averaged over the tasks;
    a tie counts half.

    The interval is Newcombe's score interval of the Mann-Whitney statistic (*Statistics in
    Medicine* 25, 2006, method 5): it holds every probability p that the variance at p, summed over
    the tasks, does not exclude. Unlike a bootstrap it has a width where all seeds of one side win.
    """
    chances = [
        (np.sign(one[:, None] - other[None, :]).mean() + 1) / 2
        for one, other in zip(left, right, strict=True)
    ]
    value = float(np.mean(chances))
    sizes = [(len(one), len(other)) for one, other in zip(left, right, strict=True)]
    degrees = sum(ours + theirs - 2 for ours, theirs in sizes)
    if degrees == 0:
        return Interval(value, 0.0, 1.0)
    quantile = special.stdtrit(degrees, (1 + CONFIDENCE) / 2)

    def excess(p: float) -> float:
        """Above 0 where p is excluded."""
        variance = 0.0
        for ours, theirs in sizes:
            others = (ours + theirs) / 2 - 1
            shared = 1 + others * ((1 - p) / (2 - p) + p / (1 + p))
            variance += p * (1 - p) * shared / (ours * theirs)
        return (value - p) ** 2 - quantile**2 * variance / len(sizes) ** 2

    # Where one side always wins, the variance is 0 at that end and positive beside it.
    low = optimize.brentq(excess, 0.0, min(value, 1 - TINY)) if value > 0 else 0.0
    high = optimize.brentq(excess, max(value, TINY), 1.0) if value < 1 else 1.0
    return Interval(value, float(low), float(high))


def performance_profile(
    scores: Scores, thresholds: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Share of all runs whose score exceeds each threshold: value, low and high end, each [K].

    Each interval is Clopper's and Pearson's exact one of all runs together. Runs of different tasks
    succeed with different probabilities, which makes their number vary less than the binomial
    distribution says: the interval covers at least 95 %.
    """
    together = np.concatenate(list(scores))
    above = (together > thresholds[:, None]).sum(axis=1)
    below, tail = together.size - above, (1 - CONFIDENCE) / 2
    # Quantiles of the beta distribution; where all or none are above there is one end only.
    low = special.betaincinv(np.maximum(above, 1), below + 1, tail)
    high = special.betaincinv(above + 1, np.maximum(below, 1), 1 - tail)
    return above / together.size, np.where(above == 0, 0.0, low), np.where(below == 0, 1.0, high)


def verdict(difference: Interval, margin: float) -> Verdict:
    """Whether a difference is positive, negative, or smaller than `margin` in either direction.

    "equivalent" is decided first: a difference that is sure but smaller than the margin does not
    matter. "undecided" is neither, or a difference in which seeds do not vary: more are needed.
    """
    if not difference.has_width:
        return "undecided"
    if -margin < difference.low and difference.high < margin:
        return "equivalent"
    if difference.low > 0:
        return "better"
    return "worse" if difference.high < 0 else "undecided"


def area_under_curve(frames: np.ndarray, curves: np.ndarray, until: float) -> np.ndarray:
    """Mean height of curves [seeds, T] from frame 0 to `until`, per seed.

    Straight lines join measured points; before the first one the curve has its height. NaN where a
    seed measured nothing.
    """
    areas = np.full(len(curves), np.nan)
    for index, curve in enumerate(curves):
        known = ~np.isnan(curve)
        if known.any():
            inner = frames[(frames > 0) & (frames < until) & known]
            places = np.concatenate([[0.0], inner, [until]])
            heights = np.interp(places, frames[known], curve[known])
            areas[index] = np.trapezoid(heights, places) / until
    return areas


def frames_to_reach(frames: np.ndarray, curves: np.ndarray, threshold: float) -> np.ndarray:
    """First frame from which each of the curves [seeds, T] is at `threshold` or above at two points
    in a row; infinite where it never is.

    One point alone may be luck: a noisy curve exceeds its own height somewhere.
    """
    reached = curves >= threshold
    if reached.shape[1] > 1:
        reached = np.pad(reached[:, :-1] & reached[:, 1:], ((0, 0), (0, 1)))
    return np.where(reached.any(axis=1), frames[reached.argmax(axis=1)], np.inf)


@dataclass(frozen=True)
class Ratio:
    """How many times as many frames a baseline needs, with a 95 % interval."""

    interval: Interval
    bound: Literal["", "at least", "at most", "uncertain"] = ""
    """What seeds that never got there make of the numbers: the baseline's make them lower bounds,
    the method's make them upper bounds, and both together say nothing sure."""


def frames_ratio(
    baseline: np.ndarray, method: np.ndarray, budgets: tuple[float, float]
) -> Ratio | None:
    """Mean frames of the baseline's seeds over those of the method's; above 1 the method is faster.

    Seeds that never got there (infinite) count as their method's budget, the least they would have
    needed; where both methods have such seeds, all count up to the smaller budget, lest the longer
    run looks slower. None if no seed got there within it. The interval is Welch's t interval of the
    logarithm of the ratio (delta method); without width where each side's seeds got there in one
    window.
    """
    missing = bool(np.isinf(baseline).any()), bool(np.isinf(method).any())
    if all(missing):
        budgets = (min(budgets),) * 2
        if min(baseline.min(), method.min()) > budgets[0]:
            return None
    sides = [
        np.minimum(x, b) if np.isinf(x).any() else x
        for x, b in zip((baseline, method), budgets, strict=True)
    ]
    bounds: dict[tuple[bool, bool], Literal["", "at least", "at most", "uncertain"]] = {
        (False, False): "",
        (True, False): "at least",
        (False, True): "at most",
        (True, True): "uncertain",
    }
    return Ratio(_ratio_of_means(*sides), bounds[missing])


def _ratio_of_means(over: np.ndarray, under: np.ndarray) -> Interval:
    """Of positive numbers."""
    value = float(over.mean() / under.mean())
    sizes = np.array([over.size, under.size])
    if sizes.min() < 2:
        return Interval(value, 0.0, math.inf)
    relative = np.array([side.var(ddof=1) / side.size / side.mean() ** 2 for side in (over, under)])
    factor = math.exp(welch_half_width(relative, sizes))
    return Interval(value, value / factor, value * factor)
