"""False alarms on ordinary views, and the threshold that limits them."""

import logging
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ella.errors import InputError
from ella.networks.settings import TerminationNetworkSettings
from ella.offline import false_alarms
from ella.offline.false_alarms import OrdinaryEpisodes, calibrated, count_false_alarms
from ella.offline.settings import TerminationTrainingSettings
from ella.offline.termination import log_quality
from ella.offline.train_termination import empty_model
from ella.shaping.low_level import channels_of, low_level_language
from ella.shaping.termination import visible_termination
from ella.world.state import GridObservation
from ella.world.tasks import find

TASK = find("goto-room")
LOW = low_level_language((TASK,), one_article=True)
STEPS, ENVS = 20, 6


@pytest.fixture(scope="module")
def model():
    settings = TerminationNetworkSettings("onehot", width=8, instruction_width=8, head_width=4)
    return jax.jit(empty_model, static_argnums=0)(settings, key=jax.random.key(0))


@pytest.fixture(scope="module")
def episodes() -> OrdinaryEpisodes:
    """Objects strewn over views, often one straight ahead; episodes of five steps."""
    rng = np.random.default_rng(0)
    images = np.zeros((STEPS, ENVS, 7, 7, 3), np.uint8)
    there = rng.random(images.shape[:-1]) < 0.2
    images[..., 0] = np.where(there, rng.integers(5, 8, there.shape), 1)
    images[..., 1] = np.where(there, rng.integers(0, 6, there.shape), 0)
    first = np.broadcast_to((np.arange(STEPS) % 5 == 0)[:, None], (STEPS, ENVS))
    return OrdinaryEpisodes(images, first)


def by_hand(model, episodes: OrdinaryEpisodes, threshold: float) -> tuple[int, ...]:
    """(false alarms, first alarms that are false, first alarms that are true, false alarms while
    something is carried, first views of a completion, those judged so), one by one."""
    scores_of = jax.jit(lambda images: model.table(LOW).scores(images))
    truth_of = jax.jit(visible_termination(LOW))
    alarms = false = true = carrying = first_views = seen_at_once = 0
    for env in range(ENVS):
        fired: set[int] = set()
        shown_before: set[int] = set()
        scores = np.asarray(scores_of(jnp.asarray(episodes.images[:, env])))
        seen = GridObservation(jnp.asarray(episodes.images[:, env]))
        truth = np.asarray(truth_of(seen))
        for t in range(STEPS):
            if episodes.first[t, env]:
                fired, shown_before = set(), set()
            now = set(np.flatnonzero(scores[t, :, 1] - scores[t, :, 0] > threshold))
            shown = set(np.flatnonzero(truth[t]))
            alarms += len(now - shown)
            if episodes.images[t, env, 3, 6, 0] != 1:
                carrying += len(now - shown)
            false += len(now - shown - fired)
            true += len((now & shown) - fired)
            first_views += len(shown - shown_before)
            seen_at_once += len((shown - shown_before) & now)
            fired |= now
            shown_before |= shown
    return alarms, false, true, carrying, first_views, seen_at_once


def test_counts_equal_plain_loops(model, episodes):
    found = count_false_alarms(model, LOW, (episodes,))
    alarms, false, true, carrying, first_views, seen_at_once = by_hand(model, episodes, 0.0)
    in_hand = int((episodes.images[:, :, 3, 6, 0] != 1).sum())
    number = STEPS // 5 * ENVS
    assert alarms > carrying > 0
    assert first_views > seen_at_once > 0
    assert found == pytest.approx(
        {
            "threshold": 0.0, "per_view": alarms / (STEPS * ENVS),
            "per_view_carrying": carrying / in_hand,
            "false_completions": false / number, "true_completions": true / number,
            "seen_at_once": seen_at_once / first_views,
            "steps_per_episode": 5, "episodes": number,
        }
    )  # fmt: skip


def with_noise(model):
    """The model with other weights: those of a new one hardly tell views apart."""
    leaves, structure = jax.tree.flatten(model.classifier)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    noisy = [
        leaf + 0.3 * jax.random.normal(key, leaf.shape)
        for leaf, key in zip(leaves, keys, strict=True)
    ]
    return replace(model, classifier=jax.tree.unflatten(structure, noisy))


@pytest.mark.thorough
def test_the_threshold_is_the_least_that_allows_no_more(model, episodes):
    model = with_noise(model)
    views = jnp.asarray(episodes.images.reshape(-1, 7, 7, 3))
    scores = np.asarray(model.table(LOW).scores(views))
    shown = np.asarray(visible_termination(LOW)(GridObservation(views)))
    wrong = np.sort((scores[..., 1] - scores[..., 0])[~shown])[::-1]
    # Where the next score is clearly lower: two programs may round nearly equal ones differently.
    number = 5 + int(np.argmax(wrong[4:20] - wrong[5:21]))
    gap = wrong[number - 1] - wrong[number]
    assert wrong[number] > gap > 1e-4
    better = calibrated(model, LOW, (episodes,), (number + 0.5) / (STEPS * ENVS))
    threshold = float(better.threshold)
    assert by_hand(model, episodes, threshold + gap / 2)[0] == number
    assert by_hand(model, episodes, threshold - gap / 2)[0] > number
    decided = np.asarray(better.table(LOW)(views))
    np.testing.assert_array_equal(decided, scores[..., 1] - scores[..., 0] > threshold)
    # Few enough false alarms leave the classifier as it is.
    assert float(calibrated(model, LOW, (episodes,), 100.0).threshold) == 0


def test_both_articles_are_one_label():
    channels = channels_of(TASK.language, LOW)
    texts = [TASK.language.text(number) for number in range(TASK.language.num_ids)]
    merged = [LOW.text(int(channel)) for channel in channels]
    assert merged == [text.replace(" a ", " the ") for text in texts]
    assert sorted(channels) == sorted([*range(LOW.num_ids)] * 2)
    assert low_level_language((TASK,)) == TASK.language


@pytest.mark.thorough
def test_ordinary_views_come_from_both_layouts():
    small = replace(find("goto-maze"), name="short-maze", max_steps=8)
    found = false_alarms.ordinary_episodes((small,), 256, key=jax.random.key(0))
    assert [part.first.shape for part in found] == [(16, 8), (16, 8)]
    assert all(part.first[0].all() and part.first.sum() >= 16 for part in found)
    with pytest.raises(InputError, match="putnext"):
        false_alarms.ordinary_episodes((find("putnext-maze"),), 8, key=jax.random.key(0))


@pytest.mark.parametrize(
    ("recall", "false_alarms", "warning"),
    [
        (0.07, 1e-4, "at most 0.0001 false alarms a view leave it 7.0% of completions"),
        (0.07, 0.0, "barely better than chance"),
        (0.97, 1e-4, None),
    ],
)
def test_a_threshold_that_leaves_few_completions_is_warned_of(
    recall, false_alarms, warning, caplog
):
    caplog.set_level(logging.INFO, "ella")
    counted = {"false_completions": 0.25}
    record = {"recall": recall, "accuracy": (1 + recall) / 2, "false_alarms": counted}
    log_quality("classifier of goto-room", record, false_alarms)
    warned = [entry for entry in caplog.records if entry.levelno == logging.WARNING]
    assert [warning in entry.message for entry in warned] == [True] * (warning is not None)
    assert "0.25 false completions an ordinary episode" in caplog.messages


def test_settings():
    assert replace(TerminationTrainingSettings(), min_steps=1000).steps(100) == 1000
    with pytest.raises(InputError, match="ordinary_views"):
        TerminationTrainingSettings(false_alarms=1e-4)
    with pytest.raises(InputError, match="min_steps"):
        TerminationTrainingSettings(min_steps=-1)
