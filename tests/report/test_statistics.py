"""The report's statistics against closed forms, brute force and scipy."""

import itertools

import numpy as np
import pytest
from scipy import stats

from ella.intervals import Interval
from ella.report import statistics


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 11])
def test_interquartile_mean_is_the_trimmed_mean(count):
    values = np.random.default_rng(count).normal(size=(3, count))
    expected = stats.trim_mean(values, 0.25, axis=-1)
    np.testing.assert_allclose(statistics.interquartile_mean(values), expected)


def test_interquartile_mean_ignores_an_outlier():
    assert statistics.interquartile_mean(np.array([0.4, 0.5, 0.6, 1e9])) == pytest.approx(0.55)


def test_point_estimates_are_rliables():
    """rliable flattens runs and tasks for the interquartile mean and the profile, and averages
    over tasks the share of pairs of runs that are won, a tie counting half. Worked out by hand."""
    method = [np.array([0.1, 0.4, 0.6, 0.7]), np.array([0.9, 0.8, 0.8, 1.0])]
    baseline = [np.array([0.2, 0.4, 0.5, 0.3]), np.array([0.8, 0.7, 0.9, 0.6])]
    aggregate = statistics.bootstrap_interval(method, statistics.interquartile_mean)
    assert aggregate.value == pytest.approx((0.6 + 0.7 + 0.8 + 0.8) / 4)
    chance = statistics.probability_of_improvement(method, baseline)
    assert chance.value == pytest.approx((10.5 / 16 + 12.5 / 16) / 2)
    share, _, _ = statistics.performance_profile(method, np.array([0.0, 0.5, 0.8, 0.9, 1.0]))
    np.testing.assert_allclose(share, [1, 6 / 8, 2 / 8, 1 / 8, 0])


def test_bootstrap_interval_agrees_with_all_possible_draws():
    values = np.array([0.0, 0.1, 0.35, 0.8, 1.0])
    draws = np.array(list(itertools.product(values, repeat=len(values))))
    # Student-t's 97.5 % quantile of 4 degrees of freedom is 2.776.
    tail = stats.norm.cdf(-2.776 * np.sqrt(5 / 4))
    exact = np.quantile(statistics.interquartile_mean(draws), (tail, 1 - tail))
    found = statistics.bootstrap_interval([values], statistics.interquartile_mean)
    np.testing.assert_allclose((found.low, found.high), exact, atol=0.05)


def test_bootstrap_is_stratified():
    # Tasks differ, seeds within a task do not: a stratified draw can change nothing.
    scores = [np.full(3, 0.1), np.full(5, 0.9)]
    found = statistics.bootstrap_interval(scores, statistics.interquartile_mean)
    assert found.low == pytest.approx(found.high) == pytest.approx(found.value)


def test_a_single_seed_bounds_nothing():
    one, more = np.array([0.5]), np.array([0.1, 0.2])
    found = statistics.bootstrap_interval([one, more], statistics.interquartile_mean, (0, 1))
    assert (found.low, found.high) == (0, 1)
    chance = statistics.probability_of_improvement([one], [np.array([0.1])])
    assert (chance.value, chance.low, chance.high) == (1, 0, 1)
    ratio = statistics.frames_ratio(one, more, (9, 9))
    assert (ratio.interval.low, ratio.interval.high) == (0, np.inf)


def test_the_band_of_a_curve_is_the_interval_of_every_point():
    curves = np.random.default_rng(0).uniform(size=(6, 4))
    curves[:, 2] = np.nan
    curves[3, 1] = np.nan
    value, low, high = statistics.curve_band(curves, statistics.interquartile_mean)
    for point in (0, 1, 3):
        known = curves[~np.isnan(curves[:, point]), point]
        expected = statistics.bootstrap_interval([known], statistics.interquartile_mean)
        found = (value[point], low[point], high[point])
        np.testing.assert_allclose(found, (expected.value, expected.low, expected.high))
    assert np.isnan([value[2], low[2], high[2]]).all()


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_band_of_few_seeds_is_their_range(count):
    curves = np.random.default_rng(0).uniform(size=(count, 3))
    padded = np.concatenate([curves, np.full((4, 3), np.nan)])
    value, low, high = statistics.curve_band(padded, statistics.interquartile_mean)
    np.testing.assert_array_equal(value, statistics.interquartile_mean(curves.T))
    np.testing.assert_array_equal((low, high), (curves.min(axis=0), curves.max(axis=0)))


def test_probability_of_improvement_is_the_mann_whitney_share():
    generator = np.random.default_rng(1)
    left = [generator.integers(0, 4, 5).astype(float), generator.normal(0.5, 1, 3)]
    right = [generator.integers(0, 4, 4).astype(float), generator.normal(0, 1, 6)]
    expected = np.mean(
        [
            stats.mannwhitneyu(one, other).statistic / (len(one) * len(other))
            for one, other in zip(left, right, strict=True)
        ]
    )
    found = statistics.probability_of_improvement(left, right)
    assert found.value == pytest.approx(expected)
    assert found.low < found.value < found.high
    mirrored = statistics.probability_of_improvement(right, left)
    assert mirrored.value == pytest.approx(1 - found.value)


def newcombe_limit(value, count):
    """The other end of Newcombe's interval of `count` against `count` seeds where all pairs are
    won (`value` 1) or lost (0), on a grid."""
    p = np.linspace(0, 1, 200_001)[1:-1]
    shared = 1 + (count - 1) * ((1 - p) / (2 - p) + p / (1 + p))
    error = stats.t.ppf(0.975, 2 * count - 2) * np.sqrt(p * (1 - p) * shared) / count
    inside = p[np.abs(value - p) <= error]
    return inside.min() if value == 1 else inside.max()


@pytest.mark.parametrize("value", [0, 1])
def test_sure_outcomes_keep_a_width(value):
    left, right = np.full(8, float(value)), np.full(8, 0.5)
    found = statistics.probability_of_improvement([left], [right])
    low, high = sorted((value, newcombe_limit(value, 8)))
    assert (found.value, found.low, found.high) == pytest.approx((value, low, high), abs=1e-4)
    # Six tasks tell more than one.
    more = statistics.probability_of_improvement([left] * 6, [right] * 6)
    assert more.high - more.low < (found.high - found.low) / 2


def test_performance_profile_counts_runs_above():
    scores = [np.array([0.1, 0.5]), np.array([0.5, 0.9])]
    thresholds = np.array([0.0, 0.1, 0.5, 0.9])
    share, low, high = statistics.performance_profile(scores, thresholds)
    np.testing.assert_allclose(share, [1, 0.75, 0.25, 0])
    for index, above in enumerate((4, 3, 1, 0)):
        exact = stats.binomtest(above, 4).proportion_ci(0.95, method="exact")
        assert (low[index], high[index]) == pytest.approx((exact.low, exact.high))


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (-0.04, 0.04, "equivalent"),
        (0.01, 0.04, "equivalent"),
        (0.01, 0.06, "better"),
        (-0.06, -0.01, "worse"),
        (-0.06, 0.01, "undecided"),
        (-0.2, 0.2, "undecided"),
        (0.0, 0.0, "undecided"),
        (0.2, 0.2, "undecided"),
        (-0.2, -0.2 + 1e-12, "undecided"),
    ],
)
def test_verdicts_against_a_margin(low, high, word):
    assert statistics.verdict(Interval((low + high) / 2, low, high), margin=0.05) == word


def test_area_of_known_shapes():
    frames = np.array([0.0, 5.0, 10.0])
    curves = np.array([[0.3, 0.3, 0.3], [0.0, 0.5, 1.0], [0.0, np.nan, 1.0], [np.nan] * 3])
    areas = statistics.area_under_curve(frames, curves, 10.0)
    np.testing.assert_allclose(areas, [0.3, 0.5, 0.5, np.nan])
    np.testing.assert_allclose(statistics.area_under_curve(frames, curves[1:2], 4.0), [0.2])


def test_area_holds_the_first_height_back_to_frame_zero():
    area = statistics.area_under_curve(np.array([4.0, 8.0]), np.array([[0.2, 0.6]]), 8.0)
    np.testing.assert_allclose(area, [(4 * 0.2 + 4 * 0.4) / 8])


def test_frames_to_reach_is_the_first_time_that_is_not_luck():
    frames = np.array([10.0, 20.0, 30.0, 40.0])
    curves = np.array(
        [
            [0.1, 0.6, 0.7, 0.3],
            [0.5, 0.5, 0.5, 0.5],
            [0.1, np.nan, 0.2, 0.49],
            [0.9, 0.1, 0.6, 0.6],
            [0.6, np.nan, 0.1, 0.9],
        ]
    )
    np.testing.assert_array_equal(
        statistics.frames_to_reach(frames, curves, 0.5), [20.0, 10.0, np.inf, 30.0, np.inf]
    )
    np.testing.assert_array_equal(
        statistics.frames_to_reach(frames[:1], curves[:2, :1], 0.5), [np.inf, 10.0]
    )


def test_ratio_of_frames_and_its_interval():
    baseline, method = np.array([8.0, 12.0]), np.array([4.0, 6.0])
    found = statistics.frames_ratio(baseline, method, (20.0, 20.0))
    assert found is not None
    assert found.bound == ""
    assert found.interval.value == pytest.approx(2)
    # Both standard errors are a fifth of the mean; Welch's degrees of freedom are 2.
    factor = np.exp(stats.t.ppf(0.975, 2) * np.sqrt(2 * 0.2**2))
    assert (found.interval.low, found.interval.high) == pytest.approx((2 / factor, 2 * factor))


@pytest.mark.parametrize(
    ("baseline", "method", "bound", "value"),
    [
        ([np.inf, 10.0], [5.0, 5.0], "at least", 3.0),
        ([10.0, 10.0], [np.inf, np.inf], "at most", 0.25),
        ([np.inf, 10.0], [np.inf, 10.0], "uncertain", 1.0),
        ([np.inf, 10.0], [30.0, np.inf], "uncertain", 15 / 20),
    ],
)
def test_seeds_that_never_got_there_make_bounds(baseline, method, bound, value):
    found = statistics.frames_ratio(np.array(baseline), np.array(method), (20.0, 40.0))
    assert found is not None
    assert found.bound == bound
    assert found.interval.value == pytest.approx(value)


def test_no_ratio_where_nobody_got_there():
    never = np.array([np.inf, np.inf])
    assert statistics.frames_ratio(never, never, (1.0, 1.0)) is None
    assert statistics.frames_ratio(never, np.array([3.0, np.inf]), (2.0, 4.0)) is None
