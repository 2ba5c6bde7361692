"""Beliefs learn what most successes complete; unsolved instructions stay relevant."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ella.errors import InputError
from ella.networks.settings import RelevanceNetworkSettings
from ella.shaping import relevance_dataset
from ella.shaping.beliefs import BelievedRelevance
from ella.shaping.low_level import low_level_language, low_level_tasks
from ella.shaping.oracle import oracle_relevance
from ella.shaping.relevance import EpisodeEnds, LearnedRelevance
from ella.shaping.settings import RELEASED_TRAINING, RelevanceSettings, RelevanceTrainingSettings
from ella.trajectory import InstructionTable
from ella.world.tasks import find

SPEC = find("unlock-maze")
LOW = low_level_language(low_level_tasks(SPEC), one_article=True)
WINDOWS = RelevanceNetworkSettings("windows")
TRAINING = RelevanceTrainingSettings(learning_rate=1e-3, max_initial_steps=20)
SETTINGS = RelevanceSettings(
    WINDOWS, TRAINING, update_every=1, max_initial_rounds=100, labels="beliefs",
    recent_successes=2048, fewest_successes=32,
)  # fmt: skip
FEW_ROWS = RelevanceTrainingSettings(
    batch=32, learning_rate=3e-3, max_learning_rate=3e-3, max_initial_steps=50
)
IDS = jnp.arange(SPEC.language.num_ids, dtype=jnp.int32)
TRUTH = np.asarray(oracle_relevance(SPEC, IDS, LOW))
ALWAYS = LOW.find("pick up the grey ball")
"""An instruction that fires in every episode."""
STEPS, ENVS, UPDATES = 4, 64, 8


def judge(**changes) -> BelievedRelevance:
    settings = replace(SETTINGS, **changes)
    learned = LearnedRelevance(SPEC, settings, LOW, measure_unsolved=True)
    return BelievedRelevance(learned).ready_to_learn()


def ends(solved: np.ndarray, seed: int) -> EpisodeEnds:
    """Successes of some instructions, each of which misses a quarter of what is relevant and
    completes a tenth of the rest, and as many failures."""
    rng = np.random.default_rng(seed)
    ids = rng.choice(solved, (STEPS, ENVS)).astype(np.int32)
    success = rng.random((STEPS, ENVS)) < 0.5
    relevant = TRUTH[ids] & success[..., None]
    completed = rng.random(relevant.shape) < np.where(relevant, 0.75, 0.1)
    completed[..., ALWAYS] = True
    return EpisodeEnds(
        jnp.asarray(ids), jnp.asarray(completed), jnp.asarray(success), jnp.ones_like(success)
    )


def learned(relevance: BelievedRelevance, solved: np.ndarray) -> tuple[np.ndarray, dict, object]:
    """(what is relevant [ids, L], measurements, D) after some updates."""
    dataset = relevance_dataset.empty(SPEC.language.num_ids, LOW.num_ids)

    @jax.jit
    def update(state, dataset, episodes, key):
        dataset = relevance_dataset.record(
            dataset, episodes.ids, episodes.completed, episodes.success
        )
        state = relevance.observe(state, episodes)
        state, measured = relevance.fit(
            state, dataset, jnp.int32(0), frames_per_iteration=STEPS * ENVS, key=key
        )
        return state, dataset, measured

    state = jax.jit(lambda key: relevance.init(key=key))(jax.random.key(0))
    assert not any(relevance.start_problems(state).values())
    for index in range(UPDATES):
        state, dataset, measured = update(
            state, dataset, ends(solved, index), jax.random.key(index)
        )
    table = InstructionTable(IDS, SPEC.language.tokens(IDS))
    return np.asarray(relevance.relevant(state, table)), measured, dataset


@pytest.mark.thorough
def test_beliefs_keep_what_intersections_lose():
    called, measured, dataset = learned(judge(), np.asarray(IDS))
    np.testing.assert_array_equal(called, TRUTH)
    assert float(measured["relevance_accuracy"].total) == 1.0
    assert float(measured["relevance_accuracy_unsolved"].count) == 0
    in_all = np.asarray(relevance_dataset.decompositions(dataset, IDS, LOW.num_ids))
    assert (in_all & TRUTH).sum() < TRUTH.sum()


@pytest.mark.thorough
def test_what_fires_in_every_episode_is_relevant_without_base_rates():
    called, _, _ = learned(judge(base_rates=False), np.asarray(IDS))
    np.testing.assert_array_equal(called[:, ALWAYS], True)
    others = np.arange(LOW.num_ids) != ALWAYS
    np.testing.assert_array_equal(called[:, others], TRUTH[:, others])


def test_settings_that_do_not_go_together_are_refused():
    with pytest.raises(InputError, match="fewest_successes"):
        RelevanceSettings(recent_successes=10, fewest_successes=11)
    with pytest.raises(InputError, match="rows"):
        RelevanceSettings(training=RELEASED_TRAINING, labels="beliefs")


def test_shapes_of_the_state_are_those_it_starts_with():
    for relevance in (judge(), judge().learned):
        started = jax.eval_shape(lambda key, one=relevance: one.init(key=key), jax.random.key(0))
        assert relevance.state_shapes() == started
