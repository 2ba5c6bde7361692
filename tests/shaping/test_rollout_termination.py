"""Rollouts are judged as view by view, and no view more often than it changes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ella.networks.settings import TerminationNetworkSettings
from ella.networks.termination import TerminationClassifier, TerminationTable
from ella.shaping import termination
from ella.shaping.termination import (
    JudgedObservation,
    JudgedTermination,
    LearnedTermination,
    judged_in_turns,
)
from ella.world.state import GridObservation
from ella.world.tasks import find

LOW = find("goto-room").language


@pytest.fixture(scope="module")
def learned() -> LearnedTermination:
    settings = TerminationNetworkSettings(width=8, instruction_width=8, head_width=8)
    views = jnp.asarray(some_views((50,)))

    @eqx.filter_jit
    def make() -> TerminationTable:
        classifier = TerminationClassifier(settings, key=jax.random.key(0))
        parts = (classifier, classifier.initial_statistics(), jnp.asarray(LOW.all_tokens))
        middle = jnp.median(TerminationTable(*parts).margins(views))
        return TerminationTable(*parts, threshold=middle)

    return LearnedTermination(make())


def some_views(shape: tuple[int, ...]) -> np.ndarray:
    """uint8[*shape, 7, 7, 3]."""
    rng = np.random.default_rng(0)
    parts = [rng.integers(0, high, (*shape, 7, 7)) for high in (8, 6, 3)]
    return np.stack(parts, axis=-1).astype(np.uint8)


def views_that_often_stay(shape: tuple[int, ...]) -> np.ndarray:
    """uint8[*shape, 7, 7, 3], time being the last axis of `shape` but one."""
    images, stays = some_views(shape), np.random.default_rng(1).random(shape) < 0.6
    for step in range(1, shape[-2]):
        before, now = images[..., step - 1, :, :, :, :], images[..., step, :, :, :, :]
        now[stays[..., step, :]] = before[stays[..., step, :]]
    return images


def observed(images: np.ndarray) -> GridObservation:
    return GridObservation(jnp.asarray(images), jnp.zeros(images.shape[:-3], jnp.int32))


@pytest.mark.thorough
@pytest.mark.parametrize("seeds", [(), (3,)])
def test_a_rollout_is_judged_as_its_views_are(learned, seeds, monkeypatch):
    monkeypatch.setattr(termination, "FEWEST_AT_ONCE", 16)
    images = views_that_often_stay((*seeds, 20, 5))
    judge = (lambda images: jax.vmap(learned.of_rollout)(images)) if seeds else learned.of_rollout
    found = eqx.filter_jit(judge)(observed(images))
    flat = learned(observed(images.reshape(-1, 7, 7, 3)))
    assert 0.2 < flat.mean() < 0.8
    np.testing.assert_array_equal(found, np.asarray(flat).reshape(found.shape))


def test_only_changed_views_are_judged(learned, monkeypatch):
    monkeypatch.setattr(termination, "FEWEST_AT_ONCE", 4)
    judged = []
    decide = TerminationTable.at_once

    def counting(table, image):
        jax.debug.callback(lambda views: judged.append(len(views)), image)
        return decide(table, image)

    monkeypatch.setattr(TerminationTable, "at_once", counting)
    images = views_that_often_stay((20, 5))
    changed = 5 + (images[1:] != images[:-1]).any((-3, -2, -1)).sum()
    judge = eqx.filter_jit(lambda views: learned.of_rollout(views))
    jax.block_until_ready(judge(observed(images)))
    jax.effects_barrier()
    assert changed < 60
    assert changed <= sum(judged) < changed + 4


def test_few_of_a_rollout_are_judged_some_at_a_time(monkeypatch):
    monkeypatch.setattr(termination, "FEWEST_AT_ONCE", 4)
    rng = np.random.default_rng(0)
    shown = rng.random((6, 3, 9)) < 0.3
    last = rng.random((6, 3)) < 0.5
    assert last.sum() > 4
    found = jax.jit(JudgedTermination().of_few)(JudgedObservation(jnp.asarray(shown)), last)
    np.testing.assert_array_equal(found, shown & last[..., None])


@pytest.mark.parametrize("chosen", [np.zeros(10, bool), np.ones(10, bool)])
def test_none_and_all_may_be_chosen(chosen):
    judge = jax.jit(lambda *parts: judged_in_turns(lambda v: (v % 3 == 0)[:, None], *parts, 4))
    rows, places = judge(jnp.arange(10), chosen)
    if chosen.any():
        np.testing.assert_array_equal(rows[places, 0], np.arange(10) % 3 == 0)
    else:
        assert not rows.any()
