"""The factorised termination classifier against the plain one."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ella.errors import InputError
from ella.networks.actor_critic import ActorCritic
from ella.networks.settings import NetworkSettings, TerminationNetworkSettings
from ella.networks.termination import TerminationClassifier, TerminationTable
from ella.world.tasks import find

LOW = find("opengoto-maze").language
TOKENS = jnp.asarray(LOW.all_tokens)


classify = eqx.filter_jit(lambda classifier, *pairs: classifier(*pairs))
instruct = eqx.filter_jit(lambda classifier, tokens: classifier.instruct(tokens))
decide = eqx.filter_jit(lambda table, images: table(images))
tabulated = eqx.filter_jit(lambda *parts, **options: TerminationTable(*parts, **options))
scores = eqx.filter_jit(lambda table, images: table.scores(images))


def some_images(num: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    parts = [rng.integers(0, high, (num, 7, 7)) for high in (8, 6, 3)]
    return np.stack(parts, axis=-1).astype(np.uint8)


@pytest.fixture(scope="module")
def trained():
    """A classifier whose running statistics are those of a batch, not the initial ones."""
    settings = TerminationNetworkSettings(width=16, instruction_width=12, head_width=8)
    images, ids = jnp.asarray(some_images(64, seed=1)), np.arange(64) % LOW.num_ids

    @eqx.filter_jit
    def make(key):
        classifier = TerminationClassifier(settings, key=key)
        _, moments = classifier(images, classifier.instruct(TOKENS)[ids], None)
        return classifier, classifier.initial_statistics().updated(moments, 1.0)

    return make(jax.random.key(0))


def test_factorised_equals_pair_by_pair(trained):
    classifier, statistics = trained
    images = some_images(11)
    table = tabulated(classifier, statistics, TOKENS)
    crossed = scores(table, images)
    frames, instructions = np.divmod(np.arange(11 * LOW.num_ids), LOW.num_ids)
    modulations = np.concatenate([instruct(classifier, row[None]) for row in LOW.all_tokens])
    plain, _ = classify(classifier, images[frames], modulations[instructions], statistics)
    np.testing.assert_allclose(crossed.reshape(-1, 2), plain, rtol=1e-4, atol=1e-5)
    assert np.ptp(crossed) > 0.1


def test_chunks_change_nothing(trained):
    images = some_images(37)
    whole = decide(tabulated(*trained, TOKENS, chunk=64), images)
    chunked = decide(tabulated(*trained, TOKENS, chunk=10), images)
    assert whole.shape == (37, LOW.num_ids)
    np.testing.assert_array_equal(whole, chunked)


def test_low_precision_decides_alike(trained):
    images = some_images(64)
    full = decide(tabulated(*trained, TOKENS), images)
    half = decide(tabulated(*trained, TOKENS, dtype="bfloat16"), images)
    assert (np.asarray(full) == np.asarray(half)).mean() > 0.97


def test_rows_do_not_meet_at_use(trained):
    table = tabulated(*trained, TOKENS)
    images = some_images(8)
    alone = np.concatenate([scores(table, image[None]) for image in images])
    np.testing.assert_allclose(scores(table, images), alone, rtol=1e-4, atol=1e-5)


def test_paper_size_is_the_policys_without_memory():
    def size(tree) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(tree))

    key = jax.random.key(0)
    own = jax.eval_shape(lambda: TerminationClassifier(TerminationNetworkSettings(), key=key))
    policy = jax.eval_shape(lambda: ActorCritic(NetworkSettings(), key=key))
    shared = size((policy.language, policy.stem, policy.tail))
    assert size(own) == shared + (128 * 64 + 64) + (64 * 2 + 2)


def test_bad_settings_are_refused():
    with pytest.raises(InputError, match="width"):
        TerminationNetworkSettings(width=0)
    with pytest.raises(InputError, match="variant"):
        TerminationNetworkSettings(variant="raw")
