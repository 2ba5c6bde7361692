"""Intervals against an independent implementation and against their promise."""

import numpy as np
import pytest
from scipy.stats import binomtest

from ella.intervals import Estimate, bootstrap_mean, wilson


@pytest.mark.parametrize(("successes", "trials"), [(0, 10), (10, 10), (37, 100), (499, 500)])
def test_wilson_equals_scipys(successes, trials):
    found = wilson(successes, trials)
    expected = binomtest(successes, trials).proportion_ci(0.95, method="wilson")
    assert found.low == pytest.approx(expected.low, abs=1e-12)
    assert found.high == pytest.approx(expected.high, abs=1e-12)
    assert found.value == successes / trials


def test_bootstrap_covers_the_mean_about_95_times_in_100():
    generator = np.random.default_rng(0)
    hits = 0
    for trial in range(200):
        found = bootstrap_mean(generator.exponential(1.0, 100), seed=trial, resamples=300)
        hits += found.low <= 1.0 <= found.high
    assert 175 <= hits <= 199


def test_overlap():
    assert Estimate(0.5, 0.4, 0.6).overlaps(Estimate(0.65, 0.6, 0.7))
    assert not Estimate(0.5, 0.4, 0.6).overlaps(Estimate(0.8, 0.7, 0.9))
