"""The relevance classifier's comparisons."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ella.errors import InputError
from ella.networks.relevance import RelevanceClassifier, relevance_matrix
from ella.networks.settings import RelevanceNetworkSettings
from ella.world.tasks import find

HIGH, LOW = find("unlock-maze").language, find("pick-maze").language
HIGH_TOKENS, LOW_TOKENS = HIGH.tokens(jnp.arange(6)), LOW.tokens(jnp.arange(36))
matrix = eqx.filter_jit(relevance_matrix)


def small(comparison: str) -> RelevanceClassifier:
    settings = RelevanceNetworkSettings(comparison, hidden_size=16, output_size=8)
    return RelevanceClassifier(settings, key=jax.random.key(0))


def test_l1_is_the_distance_of_the_embeddings():
    classifier = small("l1")
    logs, other_logs = matrix(classifier, HIGH_TOKENS, LOW_TOKENS)
    high = classifier.embed_high(HIGH_TOKENS[2:3])[0]
    low = classifier.embed_low(LOW_TOKENS[30:31])[0]
    probability = np.exp(-np.abs(np.asarray(high) - np.asarray(low)).sum())
    assert float(jnp.exp(logs[2, 30])) == pytest.approx(probability, rel=1e-4)
    np.testing.assert_allclose(np.exp(logs) + np.exp(other_logs), 1.0, rtol=1e-4)


def test_padding_does_not_count():
    classifier = small("l1")
    padded = jnp.pad(HIGH_TOKENS, [(0, 0), (0, 7)])
    one, _ = matrix(classifier, HIGH_TOKENS, LOW_TOKENS)
    other, _ = matrix(classifier, padded, LOW_TOKENS)
    np.testing.assert_allclose(one, other, rtol=1e-5)


def test_identical_embeddings_keep_losses_finite():
    classifier = small("l1")
    point = jnp.ones(8)
    value, gradient = jax.value_and_grad(lambda x: classifier.compare(x, point)[1])(point)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


def test_concatenation_can_tell_which_colours_match():
    truth = np.array([[high == low // 3 % 6 for low in range(36)] for high in range(6)])
    optimiser = optax.adam(1e-2)

    def loss(classifier):
        yes, no = relevance_matrix(classifier, HIGH_TOKENS, LOW_TOKENS)
        return -(jnp.where(truth, 5 * yes, no)).mean()

    def step(carry, _):
        classifier, state = carry
        updates, state = optimiser.update(eqx.filter_grad(loss)(classifier), state)
        return (eqx.apply_updates(classifier, updates), state), None

    classifier = small("concat")
    (classifier, _), _ = jax.jit(lambda carry: jax.lax.scan(step, carry, length=300))(
        (classifier, optimiser.init(classifier))
    )
    logs, other_logs = matrix(classifier, HIGH_TOKENS, LOW_TOKENS)
    np.testing.assert_allclose(np.exp(logs) + np.exp(other_logs), 1.0, rtol=1e-4)
    assert ((np.asarray(logs) > np.log(0.5)) == truth).mean() > 0.95


def test_bad_settings_are_refused():
    with pytest.raises(InputError, match="comparison"):
        RelevanceNetworkSettings(comparison="cosine")
    with pytest.raises(InputError, match="must be >= 1"):
        RelevanceNetworkSettings(hidden_size=0)
