"""LEARN's potential and its bookkeeping."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_rollouts import B, T, assert_steps_equal_rollout, random_rollouts

from ella.errors import InputError
from ella.methods.learn import LEARN
from ella.networks.action_frequency import empty_model
from ella.networks.settings import ActionFrequencyNetworkSettings
from ella.shaping.learn import LearnShaper, episode_counts
from ella.world.encoding import NUM_ACTIONS

GAMMA, COEFFICIENT = 0.9, 2.0


@pytest.fixture(scope="module")
def shaper() -> LearnShaper:
    make = jax.jit(empty_model, static_argnums=0)
    model = make(ActionFrequencyNetworkSettings(width=16), key=jax.random.key(5))
    return LearnShaper(model, COEFFICIENT, GAMMA)


@pytest.fixture(scope="module")
def shaped(shaper):
    """Steps of all rollouts in a row, with their bonuses."""
    shape = jax.jit(lambda state, rollout: shaper.shape(state, rollout)[:2])
    state, bonuses = shaper.init(B, key=jax.random.key(0)), []
    for rollout in random_rollouts():
        state, bonus = shape(state, rollout)
        bonuses.append(bonus)
    return np.concatenate(bonuses)


def whole_history() -> dict[str, np.ndarray]:
    rollouts = random_rollouts()
    names = ("first", "action", "instruction_id", "done")
    return {name: np.concatenate([getattr(part, name) for part in rollouts]) for name in names}


def episodes() -> list[tuple[int, int, int]]:
    """(environment, start, stop) of episodes that end."""
    history, found = whole_history(), []
    for b in range(B):
        start = 0
        for t in range(len(history["done"])):
            if history["done"][t, b]:
                found.append((b, start, t + 1))
                start = t + 1
    return found


def potentials(shaper: LearnShaper, cases: list[tuple[int, np.ndarray]]) -> np.ndarray:
    """Of (instruction, actions so far), from the definition: each its own plain histogram."""
    tokens: dict[int, np.ndarray] = {}
    for rollout in random_rollouts():
        table = rollout.instructions
        tokens |= dict(zip(table.ids.tolist(), np.asarray(table.tokens), strict=True))
    counts = np.stack([np.bincount(taken, minlength=NUM_ACTIONS) for _, taken in cases])
    frequencies = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    sentences = np.stack([tokens[mission] for mission, _ in cases])

    @jax.jit
    def softmax_difference(sentence, frequency):
        read = shaper.model.classifier.read(sentence)[None]
        scores, _ = shaper.model.classifier(read, frequency[None], shaper.model.statistics)
        unrelated, related = jax.nn.softmax(scores[0])
        return related - unrelated

    pairs = zip(sentences, frequencies.astype(np.float32), strict=True)
    return np.array([softmax_difference(*pair) for pair in pairs])


def test_episodes_telescope_to_their_boundary_terms(shaper, shaped):
    history, found = whole_history(), episodes()
    missions = [int(history["instruction_id"][start, b]) for b, start, _ in found]
    actions = [history["action"][start:stop, b] for b, start, stop in found]
    nothing = [taken[:0] for taken in actions]
    first = potentials(shaper, list(zip(missions, nothing, strict=True)))
    last = potentials(shaper, list(zip(missions, actions, strict=True)))
    for (b, start, stop), before, after in zip(found, first, last, strict=True):
        length = stop - start
        summed = GAMMA ** np.arange(length) @ shaped[start:stop, b]
        expected = COEFFICIENT * (GAMMA**length * after - before)
        assert summed == pytest.approx(expected, abs=1e-4)
    assert sum(start // T != (stop - 1) // T for _, start, stop in found) > 3


def test_each_step_pays_the_change_of_the_potential(shaper, shaped):
    history = whole_history()
    b, start, stop = max(episodes(), key=lambda episode: episode[2] - episode[1])
    mission = int(history["instruction_id"][start, b])
    actions = history["action"][start:stop, b]
    values = potentials(shaper, [(mission, actions[:n]) for n in range(len(actions) + 1)])
    expected = COEFFICIENT * (GAMMA * values[1:] - values[:-1])
    np.testing.assert_allclose(shaped[start:stop, b], expected, atol=1e-5)
    assert abs(values[0]) > 1e-3


def test_shape_equals_one_step_at_a_time(shaper):
    rollouts = random_rollouts()
    start = shaper.init(B, key=jax.random.key(0))
    state, _ = jax.jit(lambda *given: shaper.shape(*given)[:2])(start, rollouts[0])
    bonus = assert_steps_equal_rollout(shaper, state, rollouts[1])
    assert np.unique(bonus).size > T


def test_counts_begin_anew_with_each_episode():
    state = jnp.zeros((B, NUM_ACTIONS), jnp.int32)
    expected = np.zeros((B, NUM_ACTIONS), int)
    for rollout in random_rollouts():
        counts = np.asarray(jax.jit(episode_counts)(state, rollout))
        for t in range(T):
            expected[np.asarray(rollout.first[t])] = 0
            expected[np.arange(B), np.asarray(rollout.action[t])] += 1
            np.testing.assert_array_equal(counts[t], expected)
        state = jnp.asarray(counts[-1])


def test_bad_settings_are_refused():
    with pytest.raises(InputError, match="coefficient"):
        LEARN(coefficient=-1)
