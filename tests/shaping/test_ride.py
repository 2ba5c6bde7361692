"""RIDE's embedding, dynamics models and bonus."""

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
    shaped,
)

from ella.methods.ride import RIDE
from ella.networks.impact import impact_networks
from ella.networks.orthogonal import StridedConvolution
from ella.shaping.ride import RideShaper
from ella.shaping.visits import count_visits, no_visits
from ella.world.encoding import NUM_ACTIONS
from ella.world.state import GridObservation


def ride_shaper(**settings) -> RideShaper:
    return RideShaper(horizon=HORIZON, **RIDE(**settings).values())


COUNTED = ride_shaper(coefficient=0.5, episodic_counts=True)
PLAIN = ride_shaper(coefficient=0.5)
QUICK = ride_shaper(learning_rate=3e-3, inverse_coefficient=1.0, forward_coefficient=0.1)


@partial(jax.jit, static_argnums=(0, 3), compiler_options=WELL_COMPILED)
def trained(shaper: RideShaper, state, rollouts, steps: int):
    """After `steps` fits, taking turns with the rollouts [N, ...]; and each fit's accuracy."""

    def fit(state, iteration):
        rollout = jax.tree.map(lambda leaf: leaf[iteration % len(leaf)], rollouts)
        state, measured = shaper.fit(state, rollout, iteration, key=jax.random.key(0))
        accuracy = measured["ride_inverse_accuracy"]
        return state, accuracy.total / accuracy.count

    return jax.lax.scan(fit, state, jnp.arange(steps))


def stacked(rollouts):
    return jax.tree.map(lambda *parts: jnp.stack(parts), *rollouts)


def test_strided_convolutions_equal_plain_ones():
    layer = StridedConvolution(3, 8, 2, key=jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (5, 7, 7, 3))
    expected = jax.lax.conv_general_dilated(
        x, layer.linear.weight.reshape(3, 3, 3, 8), (2, 2), ((1, 1), (1, 1)),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )  # fmt: skip
    np.testing.assert_allclose(layer(x), expected, atol=1e-5)


@pytest.mark.thorough
def test_the_bonus_is_the_scaled_distance_of_embeddings():
    rollout = random_rollouts()[0]
    state = PLAIN.init(B, key=jax.random.key(0))
    _, bonus, _ = shaped(PLAIN, state, rollout)
    embed = jax.jit(lambda image: state.networks.embedding(image))
    done = np.argwhere(np.asarray(rollout.done))
    t, b = done[0]
    before, after = rollout.observation.image, rollout.next_observation.image
    expected = 0.5 * np.linalg.norm(embed(after[t, b]) - embed(before[t, b]))
    assert bonus[t, b] == pytest.approx(expected, rel=1e-4)
    unchanged = np.asarray((before == after).all(axis=(2, 3, 4)))
    assert 0.1 < unchanged.mean() < 0.9
    assert not np.asarray(bonus)[unchanged].any()
    assert (np.asarray(bonus)[~unchanged] > 0).all()


def test_an_episode_ends_with_its_own_last_view():
    rollout = random_rollouts()[0]
    state = PLAIN.init(B, key=jax.random.key(0))
    _, bonus, _ = shaped(PLAIN, state, rollout)
    # What the next episode looks like is no part of this one's bonus.
    first = rollout.first[:, :, None, None, None]
    _, other, _ = shaped(
        PLAIN,
        state,
        replace(
            rollout, observation=GridObservation(jnp.where(first, 0, rollout.observation.image))
        ),
    )
    done = np.asarray(rollout.done) & ~np.asarray(rollout.first)
    np.testing.assert_array_equal(np.asarray(bonus)[done], np.asarray(other)[done])


@pytest.mark.thorough
def test_the_inverse_model_learns_to_recognise_actions():
    *training, held_out = random_rollouts()
    start = QUICK.init(B, key=jax.random.key(0))
    state, accuracy = trained(QUICK, start, stacked(training), 90)
    assert accuracy[0] < 0.25
    _, errors = jax.jit(QUICK.dynamics_loss)(state.networks, held_out)
    right = float(errors.recognised.mean())
    # Of seven actions several often change nothing, so a perfect score is out of reach.
    assert right > 2 / NUM_ACTIONS


@pytest.mark.thorough
def test_the_forward_model_learns_to_predict():
    *training, held_out = random_rollouts()
    shaper = ride_shaper()
    before = shaper.init(B, key=jax.random.key(0))
    after, _ = trained(shaper, before, stacked(training), 30)
    judge = jax.jit(shaper.dynamics_loss)
    early, late = (judge(part.networks, held_out)[1] for part in (before, after))
    assert late.distance.mean() < 0.5 * early.distance.mean()


@pytest.mark.thorough
def test_the_embedding_ignores_what_the_agent_cannot_influence():
    """One corner of the view is noise; another shows the action. The embedding keeps the second."""
    rng = np.random.default_rng(0)
    shape = (3, T // 8, B)
    action = rng.integers(0, 3, shape)
    image = np.zeros((*shape, 7, 7, 3), np.uint8)
    after = image.copy()
    after[..., 5, 5, :] = 80 * action[..., None]
    for view in (image, after):
        view[..., 1, 1, :] = rng.choice([0, 160], (*shape, 1))
    sample = stacked(random_rollouts()[:3])
    rollouts = replace(
        sample, observation=GridObservation(jnp.asarray(image)),
        next_observation=GridObservation(jnp.asarray(after)),
        action=jnp.asarray(action, jnp.int32),
    )  # fmt: skip
    shaper = ride_shaper(learning_rate=5e-4)
    state = shaper.init(B, key=jax.random.key(1))
    learned, accuracy = trained(shaper, state, rollouts, 300)
    assert accuracy[-1] > 0.9

    blank = jnp.zeros((7, 7, 3), jnp.uint8)
    views = jnp.stack([blank, blank.at[1, 1].set(160), blank.at[5, 5].set(160)])

    @jax.jit
    def ratio(networks):
        """How far noise moves the embedding, compared with what the agent does."""
        nothing, noise, deed = networks.embedding(views)
        return jnp.linalg.norm(noise - nothing) / jnp.linalg.norm(deed - nothing)

    assert ratio(state.networks) > 0.9
    assert ratio(learned.networks) < 0.3


def test_visits_equal_plain_dictionaries():
    visits, seen = no_visits(B, HORIZON), [{} for _ in range(B)]
    count = jax.jit(count_visits)
    highest = 0
    for rollout in random_rollouts():
        visits, counted = count(visits, rollout)
        first, fingerprint = np.asarray(rollout.first), np.asarray(rollout.fingerprint)
        counted = np.asarray(counted)
        for t in range(T):
            for b in range(B):
                if first[t, b]:
                    seen[b] = {}
                place = fingerprint[t, b]
                seen[b][place] = seen[b].get(place, 0) + 1
                assert counted[t, b] == seen[b][place]
                highest = max(highest, seen[b][place])
    assert highest > 2


def test_counts_divide_the_bonus():
    rollout = random_rollouts()[0]
    key = jax.random.key(0)
    _, counted, _ = shaped(COUNTED, COUNTED.init(B, key=key), rollout)
    _, plain, _ = shaped(PLAIN, PLAIN.init(B, key=key), rollout)
    _, visits = jax.jit(count_visits)(no_visits(B, HORIZON), rollout)
    np.testing.assert_allclose(counted, plain / np.sqrt(visits), rtol=1e-5)


def test_views_are_counted_where_states_are_not_told():
    rollout = random_rollouts()[0]
    blind = replace(rollout, fingerprint=None)
    counted = np.asarray(jax.jit(count_visits)(no_visits(B, HORIZON), blind)[1])
    images, first = np.asarray(rollout.next_observation.image), np.asarray(rollout.first)
    b = int(np.argmax(counted.max(axis=0)))
    t = int(np.argmax(counted[:, b]))
    start = max(s for s in range(t + 1) if first[s, b])
    same = [np.array_equal(images[s, b], images[t, b]) for s in range(start, t + 1)]
    assert counted[t, b] == sum(same) > 1


def test_shape_equals_one_step_at_a_time():
    rollouts = random_rollouts()
    state, _, _ = shaped(COUNTED, COUNTED.init(B, key=jax.random.key(0)), rollouts[0])
    bonus = assert_steps_equal_rollout(COUNTED, state, rollouts[1])
    assert (bonus > 0).any()


@pytest.mark.thorough
def test_views_are_divided_by_the_input_scale():
    image = random_rollouts()[0].observation.image[0]
    by_bytes = impact_networks(key=jax.random.key(0)).embedding
    by_tens = impact_networks(10.0, key=jax.random.key(0)).embedding
    # Biases start at 0, so that up to the first nonlinearity views of unit size count 25.5 times.
    first = lambda one: one.layers[0](image.astype(jnp.float32) / one.input_scale)  # noqa: E731
    np.testing.assert_allclose(first(by_tens), 25.5 * first(by_bytes), rtol=1e-5, atol=1e-6)
    assert not np.allclose(by_tens(image), by_bytes(image))


def test_networks_have_the_original_sizes():
    networks = impact_networks(key=jax.random.key(0))

    def size(tree) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(tree))

    assert size(networks.embedding) == 27 * 32 + 32 + 288 * 32 + 32 + 288 * 128 + 128
    assert size(networks.forward) == (128 + 7) * 256 + 256 + 256 * 128 + 128
    assert size(networks.inverse) == 256 * 256 + 256 + 256 * 7 + 7
