"""The report's statistics against closed forms, brute force and scipy."""

import itertools

import numpy as np
import pytest
from scipy import stats

from ella.report import statistics


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 11])
def test_interquartile_mean_is_the_trimmed_mean(count):
    values = np.random.default_rng(count).normal(size=(3, count))
    expected = stats.trim_mean(values, 0.25, axis=-1)
    np.testing.assert_allclose(statistics.interquartile_mean(values), expected)


def test_interquartile_mean_ignores_an_outlier():
    assert statistics.interquartile_mean(np.array([0.4, 0.5, 0.6, 1e9])) == pytest.approx(0.55)


def every_draw(values):
    """All equally likely bootstrap samples of a few values."""
    return np.array(list(itertools.product(values, repeat=len(values))))


def test_bootstrap_interval_agrees_with_all_possible_draws():
    values = np.array([0.0, 0.1, 0.35, 0.8, 1.0])
    exact = np.quantile(every_draw(values).mean(axis=1), (0.025, 0.975))
    found = statistics.aggregate_interval([values], statistics.mean)
    assert found.value == pytest.approx(values.mean())
    np.testing.assert_allclose((found.low, found.high), exact, atol=0.04)


def test_bootstrap_is_stratified():
    # Tasks differ, seeds within a task do not: a stratified draw can change nothing.
    scores = [np.full(3, 0.1), np.full(5, 0.9)]
    found = statistics.aggregate_interval(scores, statistics.mean)
    assert found.low == pytest.approx(found.high) == pytest.approx((3 * 0.1 + 5 * 0.9) / 8)


def test_curve_interval_is_the_interval_of_every_point():
    curves = np.random.default_rng(0).uniform(size=(5, 4))
    curves[:, 2] = np.nan
    curves[3, 1] = np.nan
    value, low, high = statistics.curve_interval(curves, statistics.interquartile_mean)
    for point in (0, 1, 3):
        known = curves[~np.isnan(curves[:, point]), point]
        expected = statistics.aggregate_interval([known], statistics.interquartile_mean)
        found = (value[point], low[point], high[point])
        np.testing.assert_allclose(found, (expected.value, expected.low, expected.high))
    assert np.isnan([value[2], low[2], high[2]]).all()


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


@pytest.mark.parametrize(("left", "chance"), [([2.0, 3.0], 1), ([0.0, 0.0], 0), ([1.0, 1.0], 0.5)])
def test_sure_outcomes_have_no_width(left, chance):
    found = statistics.probability_of_improvement([np.array(left)], [np.array([1.0, 1.0])])
    assert (found.value, found.low, found.high) == (chance, chance, chance)


def test_performance_profile_counts_runs_above():
    scores = [np.array([0.1, 0.5]), np.array([0.5, 0.9])]
    thresholds = np.array([0.0, 0.1, 0.5, 0.9])
    share, low, high = statistics.performance_profile(scores, thresholds)
    np.testing.assert_allclose(share, [1, 0.75, 0.25, 0])
    assert (low <= share).all()
    assert (share <= high).all()
    # Within the first task at most both seeds are 0.5, within the second both 0.9.
    assert low[1] == 0.5
    assert high[2] == 0.5


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
    assert found.estimate.value == pytest.approx(2)
    # Of 16 equally likely pairs of draws one is 8/6 and one is 12/4: each more than 2.5 %.
    assert found.estimate.low == pytest.approx(8 / 6)
    assert found.estimate.high == pytest.approx(3)


@pytest.mark.parametrize(
    ("baseline", "method", "bound", "value"),
    [
        ([np.inf, 10.0], [5.0, 5.0], "at least", 3.0),
        ([10.0, 10.0], [np.inf, np.inf], "at most", 0.25),
        ([np.inf, 10.0], [np.inf, 10.0], "uncertain", 15 / 25),
    ],
)
def test_seeds_that_never_got_there_make_bounds(baseline, method, bound, value):
    found = statistics.frames_ratio(np.array(baseline), np.array(method), (20.0, 40.0))
    assert found is not None
    assert found.bound == bound
    assert found.estimate.value == pytest.approx(value)


def test_no_ratio_where_nobody_got_there():
    never = np.array([np.inf, np.inf])
    assert statistics.frames_ratio(never, never, (1.0, 1.0)) is None
