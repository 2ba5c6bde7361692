"""Statistics of a few seeds on a few tasks, with 95 % stratified bootstrap intervals.

Scores come as one array per task (a stratum), with one value per seed. A bootstrap draws seeds with
replacement within each task, so that every task keeps its weight. The aggregates are those of
Agarwal et al., *Deep Reinforcement Learning at the Edge of the Statistical Precipice* (2021).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ella.intervals import Estimate

RESAMPLES = 2000
THRESHOLDS = (0.25, 0.5, 0.9)
"""Success rates whose first frames are compared."""
_LEVELS = (0.025, 0.975)

Scores = Sequence[np.ndarray]
"""Per task float[seeds]; tasks may have different numbers of seeds."""
Aggregate = Callable[[np.ndarray], np.ndarray]
"""Reduces the last axis."""


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """Mean of the middle half along the last axis: a quarter of the values, rounded down, is
    dropped at each end. Of three values or fewer it is the mean."""
    cut = values.shape[-1] // 4
    ordered = np.sort(values, axis=-1)
    return ordered[..., cut : values.shape[-1] - cut].mean(axis=-1)


def mean(values: np.ndarray) -> np.ndarray:
    """Along the last axis."""
    return values.mean(axis=-1)


def aggregate_interval(scores: Scores, aggregate: Aggregate, *, seed: int = 0) -> Estimate:
    """An aggregate of all scores together, with its interval."""
    drawn = np.concatenate(_draws(scores, np.random.default_rng(seed)), axis=-1)
    return _estimate(aggregate(np.concatenate(list(scores))), aggregate(drawn))


def curve_interval(
    curves: np.ndarray, aggregate: Aggregate, *, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Aggregate over seeds of curves [seeds, T]: its value, low and high end, each [T].

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
        rows = _rows(np.random.default_rng(seed), part.shape[1])
        value[points] = aggregate(part)
        low[points], high[points] = np.quantile(aggregate(part[:, rows]), _LEVELS, axis=1)
    return value, low, high


def probability_of_improvement(left: Scores, right: Scores, *, seed: int = 0) -> Estimate:
    """Chance that a seed of `left` beats a seed of `right` on a task, averaged over the tasks; a
    tie counts half."""
    generator = np.random.default_rng(seed)

    def chance(left_scores: Scores, right_scores: Scores) -> np.ndarray:
        per_task = []
        for one, other in zip(left_scores, right_scores, strict=True):
            ahead = np.sign(one[..., :, None] - other[..., None, :])
            per_task.append((ahead.mean(axis=(-2, -1)) + 1) / 2)
        return np.mean(per_task, axis=0)

    drawn = chance(_draws(left, generator), _draws(right, generator))
    return _estimate(chance(left, right), drawn)


def performance_profile(
    scores: Scores, thresholds: np.ndarray, *, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Share of all runs whose score exceeds each threshold: value, low and high end, each [K]."""
    drawn = np.concatenate(_draws(scores, np.random.default_rng(seed)), axis=-1)
    together = np.concatenate(list(scores))
    shares = np.stack([(drawn > threshold).mean(axis=-1) for threshold in thresholds])
    low, high = np.quantile(shares, _LEVELS, axis=1)
    return (together > thresholds[:, None]).mean(axis=1), low, high


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

    estimate: Estimate
    bound: Literal["", "at least", "at most", "uncertain"] = ""
    """What seeds that never got there make of the numbers: the baseline's make them lower bounds,
    the method's make them upper bounds, and both together say nothing sure."""


def frames_ratio(
    baseline: np.ndarray,
    method: np.ndarray,
    budgets: tuple[float, float],
    *,
    seed: int = 0,
) -> Ratio | None:
    """Mean frames of the baseline's seeds over those of the method's; above 1 the method is faster.

    Seeds that never got there (infinite) count as their method's budget, the least they would have
    needed. None if no seed at all got there.
    """
    if np.isinf(baseline).all() and np.isinf(method).all():
        return None
    generator = np.random.default_rng(seed)
    sides = [np.where(np.isinf(x), b, x) for x, b in zip((baseline, method), budgets, strict=True)]
    drawn = [_draws([side], generator)[0].mean(axis=-1) for side in sides]
    estimate = _estimate(sides[0].mean() / sides[1].mean(), drawn[0] / drawn[1])
    missing = bool(np.isinf(baseline).any()), bool(np.isinf(method).any())
    bounds: dict[tuple[bool, bool], Literal["", "at least", "at most", "uncertain"]] = {
        (False, False): "",
        (True, False): "at least",
        (False, True): "at most",
        (True, True): "uncertain",
    }
    return Ratio(estimate, bounds[missing])


def _rows(generator: np.random.Generator, count: int) -> np.ndarray:
    """Draws with replacement, int[resamples, count]."""
    return generator.integers(count, size=(RESAMPLES, count))


def _draws(scores: Scores, generator: np.random.Generator) -> list[np.ndarray]:
    """Per task float[resamples, seeds], drawn within the task."""
    return [task[_rows(generator, len(task))] for task in map(np.asarray, scores)]


def _estimate(value: np.ndarray | float, drawn: np.ndarray) -> Estimate:
    low, high = np.quantile(drawn, _LEVELS)
    return Estimate(float(value), float(low), float(high))
