"""RND and NovelD."""

import re
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_rollouts import (
    HORIZON,
    WELL_COMPILED,
    B,
    T,
    assert_steps_equal_rollout,
    random_rollouts,
)

from ella.errors import InputError
from ella.methods.noveld import NovelD
from ella.methods.rnd import RND
from ella.shaping.noveld import NoveldShaper, _novelty
from ella.shaping.rnd import RndShaper, _errors
from ella.shaping.running_moments import MOST_BATCHES, RunningMoments, merged, no_moments
from ella.shaping.visits import count_visits, no_visits

SMALL_RND = RndShaper(**RND(features=32, learning_rate=2e-3, epochs=2, minibatches=2).values())
SMALL_NOVELD = NoveldShaper(
    horizon=HORIZON,
    **NovelD(channels=(8, 8, 16), width=32, features=16, learning_rate=3e-3).values(),
)


@partial(jax.jit, static_argnums=0, compiler_options=WELL_COMPILED)
def one_iteration(shaper, state, rollout, key):
    state, bonus, measured = shaper.shape(state, rollout)
    state, fitted = shaper.fit(state, rollout, jnp.int32(0), key=key)
    return state, bonus, {**measured, **fitted}


@jax.jit
def squared_errors(state, image):
    inputs = SMALL_RND._inputs(state, image)
    return jnp.square(state.predictor(inputs) - state.target(inputs)).mean(-1)


def average(mean) -> float:
    return float(mean.total / mean.count)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("shaper", "error"), [(SMALL_RND, "rnd_error"), (SMALL_NOVELD, "noveld_novelty")]
)
def test_what_is_seen_again_and_again_is_no_longer_novel(shaper, error):
    repeated, unseen = random_rollouts()[0], random_rollouts()[1]
    # A view of another kind: nothing in the repeated ones looks like it.
    strange = replace(
        unseen,
        next_observation=jax.tree.map(lambda leaf: jnp.full_like(leaf, 9), unseen.next_observation),
    )
    kept, surprises = [], []
    for seed in range(4):
        state = shaper.init(B, key=jax.random.key(seed))
        errors = []
        for i in range(25):
            state, _, measured = one_iteration(shaper, state, repeated, jax.random.key(i))
            errors.append(average(measured[error]))
        _, _, measured = one_iteration(shaper, state, strange, jax.random.key(0))
        kept.append(errors[-1] / errors[1])
        surprises.append(average(measured[error]) / errors[-1])
    # One random target may happen to be easy to predict from anything.
    assert np.mean(kept) < 0.5
    assert np.mean(surprises) > 2


@pytest.mark.thorough
def test_rnd_pays_in_deviations_of_discounted_sums_of_errors():
    state = SMALL_RND.init(B, key=jax.random.key(0))
    sums, seen, errors = np.zeros(B), [], None
    for i, rollout in enumerate(random_rollouts()):
        before = state
        state, bonus, _ = one_iteration(SMALL_RND, state, rollout, jax.random.key(i))
        if i < 2:
            assert not np.asarray(bonus).any()
        if i == 0:
            continue
        errors = np.asarray(squared_errors(before, rollout.next_observation.image))
        if i >= 2:
            np.testing.assert_allclose(bonus, errors / np.std(seen), rtol=1e-3)
        for error in errors:
            sums = 0.99 * sums + error
            seen.append(sums)
    assert errors is not None


@pytest.mark.thorough
def test_rnd_inputs_are_standardised_and_clipped():
    rollout = random_rollouts()[0]
    state = SMALL_RND.init(B, key=jax.random.key(0))
    state, _, _ = one_iteration(SMALL_RND, state, rollout, jax.random.key(0))
    views = np.asarray(rollout.next_observation.image, np.float32).reshape(-1, 7, 7, 3)
    varies = views.std(axis=0) > 0
    inputs = np.asarray(SMALL_RND._inputs(state, rollout.next_observation.image)).reshape(
        -1, 7, 7, 3
    )
    expected = (views - views.mean(axis=0))[:, varies] / views.std(axis=0)[varies]
    np.testing.assert_allclose(inputs[:, varies], np.clip(expected, -5, 5), atol=1e-3)


@pytest.mark.thorough
def test_noveld_pays_first_visits_for_what_is_newer_than_before():
    rollout = random_rollouts()[0]
    state = SMALL_NOVELD.init(B, key=jax.random.key(0))
    _, bonus, measured = one_iteration(SMALL_NOVELD, state, rollout, jax.random.key(0))

    @jax.jit
    def novelty(image):
        encoded = jax.nn.relu(state.encoder(image.astype(jnp.float32)))
        return jnp.linalg.norm(state.predictor(encoded) - state.target(encoded), axis=-1)

    gained = np.asarray(
        novelty(rollout.next_observation.image) - 0.5 * novelty(rollout.observation.image)
    )
    _, counted = jax.jit(count_visits)(no_visits(B, HORIZON), rollout)
    expected = 0.5 * np.maximum(gained, 0) * (np.asarray(counted) == 1)
    np.testing.assert_allclose(bonus, expected, rtol=1e-3, atol=1e-5)
    assert 0.1 < (np.asarray(bonus) > 0).mean() < 0.9
    loss = np.asarray(novelty(rollout.next_observation.image)).mean()
    assert average(measured["noveld_loss"]) == pytest.approx(loss, rel=1e-4)


def test_small_distances_of_large_features_are_exact():
    rng = np.random.default_rng(0)
    targets = rng.normal(0, 100, (64, 128)).astype(np.float32)
    features = targets + rng.normal(0, 1e-3, targets.shape).astype(np.float32)
    exact = np.square(features.astype(np.float64) - targets)

    def predictor(found):
        return found

    arrays = jnp.asarray(targets), jnp.asarray(features)
    np.testing.assert_allclose(_novelty(predictor, *arrays), np.sqrt(exact.sum(-1)), rtol=1e-5)
    views = jnp.zeros((64, 7, 7, 3))
    found = _errors(lambda _: arrays[1], arrays[0], views)
    np.testing.assert_allclose(found, exact.mean(-1), rtol=1e-5)


@pytest.mark.parametrize("shaper", [SMALL_RND, SMALL_NOVELD])
def test_every_product_is_exact_whatever_the_default_on_a_gpu(shaper):
    state = jax.eval_shape(lambda: shaper.init(B, key=jax.random.key(0)))
    with jax.default_matmul_precision("default"):
        jaxpr = jax.make_jaxpr(partial(one_iteration.__wrapped__, shaper))(
            state, random_rollouts()[0], jax.random.key(0)
        )
    text = str(jaxpr)
    highest = "precision=(Precision.HIGHEST, Precision.HIGHEST)"
    assert text.count(highest) == len(re.findall(r"= dot_general\[", text)) > 0
    assert "conv_general" not in text


@pytest.mark.thorough
@pytest.mark.parametrize("shaper", [SMALL_RND, SMALL_NOVELD])
def test_shape_equals_one_step_at_a_time(shaper):
    rollouts = random_rollouts()
    state = shaper.init(B, key=jax.random.key(0))
    for i in range(3):
        state, _, _ = one_iteration(shaper, state, rollouts[i], jax.random.key(i))
    bonus = assert_steps_equal_rollout(shaper, state, rollouts[3], tolerance=1e-4)
    assert (bonus > 0).any()


def test_running_moments_are_those_of_everything():
    values = np.random.default_rng(0).normal(3.0, 2.0, (50, 4)).astype(np.float32)
    moments = no_moments((4,))
    for start, stop in ((0, 1), (1, 20), (20, 50)):
        moments = jax.jit(merged)(moments, values[start:stop])
    np.testing.assert_allclose(moments.mean, values.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(moments.deviation, values.std(axis=0), rtol=1e-4)


def test_running_moments_follow_the_data_after_any_number_of_frames():
    rows, batches, frames = 16, 2**16, 2.0**30
    long = RunningMoments(jnp.float32(frames), jnp.float32(0.0), jnp.float32(frames))
    later = jnp.tile(jnp.array([0.2, 0.4]), rows // 2)
    found, _ = jax.jit(
        lambda start: jax.lax.scan(
            lambda moments, _: (merged(moments, later), None), start, length=batches
        )
    )(long)
    # Batches weigh as much as 1 in MOST_BATCHES from then on.
    old = (1 - 1 / MOST_BATCHES) ** batches
    mean = (1 - old) * 0.3
    variance = old * 1 + (1 - old) * (0.3**2 + 0.1**2) - mean**2
    np.testing.assert_allclose(found.mean, mean, rtol=1e-2)
    np.testing.assert_allclose(found.deviation, np.sqrt(variance), rtol=2e-3)
    assert np.sqrt(variance) < 0.98


def test_bad_settings_are_refused():
    with pytest.raises(InputError, match="epochs"):
        RND(epochs=0)
    with pytest.raises(InputError, match="width"):
        NovelD(width=0)
    odd = RndShaper(**RND(features=8, minibatches=7).values())
    with pytest.raises(InputError, match=f"must divide the {T * B} frames"):
        odd.fit(
            odd.init(B, key=jax.random.key(0)),
            random_rollouts()[0],
            jnp.int32(0),
            key=jax.random.key(0),
        )
