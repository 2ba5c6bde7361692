"""Intervals against SciPy, and against their promise to cover the truth in 95 of 100 samples."""

import math

import numpy as np
import pytest
from scipy import stats

from ella.intervals import Interval, mean_of_strata, mean_rate, student_t, wilson

SEEDS = 8
SAMPLES = 6_000
LEAST_COVERAGE = 0.93


@pytest.mark.parametrize(("successes", "trials"), [(0, 10), (10, 10), (37, 100), (499, 500)])
def test_wilson_equals_the_closed_form(successes, trials):
    found, z = wilson(successes, trials), stats.norm.ppf(0.975)
    share = successes / trials
    centre = (share + z**2 / (2 * trials)) / (1 + z**2 / trials)
    half = (
        z * math.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2)) / (1 + z**2 / trials)
    )
    assert found.value == share
    assert found.low == pytest.approx(max(0, centre - half), abs=1e-12)
    assert found.high == pytest.approx(min(1, centre + half), abs=1e-12)


def test_nothing_measured_says_nothing():
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0, 1)
    found = student_t(np.array([]), (0, 1))
    assert math.isnan(found.value)
    assert (found.low, found.high) == (0, 1)


def test_student_t_equals_scipys():
    values = np.array([0.2, 0.5, 0.6, 0.9])
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    found = student_t(values)
    assert found.value == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_student_t_stays_within_its_bounds():
    values = np.array([0.0, 1.0, 1.0])
    assert student_t(values).high > 1
    assert (student_t(values, (0, 1)).low, student_t(values, (0, 1)).high) == (0, 1)


def test_one_value_has_no_spread_to_measure():
    assert student_t(np.array([0.5]), (0, 1)) == Interval(0.5, 0, 1)
    assert mean_of_strata([np.array([0.5]), np.array([0.1, 0.2])]).high == math.inf


def test_equal_values_have_an_interval_without_width():
    for values in (np.zeros(2), np.full(3, 0.1), np.full(8, 4.76e6)):
        assert not student_t(values).has_width
    assert student_t(np.array([0.1, 0.1, 0.101])).has_width
    assert student_t(np.array([0.1])).has_width, "one value alone bounds nothing"


def test_two_strata_of_opposite_sign_are_welchs_test():
    left, right = np.array([1.0, 2.0, 4.0, 8.0]), np.array([0.5, 0.6, 0.4, 0.9, 0.2, 0.7])
    expected = stats.ttest_ind(left, right, equal_var=False).confidence_interval(0.95)
    found = mean_of_strata([left, -right])
    assert (2 * found.low, 2 * found.high) == pytest.approx((expected.low, expected.high))


SCORES = {
    "normal": (stats.norm(0.5, 0.1), 0.5),
    "uniform": (stats.uniform(), 0.5),
    "high": (stats.beta(8, 2), 0.8),
    "low": (stats.beta(2, 8), 0.2),
}
"""Distributions of a seed's score, and their means."""


def share_covered(intervals, truth):
    return np.mean([one.low <= truth <= one.high for one in intervals])


@pytest.mark.parametrize("name", SCORES)
def test_student_t_covers_the_mean_with_eight_seeds(name):
    distribution, truth = SCORES[name]
    samples = distribution.rvs((SAMPLES, SEEDS), random_state=0)
    assert share_covered(map(student_t, samples), truth) >= LEAST_COVERAGE


def test_student_t_cannot_cover_what_no_seed_shows():
    """docs/report.md states both limits."""
    generator = np.random.default_rng(0)
    solved = generator.beta(20, 1, (SAMPLES, SEEDS))
    assert 0.88 < share_covered(map(student_t, solved), 20 / 21) < 0.92
    fails = generator.uniform(size=(SAMPLES, SEEDS)) < 0.1
    one_in_ten = np.where(fails, 0.05, 0.95 + generator.normal(0, 0.01, fails.shape))
    assert 0.54 < share_covered(map(student_t, one_in_ten), 0.86) < 0.6


@pytest.mark.parametrize(
    "rate", [0.99, *(pytest.param(rate, marks=pytest.mark.thorough) for rate in (0.5, 0.999))]
)
def test_a_rate_is_covered_also_where_seeds_agree_by_chance(rate):
    trials = np.full(SEEDS, 100)
    samples = np.random.default_rng(0).binomial(100, rate, (1_000, SEEDS))
    found = [mean_rate(successes, trials) for successes in samples]
    assert share_covered(found, rate) >= LEAST_COVERAGE
    if rate == 0.999:
        assert share_covered(map(student_t, samples / 100), rate) < 0.6


def test_a_rate_of_unlike_seeds_has_the_interval_of_their_spread():
    rates, trials = np.array([0.2, 0.5, 0.6, 0.9]), np.array([1_000, 1_000, 1_000, 500])
    assert mean_rate(rates * trials, trials) == student_t(rates, (0, 1))


@pytest.mark.parametrize("names", [("high", "low"), ("normal", "uniform", "high", "low") * 2])
def test_the_mean_of_strata_is_covered_with_eight_seeds_each(names):
    truth = np.mean([SCORES[name][1] for name in names])
    samples = np.stack(
        [
            SCORES[name][0].rvs((SAMPLES // 2, SEEDS), random_state=number)
            for number, name in enumerate(names)
        ],
        axis=1,
    )
    assert share_covered(map(mean_of_strata, samples), truth) >= LEAST_COVERAGE


def test_overlap():
    assert Interval(0.5, 0.4, 0.6).overlaps(Interval(0.65, 0.6, 0.7))
    assert not Interval(0.5, 0.4, 0.6).overlaps(Interval(0.8, 0.7, 0.9))
