"""The bound on the bonus: the paper's numbers, and policy invariance on brute-forced MDPs."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ella.errors import InputError
from ella.shaping.bound import largest_bonus
from ella.shaping.ella import EpisodeLedger, ella_shaper
from ella.shaping.relevance import OracleRelevance
from ella.shaping.termination import JudgedTermination
from ella.trajectory import InstructionTable, Trajectory
from ella.world.tasks import find


@pytest.mark.parametrize(("steps", "expected"), [(None, 0.0153), (100, 0.0604), (40, 0.267)])
def test_papers_numbers(steps, expected):
    assert largest_bonus(128, 36, steps=steps) == pytest.approx(expected, rel=5e-3)


def test_fewer_completions_allow_more():
    assert largest_bonus(128, 36, max_completions=9) == pytest.approx(4 * largest_bonus(128, 36))


@pytest.mark.parametrize(
    "bad",
    [
        {"steps": 129},
        {"steps": 0},
        {"max_completions": 37},
        {"discount": 0.0},
        {"horizon": 0},
        {"reward_scale": float("inf")},
        {"reward_scale": float("nan")},
    ],
)
def test_nonsense_is_refused(bad):
    with pytest.raises(InputError):
        largest_bonus(**{"horizon": 128, "num_low_level": 36, **bad})


# Small worlds: STATES places, ACTIONS exits each, a goal that ends the episode, and L places that
# each complete a low-level instruction. Episodes last at most H steps, so there are ACTIONS ** H
# action sequences and every history can be enumerated.
STATES, ACTIONS, H, L, GAMMA, SCALE = 5, 2, 6, 3, 0.9, 20.0
GOAL = STATES - 1
SEQUENCES = np.array(list(itertools.product(range(ACTIONS), repeat=H)), np.int32)
NUM = len(SEQUENCES)


REWARD = 1 - 0.9 * np.arange(1, H + 1) / H
"""What a success at each step is paid."""


def random_world(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(where each exit of each place leads, the places that complete an instruction)."""
    rng = np.random.default_rng(seed)
    exits = rng.integers(0, STATES, (STATES, ACTIONS))
    return exits, rng.choice(STATES - 1, L, replace=False)


@partial(jax.jit, static_argnums=0)
def accounts_of(solvency, bonus, success, finished, terminates, discount=GAMMA):
    """Account [H, NUM] of every action sequence, from the code that trains."""
    horizon, num = success.shape
    zero = jnp.zeros((horizon, num), jnp.int32)
    paid = 1 - 0.9 * jnp.arange(1, horizon + 1, dtype=jnp.float32) / horizon
    reward = jnp.where(success, paid[:, None], 0.0)
    rollout = Trajectory(
        observation=(), first=zero == jnp.arange(horizon)[:, None], instruction_row=zero,
        action=zero, reward=reward, terminated=success, truncated=finished, next_observation=(),
        instructions=InstructionTable(jnp.zeros(1, jnp.int32), jnp.zeros((1, 1), jnp.int32)),
    )  # fmt: skip
    nothing = jnp.zeros_like(terminates[0])
    ledger = EpisodeLedger(nothing, nothing, jnp.zeros(num))
    relevant = jnp.ones_like(terminates)
    task = find("putnext-room")
    shaper = ella_shaper(
        task, JudgedTermination(), OracleRelevance(task), bonus=bonus, discount=discount,
        reward_scale=SCALE, solvency=solvency,
    )  # fmt: skip
    return shaper.keep_account(ledger, rollout, terminates, relevant)[1]


def played(
    exits: np.ndarray, places: np.ndarray, bonus: float, solvency: float | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of every action sequence: (shaped reward [H, NUM], success [H, NUM], over [NUM, H + 1])."""
    visited = np.zeros((NUM, H + 1), int)
    for t in range(H):
        visited[:, t + 1] = exits[visited[:, t], SEQUENCES[:, t]]
    over = np.maximum.accumulate(visited == GOAL, axis=1)
    success = (over[:, 1:] & ~over[:, :-1]).T
    terminates = (visited[:, :-1].T[..., None] == places) & ~over[:, :-1].T[..., None]
    finished = np.zeros_like(success)
    finished[-1] = True
    account = accounts_of(solvency, jnp.float32(bonus), success, finished, terminates)
    shaped = np.asarray(account.bonus, np.float64)
    reward = SCALE * REWARD[:, None] * success
    return np.where(over[:, :-1].T, 0.0, reward + shaped), success, over


def optimal_actions(
    exits: np.ndarray, places: np.ndarray, bonus: float, solvency: float | None = None
) -> dict:
    """{history: set of optimal actions} for histories from which the goal can be reached."""
    total, success, over = played(exits, places, bonus, solvency)

    # Sequences are in lexicographic order: histories of length t are blocks of equal prefix.
    best: dict = {}
    value = np.zeros(NUM)
    solvable = np.zeros(NUM, bool)
    for t in reversed(range(H)):
        block = ACTIONS ** (H - t - 1)
        q = (total[t] + GAMMA * value).reshape(-1, ACTIONS, block)[:, :, 0]
        reaches = (solvable | success[t]).reshape(-1, ACTIONS, block)[:, :, 0].any(-1)
        for prefix in np.flatnonzero(reaches & ~over[:: ACTIONS * block, t]):
            best[t, prefix] = frozenset(np.flatnonzero(q[prefix] > q[prefix].max() - 1e-3))
        value = q.max(-1).repeat(ACTIONS * block)
        solvable = reaches.repeat(ACTIONS * block) & ~over[:, t]
    return best


SOLVENCIES = {"as the paper": None, "solvent": 0.9, "strict": 0.5}


@pytest.mark.parametrize("solvency", SOLVENCIES.values(), ids=SOLVENCIES)
@given(st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_below_the_bound_optimal_policies_are_the_same(solvency, seed):
    exits, places = random_world(seed)
    bound = largest_bonus(H, L, GAMMA, SCALE) * (1.0 if solvency is None else solvency)
    plain = optimal_actions(exits, places, 0.0)
    assert optimal_actions(exits, places, 0.95 * bound, solvency) == plain


def best_sequences(total: np.ndarray) -> frozenset[int]:
    """The action sequences with the largest return."""
    returns = (GAMMA ** np.arange(H)) @ total
    return frozenset(np.flatnonzero(returns > returns.max() - 1e-3))


@pytest.mark.parametrize("solvency", SOLVENCIES.values(), ids=SOLVENCIES)
@given(st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_from_the_start_the_bound_of_an_optimal_solution_suffices(solvency, seed):
    exits, places = random_world(seed)
    plain, success, _ = played(exits, places, 0.0)
    assume(success.any())
    steps = int(success.any(1).argmax()) + 1
    bound = largest_bonus(H, L, GAMMA, SCALE, steps=steps) * (solvency or 1.0)
    shaped, _, _ = played(exits, places, 0.95 * bound, solvency)
    assert best_sequences(shaped) == best_sequences(plain)


def test_from_the_start_far_above_that_bound_it_pays_to_wander():
    # Three paid places before the goal, or none.
    exits = np.array([[GOAL, 1], [2, 2], [3, 3], [GOAL, 1], [0, 0]])
    places = np.array([1, 2, 3])
    plain = best_sequences(played(exits, places, 0.0)[0])
    bound = largest_bonus(H, L, GAMMA, SCALE, steps=1)
    assert best_sequences(played(exits, places, 0.85 * bound, 0.9)[0]) == plain
    assert best_sequences(played(exits, places, 3 * bound, 0.9)[0]).isdisjoint(plain)


# The limit of the bound: levels whose first view is the same. By action: where it leads.
SUCCEEDS, PART, NOTHING = range(3)
"""To a success, to a completed low-level instruction and then nowhere, or nowhere."""
LEVELS = {(SUCCEEDS, PART): 0.50, (NOTHING, SUCCEEDS): 0.49, (NOTHING, PART): 0.01}
"""How likely each is; the second action has no effect."""


@pytest.mark.parametrize("solvency", [None, 0.9])
def test_below_the_bound_an_agent_that_cannot_tell_levels_apart_may_prefer_to_fail(solvency):
    horizon, discount, bonus = 2, 0.99, 1.0
    bound = largest_bonus(horizon, 1, discount, SCALE) * (solvency or 1.0)
    assert bound == pytest.approx(1.764 if solvency else 1.960, abs=1e-3)
    assert bonus < bound

    leads_to = np.array(list(LEVELS)).ravel()
    success = np.stack([leads_to == SUCCEEDS, np.zeros_like(leads_to, bool)])
    terminates = np.stack([np.zeros_like(leads_to, bool), leads_to == PART])[..., None]
    finished = np.broadcast_to([[False], [True]], success.shape)

    def returns(bonus: float) -> np.ndarray:
        """Of each action in each level: [levels, actions]."""
        account = accounts_of(
            solvency, jnp.float32(bonus), success, finished, terminates, jnp.float32(discount)
        )
        reward = SCALE * (1 - 0.9 / horizon) * success
        return (discount ** np.arange(horizon) @ (reward + account.bonus)).reshape(-1, ACTIONS)

    plain, shaped = returns(0.0), returns(bonus)
    chances = np.array(list(LEVELS.values()))
    np.testing.assert_allclose(chances @ plain, [5.50, 5.39], atol=1e-3)
    np.testing.assert_allclose(chances @ shaped, [5.50, 5.895], atol=1e-3)
    solvable = plain.any(1)
    assert np.array_equal(plain.argmax(1)[solvable], shaped.argmax(1)[solvable]), "seen whole"


@pytest.mark.parametrize("solvency", SOLVENCIES.values(), ids=SOLVENCIES)
def test_far_above_the_bound_it_pays_to_wander(solvency):
    # From the start one exit reaches the goal; the other leads past three paid places for ever.
    exits = np.array([[GOAL, 1], [2, 2], [3, 3], [0, 1], [0, 0]])
    places = np.array([1, 2, 3])
    plain = optimal_actions(exits, places, 0.0)
    bound = largest_bonus(H, L, GAMMA, SCALE)
    assert plain[0, 0] == {0}
    assert optimal_actions(exits, places, 0.45 * bound, solvency) == plain
    assert optimal_actions(exits, places, 100 * bound, solvency)[0, 0] == {1}


@pytest.mark.parametrize("places", [[0, 1, 2], [1, 2, 3]], ids=["before", "at the last step"])
def test_a_solvent_success_is_never_worse_than_failing(places):
    # Three paid places on the only way to the last choice: the goal, or a dead end. The last choice
    # is made at place 3, and may be paid itself.
    exits = np.array([[1, 1], [2, 2], [3, 3], [GOAL, 0], [0, 0]])
    # No other history can be at the last choice: every way there is paid for three times.
    last_choice = (3, 0)
    above = 100 * largest_bonus(H, L, GAMMA, SCALE)
    assert optimal_actions(exits, np.array(places), 0.0)[last_choice] == {0}
    assert optimal_actions(exits, np.array(places), above)[last_choice] == {1}
    assert optimal_actions(exits, np.array(places), above, 0.9)[last_choice] == {0}


@pytest.mark.parametrize("solvency", [0.9, 0.5])
@given(st.integers(0, 2**32 - 1), st.floats(0.01, 1_000))
@settings(max_examples=40, deadline=None)
def test_a_solvent_success_keeps_its_share_over_failing_whatever_lambda_is(solvency, seed, bonus):
    exits, places = random_world(seed)
    total, success, over = played(exits, places, bonus, solvency)
    step, sequence = np.nonzero(success)
    # Of the two sequences that differ in the action of that step alone.
    other = sequence ^ ACTIONS ** (H - 1 - step)
    fails = ~over[other, step + 1]
    margin = (total[step, sequence] - total[step, other])[fails]
    least = (1 - solvency) * SCALE * REWARD[step[fails]]
    assert (margin > least - 1e-5 * (SCALE + bonus)).all()
