"""The termination classifier learns from the expert and from files."""

import logging
import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ella.errors import InputError
from ella.networks.settings import TerminationNetworkSettings
from ella.offline import train_termination
from ella.offline.settings import TerminationTrainingSettings
from ella.offline.termination import assess_on_task, termination_classifier
from ella.offline.termination_examples import TerminationExamples
from ella.offline.train_termination import _balanced_accuracy, _Data, assess, draw_batch
from ella.shaping.termination import visible_termination
from ella.world.state import GridObservation
from ella.world.tasks import find

TASK = find("goto-room")
QUICK = TerminationTrainingSettings(
    episodes=1000,
    network=TerminationNetworkSettings(
        variant="onehot", width=16, instruction_width=16, head_width=16
    ),
    batch=64,
    epochs=1,
    max_steps=200,
    learning_rate=3e-3,
)
SHORT = replace(QUICK, max_steps=300)
LANGUAGE = TASK.language


def synthetic_views(num: int, seed: int) -> np.ndarray:
    """Objects strewn over an empty view, one of them straight ahead in half of the views."""
    rng = np.random.default_rng(seed)
    views = np.zeros((num, 7, 7, 3), np.uint8)
    views[..., 0] = 1
    there = rng.random((num, 7, 7)) < 0.15
    there[:, 3, 5] = np.arange(num) % 2 == 0
    there[:, 3, 6] = False
    views[..., 0] = np.where(there, rng.integers(5, 8, there.shape), views[..., 0])
    views[..., 1] = np.where(there, rng.integers(0, 6, there.shape), 0)
    return views


@pytest.fixture(scope="module")
def examples_file(tmp_path_factory):
    views = synthetic_views(3000, seed=0)
    truth = np.asarray(visible_termination(LANGUAGE)(GridObservation(jnp.asarray(views))))
    rng = np.random.default_rng(1)
    one_that_holds = np.argmax(truth * rng.random(truth.shape), -1)
    ids = np.where(truth.any(-1), one_that_holds, rng.integers(0, 36, len(views)))
    wrong = rng.random(len(views)) < 0.4
    ids = np.where(wrong, rng.integers(0, 36, len(views)), ids)
    path = tmp_path_factory.mktemp("examples") / "examples.npz"
    np.savez_compressed(
        path,
        images=views,
        instructions=np.array([LANGUAGE.text(i) for i in ids]),
        labels=truth[np.arange(len(views)), ids],
    )
    return path


@pytest.mark.thorough
def test_learns_from_a_file_and_is_recalled(examples_file, tmp_path):
    seen = []
    trained = termination_classifier(
        TASK, SHORT, examples=examples_file, directory=tmp_path, progress=seen.append
    )
    best = max(progress.accuracy for progress in seen)
    assert trained.record["accuracy"] == pytest.approx(best, abs=1e-6)
    assert trained.record["accuracy"] > 0.88
    assert trained.record["kinds"]["goto"]["accuracy"] == trained.record["accuracy"]
    assert seen[0].loss > seen[-1].loss

    views = synthetic_views(200, seed=9)
    seen_views = GridObservation(jnp.asarray(views))
    decided = np.asarray(trained.prepared()(seen_views))
    truth = np.asarray(visible_termination(LANGUAGE)(seen_views))
    assert decided[truth].mean() + (~decided[~truth]).mean() > 1.6

    # A second run finds the first one's result and trains no more.
    seen.clear()
    recalled = termination_classifier(
        TASK, SHORT, examples=examples_file, directory=tmp_path, progress=seen.append
    )
    assert not seen
    assert recalled.record == trained.record
    np.testing.assert_array_equal(recalled.prepared()(seen_views), decided)


@pytest.mark.thorough
def test_learns_from_the_expert(tmp_path, caplog):
    caplog.set_level(logging.INFO, "ella")
    trained = termination_classifier(TASK, QUICK, directory=tmp_path)
    assert any("1000 expert episodes" in line for line in caplog.messages)
    record = trained.record
    assert record["accuracy"] > 0.85
    assert set(record["kinds"]) == {"goto"}
    assert 0 < record["best_step"] <= record["steps"] == 200

    found = assess_on_task(trained, find("putnext-room"), 64, key=jax.random.key(0))
    assert found["all"]["views"] > 64
    assert found["all"]["goto"]["accuracy"] > 0.8
    assert found["locked_door"]["views"] == 0


def test_batches_have_the_stated_proportions():
    ids = np.arange(36, dtype=np.int32)
    marked = np.zeros((36, 7, 7, 3), np.uint8)
    marked[:, 0, 0, 0] = ids
    before = marked.copy()
    before[:, 0, 0, 1] = 1
    data = _Data.of(TerminationExamples(marked, ids, before, ids, exclusive=True))
    images, drawn, labels = (
        np.asarray(part) for part in draw_batch(data, 400, True, 36, key=jax.random.key(0))
    )
    own, earlier = images[:, 0, 0, 0], images[:, 0, 0, 1] == 1
    assert labels.sum() == 200
    assert (own[labels == 1] == drawn[labels == 1]).all()
    assert earlier.sum() == 100
    assert (own[earlier] == drawn[earlier]).all()
    mismatched = (labels == 0) & ~earlier
    assert mismatched.sum() == 100
    assert (own[mismatched] != drawn[mismatched]).all()
    assert len(set((drawn - own)[mismatched] % 36)) > 25
    _, _, labels = draw_batch(data, 400, False, 36, key=jax.random.key(0))
    assert labels.sum() == 200


def examples_of_one_instruction() -> TerminationExamples:
    """Views of ones where it is carried out, of zeros before."""
    ids = np.zeros(8, np.int32)
    done, undone = np.ones((8, 7, 7, 3), np.uint8), np.zeros((8, 7, 7, 3), np.uint8)
    return TerminationExamples(done, ids, undone, ids, exclusive=True)


def test_a_language_of_one_instruction_has_no_mismatches():
    """They would be its positives, called negative."""
    data = _Data.of(examples_of_one_instruction())
    images, drawn, labels = draw_batch(data, 40, True, 1, key=jax.random.key(0))
    assert labels.sum() == 20
    assert not drawn.any()
    np.testing.assert_array_equal(images[:, 0, 0, 0], labels)


class OneInstruction:
    num_ids = 1
    clauses = LANGUAGE.clauses[:1]


class Perfect:
    """A model for `examples_of_one_instruction`."""

    classifier = statistics = None

    def table(self, *_):
        return lambda images: (images[:, 0, 0, 0] == 1)[:, None]


def test_the_accuracy_for_a_language_of_one_instruction_counts_no_mismatches(monkeypatch):
    examples, model = examples_of_one_instruction(), Perfect()
    assert assess(model, OneInstruction(), examples)["accuracy"] == 1
    monkeypatch.setattr(train_termination, "TerminationTable", model.table)
    tokens, variants = LANGUAGE.tokens(jnp.arange(1)), jnp.ones((1, 1), bool)
    assert _balanced_accuracy(model, _Data.of(examples), True, tokens, variants, None) == 1


def test_steps_follow_the_data():
    settings = TerminationTrainingSettings()
    assert settings.steps(15_000) == 4102
    assert settings.steps(100) == 27
    assert replace(settings, max_steps=10).steps(15_000) == 10


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        ({"episodes": 0}, "episodes must be >= 1, got 0"),
        ({"batch": 2}, "batch must be >= 4, got 2"),
        ({"learning_rate": -1e-4}, "learning_rate must be > 0, got -0.0001"),
        ({"learning_rate": math.nan}, "learning_rate must be > 0, got nan"),
        ({"learning_rate": math.inf}, "learning_rate must be > 0 and finite, got inf"),
        ({"locked_share": 1.5}, r"locked_share must lie in \[0, 1\], got 1.5"),
        ({"max_steps": -5}, "max_steps must be >= 0, got -5"),
        ({"patience": -1}, "patience must be >= 0, got -1"),
    ],
)
def test_impossible_training_settings_are_refused(bad, complaint):
    with pytest.raises(InputError, match=f"^termination {complaint}$"):
        TerminationTrainingSettings(**bad)
