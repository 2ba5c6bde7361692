"""The relevance classifier's comparisons."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ella.errors import InputError
from ella.networks.relevance import (
    RelevanceClassifier,
    WindowRelevanceClassifier,
    relevance_classifier,
    relevance_matrix,
)
from ella.networks.settings import RelevanceNetworkSettings
from ella.world.tasks import find

HIGH, LOW = find("unlock-maze").language, find("pick-maze").language
HIGH_TOKENS, LOW_TOKENS = jnp.asarray(HIGH.all_tokens), jnp.asarray(LOW.all_tokens)
matrix = eqx.filter_jit(relevance_matrix)
made = eqx.filter_jit(lambda settings, key: relevance_classifier(settings, key=key))
embedded = eqx.filter_jit(lambda one, high, low: (one.embed_high(high), one.embed_low(low)))


def small(comparison: str, hidden_size: int = 16, output_size: int = 8) -> RelevanceClassifier:
    settings = RelevanceNetworkSettings(
        comparison, hidden_size=hidden_size, output_size=output_size
    )
    return made(settings, jax.random.key(0))


def test_l1_is_the_distance_of_the_embeddings():
    classifier = small("l1")
    logs, other_logs = matrix(classifier, HIGH_TOKENS, LOW_TOKENS)
    high, low = embedded(classifier, HIGH.all_tokens[2:3], LOW.all_tokens[30:31])
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


@pytest.mark.thorough
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

    classifier = small("concat", hidden_size=32, output_size=16)
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


def by_hand(classifier: WindowRelevanceClassifier, words: list[int]) -> list[np.ndarray]:
    """The vector of every word of a sentence, word by word."""
    size = classifier.words.shape[1]
    found = []
    for end in range(len(words)):
        window = words[max(0, end - classifier.window + 1) : end + 1]
        vectors = [np.zeros(size)] * (classifier.window - len(window))
        vectors += [np.asarray(classifier.words[word]) for word in window]
        hidden = np.asarray(classifier.hidden.weight) @ np.concatenate(vectors)
        hidden = np.maximum(hidden + np.asarray(classifier.hidden.bias), 0)
        found.append(np.asarray(classifier.output.weight) @ hidden + classifier.output.bias)
    return found


def test_windows_take_the_best_match_of_a_word():
    settings = RelevanceNetworkSettings(
        "windows", hidden_size=16, output_size=8, window=3, word_size=4
    )
    classifier = made(settings, jax.random.key(0))
    high, low = [5, 3, 9, 2, 7], [4, 3, 9, 1]
    tokens = jnp.array([[*high, 0, 0]]), jnp.array([[*low, 0]])
    logs, other_logs = matrix(classifier, *tokens)
    last = by_hand(classifier, low)[-1]
    logit = np.log(sum(np.exp(vector @ last) for vector in by_hand(classifier, high))) - 2
    assert float(logs[0, 0] - other_logs[0, 0]) == pytest.approx(logit, rel=1e-4)
    # What a window shows does not depend on what comes after it.
    longer, _ = matrix(classifier, jnp.array([[*high, 8, 6]]), tokens[1])
    assert float(longer[0, 0]) > float(logs[0, 0])
