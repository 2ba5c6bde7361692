"""How fast each way to train the relevance classifier learns from the same decompositions."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_rollouts import WELL_COMPILED

from ella.networks.settings import RelevanceNetworkSettings
from ella.shaping import relevance_dataset
from ella.shaping.oracle import low_level_of, oracle_relevance
from ella.shaping.relevance import LearnedRelevance, learn_from_dataset
from ella.shaping.settings import (
    PRINTED_TRAINING,
    RELEASED_NETWORK,
    RELEASED_TRAINING,
    RelevanceSettings,
    RelevanceTrainingSettings,
)
from ella.world.tasks import find

SPEC = find("putnext-room")
SOLVED = 80
"""Instructions in D."""
BYSTANDERS = 0.13
"""Chance that a success also completes what has to do with another object."""


def accuracies(
    network: RelevanceNetworkSettings, training: RelevanceTrainingSettings, updates: int
) -> list[float]:
    """Balanced accuracy on the other instructions before the first update and after each."""
    relevance = LearnedRelevance(SPEC, RelevanceSettings(network, training)).ready_to_learn()
    order = np.random.default_rng(0).permutation(SPEC.language.num_ids).astype(np.int32)
    solved, unsolved = order[:SOLVED], order[SOLVED:]
    truth = oracle_relevance(SPEC, jnp.asarray(unsolved))
    low = low_level_of(SPEC).language
    # Both articles of an object are completed together.
    objects = [clause.phrases[0].object_class for clause in low.clauses]
    classes, of_class = np.unique(objects, return_inverse=True)
    bystanders = np.random.default_rng(1).random((SOLVED, len(classes))) < BYSTANDERS
    completed = oracle_relevance(SPEC, jnp.asarray(solved)) | bystanders[:, of_class]
    dataset = relevance_dataset.record(
        relevance_dataset.empty(SPEC.language.num_ids, low.num_ids),
        jnp.asarray(solved),
        jnp.asarray(completed),
        jnp.ones(SOLVED, bool),
    )

    @jax.jit
    def accuracy(learner):
        called = relevance.probability(learner, jnp.asarray(unsolved)) > 0.5
        recall = (called & truth).sum() / truth.sum()
        return (recall + 1 - (called & ~truth).sum() / (~truth).sum()) / 2

    @partial(jax.jit, compiler_options=WELL_COMPILED)
    def update(learner, key):
        return learn_from_dataset(
            relevance.settings, learner, dataset, SPEC.language.tokens, relevance.low_tokens,
            key=key,
        )  # fmt: skip

    init = partial(jax.jit, compiler_options=WELL_COMPILED)(lambda key: relevance.init(key=key))
    learner = init(jax.random.key(0))
    found = [float(accuracy(learner))]
    for number in range(updates):
        learner = update(learner, jax.random.key(number))
        found.append(float(accuracy(learner)))
    return found


@pytest.mark.thorough
def test_our_trainer_is_ahead_of_the_released_and_that_of_the_printed():
    """From single successes the released schedule first learns that nothing is relevant."""
    ours = accuracies(RelevanceNetworkSettings(), RelevanceTrainingSettings(), 3)
    released = accuracies(RELEASED_NETWORK, RELEASED_TRAINING, 3)
    printed = accuracies(RELEASED_NETWORK, PRINTED_TRAINING, 3)
    assert ours[0] == released[0] == printed[0] == 0.5
    assert ours[3] > 0.9
    assert released[3] < 0.7
    assert printed[3] < 0.55
