"""The ring of successes against a plain queue, and firing rates against plain counts."""

from collections import deque

import jax
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ella.shaping import recent_successes

CAPACITY, L, T, B = 7, 40, 4, 3

record = jax.jit(recent_successes.record)
count = jax.jit(recent_successes.count_episodes)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.1, 0.5, 1.0]))
@settings(max_examples=30, deadline=None)
def test_equals_a_queue(seed, chance):
    rng = np.random.default_rng(seed)
    ring, queue = recent_successes.empty(CAPACITY, L), deque(maxlen=CAPACITY)
    for _ in range(3):
        ids = rng.integers(0, 100, (T, B)).astype(np.int32)
        completed, success = rng.random((T, B, L)) < 0.3, rng.random((T, B)) < chance
        ring = record(ring, ids, completed, success)
        queue.extend(zip(ids[success], map(tuple, completed[success]), strict=True))
        kept = int(ring.count)
        bits = np.asarray(recent_successes.completions(ring, L))[:kept]
        held = set(zip(np.asarray(ring.ids)[:kept].tolist(), map(tuple, bits), strict=True))
        assert kept == len(queue)
        assert held == set(queue)


def test_rates_are_those_of_episodes_that_ended():
    rng = np.random.default_rng(0)
    completed, done = rng.random((T, B, L)) < 0.3, rng.random((T, B)) < 0.5
    rates = count(recent_successes.no_episodes(L), completed, done)
    assert not np.asarray(rates.rate).any()
    updated = recent_successes.updated(rates)
    np.testing.assert_allclose(updated.rate, completed[done].mean(0), rtol=1e-6)
    # Later episodes count more than those before the update.
    later = recent_successes.updated(count(updated, np.ones((T, B, L), bool), done))
    share = (0.5 * completed[done].mean(0) + 1) / 1.5
    np.testing.assert_allclose(later.rate, share, rtol=1e-6)


def test_rates_stay_while_no_episode_ends():
    rng = np.random.default_rng(0)
    completed, done = rng.random((T, B, L)) < 0.3, rng.random((T, B)) < 0.5
    rates = recent_successes.updated(count(recent_successes.no_episodes(L), completed, done))
    later = rates
    for _ in range(200):
        later = recent_successes.updated(later)
    np.testing.assert_array_equal(later.rate, rates.rate)
    # New episodes still count more than those before.
    later = recent_successes.updated(count(later, np.ones((T, B, L), bool), done))
    assert (later.rate > (rates.rate + 1) / 2).all()
