"""The order of low-level instructions in successes, against plain loops."""

import jax
import jax.numpy as jnp
import numpy as np
from test_ella import L, fresh_ledger, paying, trajectory_of

from ella.shaping import precedence
from ella.shaping.precedence import Precedence


def test_counts_equal_plain_loops():
    rng = np.random.default_rng(0)
    completed = rng.random((4, 3, L)) < 0.6
    at = rng.integers(0, 5, (4, 3, L)).astype(np.int32)
    success = rng.random((4, 3)) < 0.5
    before, counts = np.zeros((L, L)), np.zeros(L)
    for row in zip(*np.nonzero(success), strict=True):
        for b in np.flatnonzero(completed[row]):
            counts[b] += 1
            for a in np.flatnonzero(completed[row]):
                before[a, b] += at[row][a] < at[row][b]
    observe = jax.jit(precedence.observe)
    known = observe(precedence.nothing_known(L), completed, at, success)
    twice = observe(known, completed, at, success)
    np.testing.assert_array_equal(known.before, before)
    np.testing.assert_array_equal(known.completed, counts)
    np.testing.assert_array_equal(twice.before, 2 * before)


def test_few_successes_order_nothing():
    before = jnp.zeros((L, L)).at[0, 1].set(19.0)
    known = Precedence(before, jnp.zeros(L).at[1].set(19.0))
    assert not precedence.predecessors(known).any()
    more = Precedence(before.at[0, 1].set(18.0), jnp.zeros(L).at[1].set(20.0))
    assert np.argwhere(precedence.predecessors(more)).tolist() == [[0, 1]]


def test_a_bonus_waits_for_what_comes_first_in_successes():
    # Instruction 0 precedes 1. Both hold at all times in the first environment, in the second 1
    # holds before 0 does, in the third 0 is not relevant.
    known = Precedence(jnp.zeros((L, L)).at[0, 1].set(100.0), jnp.full(L, 100.0))
    steps, environments = 4, 3
    holds = np.zeros((steps, environments, L), bool)
    holds[:, 0, :2] = True
    holds[:, 1, 1] = True
    holds[2:, 1, 0] = True
    holds[:, 2, 1] = True
    relevant = np.ones((steps, environments, L), bool)
    relevant[:, 2, 0] = False
    nothing = np.zeros((steps, environments), bool)
    rollout = trajectory_of(nothing, 0.0 * nothing, nothing, nothing)
    shaper = paying(bonus=1.0, in_order=True)
    ledger = fresh_ledger(environments)
    ledger = type(ledger)(
        ledger.completed, ledger.settled, ledger.owed, jnp.zeros((environments, L), jnp.int32)
    )
    after, account = shaper.keep_account(
        ledger, rollout, jnp.asarray(holds), jnp.asarray(relevant), known,
        jnp.arange(10, 10 + steps, dtype=jnp.int32),
    )  # fmt: skip
    earned = np.asarray(account.earned)
    assert np.argwhere(earned[:, 0]).tolist() == [[0, 0], [0, 1]]
    assert np.argwhere(earned[:, 1]).tolist() == [[2, 0], [2, 1]]
    assert np.argwhere(earned[:, 2]).tolist() == [[0, 1]]
    assert np.asarray(after.completed_at)[1, :2].tolist() == [12, 10]
