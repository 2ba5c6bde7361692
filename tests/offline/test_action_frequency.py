"""LEARN's examples and the training of its classifier."""

import logging
import math
from functools import partial

import jax
import numpy as np
import pytest

from ella.errors import InputError
from ella.networks.action_frequency import empty_model
from ella.networks.settings import ActionFrequencyNetworkSettings
from ella.offline.action_frequency_examples import (
    SHORTEST_WINDOW,
    ActionFrequencyExamples,
    draw_windows,
    expert_examples,
    pair_up,
    window_frequencies,
)
from ella.offline.settings import ActionFrequencyTrainingSettings
from ella.offline.train_action_frequency import (
    action_frequency_classifier,
    assess,
)
from ella.world import tasks
from ella.world.encoding import DONE, NUM_ACTIONS
from ella.world.grammar import VOCABULARY_SIZE

GOTO = tasks.find("goto-room")
QUICK = ActionFrequencyTrainingSettings(
    episodes=1024, validation_episodes=256, batch=256, epochs=10, learning_rate=2e-3,
    network=ActionFrequencyNetworkSettings(width=32),
)  # fmt: skip


def test_windows_are_uniform_over_what_is_long_enough():
    length = 7
    start, stop = draw_windows(np.full(60_000, length), np.random.default_rng(0))
    assert (stop - start >= SHORTEST_WINDOW).all()
    # By enumeration of both draws: (r, s), swapped where needed.
    pairs = [(min(r, s), max(r, s)) for r in range(length) for s in range(length + 1)]
    allowed = [pair for pair in pairs if pair[1] - pair[0] >= SHORTEST_WINDOW]
    drawn = list(zip(start.tolist(), stop.tolist(), strict=True))
    for pair in set(allowed):
        share = allowed.count(pair) / len(allowed)
        assert drawn.count(pair) / len(drawn) == pytest.approx(share, abs=0.01)
    assert set(drawn) == set(allowed)


def test_frequencies_are_those_of_the_window():
    actions = np.array([[0, 1, 2, 2, 2, 6], [5, 5, 5, 5, 5, 5]], np.uint8)
    found = window_frequencies(actions, np.array([1, 0]), np.array([6, 5]))
    np.testing.assert_allclose(found[0], [0, 0.2, 0.6, 0, 0, 0, 0.2])
    np.testing.assert_allclose(found[1], [0, 0, 0, 0, 0, 1, 0])


def test_half_of_the_negatives_swap_the_instruction():
    rng = np.random.default_rng(0)
    actions = rng.integers(0, NUM_ACTIONS, (4000, 12)).astype(np.uint8)
    ids = rng.integers(0, 6, 4000)
    examples = pair_up(actions, np.full(4000, 12), ids, rng)
    positive, negative = np.split(np.arange(8000), 2)
    np.testing.assert_array_equal(examples.labels[positive], 1)
    np.testing.assert_array_equal(examples.labels[negative], 0)
    np.testing.assert_array_equal(examples.instruction_ids[positive], ids)
    np.testing.assert_allclose(examples.frequencies.sum(axis=1), 1, rtol=1e-5)
    swapped = examples.instruction_ids[negative] != ids
    same = (examples.frequencies[negative] == examples.frequencies[positive]).all(axis=1)
    np.testing.assert_array_equal(swapped, same)
    assert swapped.mean() == pytest.approx(0.5, abs=0.03)


@pytest.fixture(scope="module")
def examples() -> tuple[ActionFrequencyExamples, ActionFrequencyExamples]:
    return expert_examples(GOTO, 1024, 0), expert_examples(GOTO, 256, 1)


def test_expert_episodes_end_with_done_and_short_ones_are_left_out(examples):
    training, _ = examples
    pairs = len(training.labels) // 2
    # About a third of this task's episodes have fewer than four actions of their own.
    assert 0.5 < pairs / 1024 < 0.85
    positive = training.frequencies[:pairs]
    # Nothing but walking and turning leads to an object; 'done' is added once.
    assert not positive[:, [3, 4, 5]].any()
    shares = positive[:, DONE]
    assert 0.1 < (shares > 0).mean() < 1
    assert shares.max() == pytest.approx(1 / SHORTEST_WINDOW)


@pytest.mark.thorough
def test_the_classifier_learns_and_is_cached(tmp_path, examples, caplog):
    caplog.set_level(logging.INFO, "ella")
    _, held_out = examples
    train = partial(action_frequency_classifier, GOTO, QUICK, directory=tmp_path)
    first = train()
    begun = ["collecting 1024 expert episodes of goto-room"]
    begun.append("training the action frequency classifier of goto-room")
    assert [line for line in caplog.messages if line in begun] == begun
    # Random frequencies are told apart; swapped instructions can hardly be, as the same walking
    # leads to every object.
    assert 0.65 < first.record["accuracy"] < 0.9
    assert first.record["held_out_examples"] == len(held_out.labels)

    caplog.clear()
    again = train()
    (line,) = caplog.messages
    assert line.startswith("action frequency classifier of goto-room: ")
    assert again.record == first.record
    for one, other in zip(jax.tree.leaves(first.model), jax.tree.leaves(again.model), strict=True):
        np.testing.assert_array_equal(one, other)
    assert assess(again.model, GOTO.language, held_out)["accuracy"] == first.record["accuracy"]


def test_the_network_has_the_released_size():
    model = empty_model(ActionFrequencyNetworkSettings(), key=jax.random.key(0))
    size = sum(leaf.size for leaf in jax.tree.leaves(model.classifier))
    # The released network embeds 100 words, and PyTorch's GRU has a second bias for two gates.
    assert size + (100 - VOCABULARY_SIZE) * 128 + 2 * 2 * 128 == 295_682


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        ({"episodes": 0}, "action frequency episodes must be >= 1, got 0"),
        ({"learning_rate": 0.0}, "action frequency learning_rate must be > 0, got 0"),
        ({"learning_rate": math.nan}, "action frequency learning_rate must be > 0, got nan"),
        ({"learning_rate": math.inf}, "learning_rate must be > 0 and finite, got inf"),
    ],
)
def test_impossible_training_settings_are_refused(bad, complaint):
    with pytest.raises(InputError, match=complaint):
        ActionFrequencyTrainingSettings(**bad)
