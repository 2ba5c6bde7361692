"""Bonuses, neutralisation and bookkeeping."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_rollouts import random_rollouts, steps_of

import ella
from ella.schedule import LARGEST_COUNT
from ella.shaping import relevance_dataset
from ella.shaping.ella import (
    EllaShaper,
    EllaState,
    EpisodeLedger,
    ella_shaper,
)
from ella.shaping.oracle import low_level_of
from ella.shaping.relevance import OracleRelevance
from ella.shaping.termination import JudgedObservation, JudgedTermination, visible_termination
from ella.trajectory import InstructionTable, Trajectory

L, T, B, ROLLOUTS = 5, 6, 3, 5
LAMBDA, GAMMA, SCALE = 0.25, 0.97, 20.0
SPEC = ella.make("putnext-room").spec


def paying(**settings) -> EllaShaper:
    return ella_shaper(SPEC, JudgedTermination(), OracleRelevance(SPEC), **settings)


def trajectory_of(first, reward, terminated, truncated) -> Trajectory:
    """A rollout of which only the bookkeeping fields matter."""
    zero = jnp.zeros(first.shape, jnp.int32)
    return Trajectory(
        observation=(), first=jnp.asarray(first), instruction_row=zero, action=zero,
        reward=jnp.asarray(reward, jnp.float32), terminated=jnp.asarray(terminated),
        truncated=jnp.asarray(truncated), next_observation=(),
        instructions=InstructionTable(jnp.zeros(1, jnp.int32), jnp.zeros((1, 4), jnp.int32)),
    )  # fmt: skip


def fresh_ledger(num_envs: int) -> EpisodeLedger:
    nothing = jnp.zeros((num_envs, L), bool)
    return EpisodeLedger(nothing, nothing, jnp.zeros(num_envs))


@partial(jax.jit, static_argnums=0)
def account_of(how, ledger, first, reward, terminated, truncated, done_low, relevant):
    rollout = trajectory_of(first, reward, terminated, truncated)
    return how.keep_account(ledger, rollout, done_low, relevant)


def random_history(seed: int) -> dict[str, np.ndarray]:
    """ROLLOUTS * T steps of B environments with episodes of random lengths and outcomes."""
    rng = np.random.default_rng(seed)
    shape = (ROLLOUTS * T, B)
    over = rng.random(shape) < 0.15
    success = over & (rng.random(shape) < 0.6)
    truncated = over & (~success | (rng.random(shape) < 0.2))
    first = np.concatenate([np.ones((1, B), bool), over[:-1]])
    return {
        "first": first,
        "reward": np.where(success, rng.uniform(0.1, 1.0, shape), 0.0),
        "terminated": success,
        "truncated": truncated,
        "done_low": rng.random((*shape, L)) < 0.15,
        "relevant": rng.random((*shape, L)) < 0.6,
    }


def bonuses(how: EllaShaper, history: dict[str, np.ndarray]) -> np.ndarray:
    """The bonus of every step, rollout by rollout with the ledger carried over."""
    ledger, found = fresh_ledger(B), []
    for start in range(0, ROLLOUTS * T, T):
        ledger, account = account_of(
            how, ledger, *(part[start : start + T] for part in history.values())
        )
        found.append(np.asarray(account.bonus, np.float64))
    return np.concatenate(found)


def reference_bonuses(how: EllaShaper, history: dict[str, np.ndarray]) -> np.ndarray:
    """The same, episode by episode with plain sets."""
    result = np.zeros_like(history["reward"], dtype=np.float64)
    for b in range(B):
        paid_at: list[int] = []
        paid_for: set[int] = set()
        seen: set[int] = set()
        for t in range(ROLLOUTS * T):
            if history["first"][t, b]:
                paid_at, paid_for, seen = [], set(), set()
            completed = set(np.flatnonzero(history["done_low"][t, b]))
            relevant = set(np.flatnonzero(history["relevant"][t, b]))
            earned = completed & relevant - (paid_for if how.recheck else seen)
            paid_for |= earned
            seen |= completed
            if earned:
                paid_at.append(t)
                result[t, b] += how.bonus
            if history["terminated"][t, b] and how.neutralise:
                result[t, b] -= how.bonus * sum(how.discount ** (s - t) for s in paid_at)
                if how.solvency is not None:
                    own = how.bonus * (t in paid_at)
                    share = how.solvency * how.reward_scale * history["reward"][t, b]
                    result[t, b] = max(result[t, b], own - share)
    return result


def episodes_of(history: dict[str, np.ndarray]):
    """(environment, start, end) of every episode that ends; end is its last step."""
    for b in range(B):
        start = 0
        for t in range(ROLLOUTS * T):
            if history["terminated"][t, b] or history["truncated"][t, b]:
                yield b, start, t
                start = t + 1


@given(st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([None, 0.9]))
@settings(max_examples=50, deadline=None)
def test_bonuses_equal_plain_sets_across_rollouts(seed, recheck, solvency):
    # Rewards so small that some successes owe more than they bring.
    how = paying(bonus=LAMBDA, discount=GAMMA, recheck=recheck, solvency=solvency, reward_scale=1.0)
    history = random_history(seed)
    np.testing.assert_allclose(
        bonuses(how, history), reference_bonuses(how, history), rtol=1e-4, atol=1e-4
    )


@pytest.mark.thorough
@pytest.mark.parametrize("task", ["openpick-maze", "sequence-maze"])
def test_random_solvent_successes_keep_their_share_over_failing(task):
    spec = ella.world.tasks.find(task)
    ids = low_level_of(spec).language
    how = ella_shaper(
        spec, visible_termination(ids), OracleRelevance(spec, 10**9), bonus=0.5, solvency=0.9
    )
    account_for = jax.jit(how.account)
    state = how.init(256, key=jax.random.key(0))
    paid_last = 0
    for rollout in random_rollouts(spec, steps=64, envs=256, rollouts=20):
        state, account = account_for(state, rollout)
        scaled = how.reward_scale * np.asarray(rollout.reward)
        kept = scaled + account.bonus - how.bonus * np.asarray(account.paid, np.float32)
        assert (kept > 0.1 * scaled - 1e-4)[rollout.success].all()
        paid_last += int((rollout.success & account.paid).sum())
    assert paid_last > 5


def test_what_is_owed_stays_finite():
    """With a discount that compounds in a few steps as others do in hundreds."""
    how, most = paying(bonus=LAMBDA, discount=1e-8, recheck=True), 0.0
    for seed in range(8):
        history = random_history(seed)
        found, expected = bonuses(how, history), reference_bonuses(how, history)
        assert np.isfinite(found).all()
        modest = expected > -1e29
        np.testing.assert_allclose(found[modest], expected[modest], rtol=1e-4, atol=1e-4)
        assert (found[~modest] < -1e29).all()
        most = min(most, expected.min())
    assert most < -1e38


@given(st.integers(0, 2**32 - 1), st.booleans())
@settings(max_examples=50, deadline=None)
def test_successes_return_what_they_would_without_shaping(seed, recheck):
    how = paying(bonus=LAMBDA, discount=GAMMA, recheck=recheck)
    history = random_history(seed)
    bonus = bonuses(how, history)
    for b, start, end in episodes_of(history):
        discounts = GAMMA ** np.arange(end - start + 1)
        shaped = SCALE * history["reward"][start : end + 1, b] + bonus[start : end + 1, b]
        plain = discounts @ (SCALE * history["reward"][start : end + 1, b])
        if history["terminated"][end, b]:
            assert discounts @ shaped == pytest.approx(plain, abs=1e-4)
        else:
            assert set(np.round(bonus[start : end + 1, b], 6)) <= {0.0, LAMBDA}


def test_a_step_pays_once_and_an_instruction_once_an_episode():
    history = random_history(0)
    history |= {key: np.zeros_like(history[key]) for key in ("terminated", "truncated", "reward")}
    history["first"][1:] = False
    history["done_low"][:] = False
    history["relevant"][:] = True
    history["done_low"][2, 0, :3] = True
    history["done_low"][3:, 0, :3] = True
    history["done_low"][T + 2, 0, 4] = True
    bonus = bonuses(paying(bonus=LAMBDA, discount=GAMMA), history)
    assert np.flatnonzero(bonus[:, 0]).tolist() == [2, T + 2]
    assert bonus[[2, T + 2], 0].tolist() == [LAMBDA, LAMBDA]
    assert not bonus[:, 1:].any()


def test_relevance_is_rechecked_or_not():
    history = random_history(0)
    history |= {key: np.zeros_like(history[key]) for key in ("terminated", "truncated", "reward")}
    history["first"][1:] = False
    history["done_low"][:] = False
    history["done_low"][[1, 4], 0, 2] = True
    history["relevant"][:2] = False
    history["relevant"][2:] = True
    rechecked = bonuses(paying(bonus=LAMBDA, discount=GAMMA, recheck=True), history)
    once = bonuses(paying(bonus=LAMBDA, discount=GAMMA, recheck=False), history)
    assert np.flatnonzero(rechecked).size == 1
    assert rechecked[4, 0] == LAMBDA
    assert not once.any()


@pytest.mark.parametrize(
    ("neutralise", "solvency", "expected"),
    [
        (True, None, (6, 0.5, (3 - 4) / 2)),
        (True, 0.9, ((6 + 0.9 * 2) / 2, 0.5, (3 + 0.1 * 2) / 2)),
        (True, 0.5, ((0.5 * 9 - 1 + 0.5 * 2) / 2, 1.0, (0.5 * 9 + 1 + 0.5 * 2) / 2)),
        (False, None, (0, 0, (10 + 2) / 2)),
    ],
)
def test_successes_are_accounted_for(neutralise, solvency, expected):
    # Two bonuses of 1 before the last step of a success, compounded by 1 / 0.5 a step: 2 and 4.
    # The first environment's last step earns another one, which it keeps where the charge is
    # limited; the second times out, and the third's success brings less than its charge.
    low, last = np.zeros((3, 3, L), bool), np.array([[False], [False], [True]])
    low[0, :, 0] = low[1, :, 1] = low[2, 0, 2] = True
    rollout = trajectory_of(
        first=~last & [[True], [False], [False]],
        reward=last * [0.9, 0.0, 0.2],
        terminated=last & [True, False, True],
        truncated=last & [False, True, False],
    )
    how = paying(
        bonus=1.0, discount=0.5, reward_scale=10.0, neutralise=neutralise, solvency=solvency
    )
    everything = jnp.ones((3, 3, L), bool)
    _, account = how.keep_account(fresh_ledger(3), rollout, jnp.asarray(low), everything)
    measured = how.success_measurements(rollout, account)
    means = {name: float(mean.total / mean.count) for name, mean in measured.items()}
    names = ("success_charge", "insolvent_successes", "success_net_reward")
    assert means == pytest.approx(dict(zip(names, expected, strict=True)))


@pytest.mark.parametrize("last_state", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_what_the_last_action_carries_out_is_remembered_on_request_and_never_paid(last_state):
    spec = ella.world.tasks.find("putnext-room")
    low = low_level_of(spec).language.num_ids
    shaper = ella_shaper(
        spec,
        JudgedTermination(),
        OracleRelevance(spec, after_frames=100),
        bonus=LAMBDA,
        discount=1.0,
        last_state=last_state,
    )
    # Three steps; the second environment fails. The last action carries out instruction 2.
    seen, shown = np.zeros((2, 3, 2, low), bool)
    seen[1, :, 0] = shown[0, :, 0] = shown[2, :, 2] = True
    last = np.array([[False], [False], [True]])
    rollout = replace(
        trajectory_of(
            first=np.array([[True] * 2, [False] * 2, [False] * 2]),
            reward=last * [1.0, 0.0],
            terminated=last & [True, True],
            truncated=np.zeros((3, 2), bool),
        ),
        observation=JudgedObservation(jnp.asarray(seen)),
        next_observation=JudgedObservation(jnp.asarray(shown)),
    )
    shape = jax.jit(lambda key, rollout: shaper.shape(shaper.init(2, key=key), rollout))
    state, bonus, _ = shape(jax.random.key(0), rollout)
    np.testing.assert_allclose(bonus, LAMBDA * np.array([[0, 0], [1, 1], [-1, 0]]), atol=1e-6)
    found = relevance_dataset.decompositions(state.dataset, jnp.zeros(1, jnp.int32), low)[0]
    assert np.flatnonzero(found).tolist() == ([0, 2] if last_state else [0])


@pytest.fixture(scope="module")
def played():
    """A shaper with visible terminations and the oracle, and a rollout of random actions."""
    env = ella.make("putnext-room")
    low = low_level_of(SPEC).language
    oracle = OracleRelevance(SPEC, after_frames=12 * 8)
    shaper = ella_shaper(SPEC, visible_termination(low), oracle)

    def play(key):
        start_key, action_key = jax.random.split(key)
        vector = env.start(start_key, 8, 16)
        table = env.instruction_table(vector)

        def step(vector, action):
            after, moved = env.step_vector(vector, action)
            # Rewards are rare under random actions; call some steps a success.
            lucky = (action == 6) & (vector.instruction_row % 2 == 0)
            return after, {
                "observation": vector.observation.without_instruction,
                "first": vector.first,
                "instruction_row": vector.instruction_row,
                "action": action,
                "reward": jnp.where(lucky, 0.5, moved.reward),
                "terminated": moved.terminated | lucky,
                "truncated": moved.truncated,
                "next_observation": moved.next_observation.without_instruction,
            }

        actions = jax.random.choice(action_key, jnp.array([0, 1, 2, 2, 2, 6]), (24, 8))
        _, steps = jax.lax.scan(step, vector, actions)
        return Trajectory(**steps, instructions=table)

    return shaper, jax.jit(play)(jax.random.key(3))


def test_shape_equals_one_step_at_a_time(played):
    shaper, rollout = played
    shape = jax.jit(lambda state, part: shaper.shape(state, part))
    start = shaper.init(8, key=jax.random.key(0))
    whole_state, whole, _ = shape(start, rollout)
    state, parts = start, []
    for t in range(24):
        state, bonus, _ = shape(state, steps_of(rollout, t, t + 1))
        parts.append(bonus)
    np.testing.assert_array_equal(whole, np.concatenate(parts))
    for one, other in zip(jax.tree.leaves(whole_state), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(one, other)
    assert np.count_nonzero(whole) > 0
    assert int(whole_state.dataset.num_seen) > 0
    assert int(whole_state.steps) == 24


def test_everything_pays_before_the_oracle_takes_over(played):
    shaper, rollout = played
    state = shaper.init(8, key=jax.random.key(0))
    _, account = jax.jit(lambda s, r: shaper.account(s, r))(state, rollout)
    earned = np.asarray(account.earned)
    ids = np.asarray(rollout.instruction_id)
    truth = np.asarray(shaper.relevance.probability((), jnp.arange(SPEC.language.num_ids)))[ids]
    assert (earned[:12] & (truth[:12] == 0)).any()
    assert not (earned[12:] & (truth[12:] == 0)).any()


def test_steps_beyond_the_largest_count_stay_there(played):
    shaper, rollout = played
    state = replace(shaper.init(8, key=jax.random.key(0)), steps=jnp.int32(LARGEST_COUNT - 12))
    account = jax.jit(lambda s, r: shaper.account(s, r))
    state, found = account(state, rollout)
    assert int(state.steps) == LARGEST_COUNT
    ids = np.asarray(rollout.instruction_id)
    truth = np.asarray(shaper.relevance.probability((), jnp.arange(SPEC.language.num_ids)))[ids]
    assert not (np.asarray(found.earned) & (truth == 0)).any()
    assert int(account(state, rollout)[0].steps) == LARGEST_COUNT


def test_measurements_count_what_happened(played):
    shaper, rollout = played
    state: EllaState = shaper.init(8, key=jax.random.key(0))
    state, _, measurements = jax.jit(lambda s, r: shaper.shape(s, r))(state, rollout)
    _, account = jax.jit(lambda s, r: shaper.account(s, r))(
        shaper.init(8, key=jax.random.key(0)), rollout
    )
    done = np.asarray(rollout.done)
    assert float(measurements["bonus_per_episode"].count) == done.sum()
    assert float(measurements["bonus_per_episode"].total) == pytest.approx(
        0.25 * np.asarray(account.paid).sum()
    )
    assert (
        float(measurements["low_level_completions"].total)
        == np.asarray(account.completed)[done].sum()
    )
    assert float(measurements["instructions_seen"].total) == int(state.dataset.num_seen)
