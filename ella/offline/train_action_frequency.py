"""The offline stage of LEARN: a classifier of action frequencies, trained or recalled."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int32, PRNGKeyArray, PyTree

from ella.networks.action_frequency import (
    ActionFrequencyClassifier,
    ActionFrequencyModel,
    ActionFrequencyStatistics,
    empty_model,
)
from ella.networks.linear import look_up
from ella.offline import cache
from ella.offline.action_frequency_examples import ActionFrequencyExamples, expert_examples
from ella.offline.settings import ActionFrequencyTrainingSettings
from ella.offline.stage import log_accuracy, stage_progress
from ella.world.language import Language
from ella.world.tasks import TaskSpec

EPOCHS_A_CALL = 5
"""Epochs compiled as one call; progress is logged after each."""


@dataclass(frozen=True)
class ActionFrequencyProgress:
    """Where training stands."""

    epoch: int
    epochs: int
    loss: float
    accuracy: float
    """On the held-out examples."""


@dataclass(frozen=True)
class TrainedActionFrequency:
    """The classifier of a low-level task and how it was found to do."""

    task: TaskSpec
    model: ActionFrequencyModel
    record: dict[str, Any]
    """accuracy, recall and specificity on held-out examples; loss, examples, held_out_examples."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Data:
    instruction_ids: Int32[Array, " N"]
    frequencies: Float[Array, "N A"]
    labels: Int32[Array, " N"]

    @staticmethod
    def of(examples: ActionFrequencyExamples) -> "_Data":
        return _Data(*(jnp.asarray(part) for part in vars(examples).values()))


def action_frequency_classifier(
    task: TaskSpec,
    settings: ActionFrequencyTrainingSettings | None = None,
    *,
    directory: Path | None = None,
) -> TrainedActionFrequency:
    """The classifier of a low-level task, from the cache or trained now.

    Args:
        task: The low-level task.
        settings: How to train; the released code's way by default.
        directory: The cache's place; the user's own by default.
    """
    settings = settings or ActionFrequencyTrainingSettings()

    def compute() -> tuple[ActionFrequencyModel, dict[str, Any]]:
        what = f"collecting {settings.episodes} expert episodes of {task.name}"
        with stage_progress(what, "episodes") as shown:
            count = shown.counting(settings.episodes + settings.validation_episodes)
            training = expert_examples(task, settings.episodes, 2 * settings.seed, count)
            held_out = expert_examples(
                task, settings.validation_episodes, 2 * settings.seed + 1, count
            )
        what = f"training the action frequency classifier of {task.name}"
        with stage_progress(what, "epochs") as shown:

            def show(now: ActionFrequencyProgress) -> None:
                shown(now.epoch, now.epochs, f"loss {now.loss:.4f}, accuracy {now.accuracy:.1%}")

            return train_action_frequency(task.language, training, held_out, settings, show)

    model, record = cache.cached(
        directory or cache.default_directory(),
        f"action-frequency-{task.name}",
        {"task": task, "settings": settings},
        jax.eval_shape(lambda key: empty_model(settings.network, key=key), jax.random.key(0)),
        compute,
    )
    log_accuracy(
        f"action frequency classifier of {task.name}",
        (record["recall"] + record["specificity"]) / 2,
        "train it on more episodes or for more epochs (its settings episodes, epochs)",
    )
    return TrainedActionFrequency(task, model, record)


def action_frequency_model(
    task: TaskSpec, settings: ActionFrequencyTrainingSettings, *, trained: bool = True
) -> ActionFrequencyModel:
    """The classifier of a low-level task for use in a shaper; not `trained`, one of the same shape
    to put weights into."""
    if not trained:
        return empty_model(settings.network, key=jax.random.key(0))
    return action_frequency_classifier(task, settings).model


def train_action_frequency(
    language: Language,
    training: ActionFrequencyExamples,
    held_out: ActionFrequencyExamples,
    settings: ActionFrequencyTrainingSettings,
    progress: Callable[[ActionFrequencyProgress], None],
) -> tuple[ActionFrequencyModel, dict[str, Any]]:
    """The model after the last epoch, and a record of how it does on held-out examples."""
    network_key, batch_key = jax.random.split(jax.random.key(settings.seed))
    model = empty_model(settings.network, key=network_key)
    weights = eqx.filter(model.classifier, eqx.is_inexact_array)
    optimiser = _optimiser(settings).init(weights)
    tokens = language.tokens(jnp.arange(language.num_ids))
    data, unseen = _Data.of(training), _Data.of(held_out)
    done, loss = 0, float("nan")
    while done < settings.epochs:
        epochs = min(EPOCHS_A_CALL, settings.epochs - done)
        model, optimiser, losses, accuracy = _train(
            settings, epochs, model, optimiser, data, unseen, tokens,
            jax.random.fold_in(batch_key, done),
        )  # fmt: skip
        done += epochs
        loss = float(losses)
        progress(ActionFrequencyProgress(done, settings.epochs, loss, float(accuracy)))
    record = assess(model, language, held_out)
    record |= {
        "loss": loss,
        "examples": len(training.labels),
        "held_out_examples": len(held_out.labels),
    }
    return model, record


def assess(
    model: ActionFrequencyModel, language: Language, examples: ActionFrequencyExamples
) -> dict[str, Any]:
    """Accuracy on examples, and on the positive (recall) and negative (specificity) ones alone."""
    tokens = language.tokens(jnp.arange(language.num_ids))
    said = np.asarray(_decide(model, _Data.of(examples), tokens))
    correct = said == (examples.labels == 1)
    return {
        "accuracy": float(correct.mean()),
        "recall": float(correct[examples.labels == 1].mean()),
        "specificity": float(correct[examples.labels == 0].mean()),
    }


@partial(jax.jit, static_argnums=(0, 1))
def _train(
    settings: ActionFrequencyTrainingSettings,
    epochs: int,
    model: ActionFrequencyModel,
    optimiser_state: PyTree,
    data: _Data,
    held_out: _Data,
    tokens: Int32[Array, "L n"],
    key: PRNGKeyArray,
) -> tuple[ActionFrequencyModel, PyTree, Float[Array, ""], Array]:
    """Some epochs; the last one's mean loss and the accuracy on held-out examples."""
    optimiser = _optimiser(settings)
    number = data.labels.size
    batch = min(settings.batch, number)

    def step(
        carry: tuple[ActionFrequencyModel, PyTree], rows: Int32[Array, " B"]
    ) -> tuple[tuple[ActionFrequencyModel, PyTree], Array]:
        model, optimiser_state = carry
        taken = jax.tree.map(lambda leaf: leaf[rows], data)
        (loss, moments), gradient = eqx.filter_value_and_grad(_loss, has_aux=True)(
            model.classifier, taken, tokens
        )
        changes, optimiser_state = optimiser.update(gradient, optimiser_state)
        classifier = eqx.apply_updates(model.classifier, changes)
        statistics = model.statistics.updated(moments, settings.statistics_momentum)
        return (ActionFrequencyModel(classifier, statistics), optimiser_state), loss

    def epoch(
        carry: tuple[ActionFrequencyModel, PyTree], key: PRNGKeyArray
    ) -> tuple[tuple[ActionFrequencyModel, PyTree], Array]:
        order = jax.random.permutation(key, number)[: number // batch * batch]
        carry, losses = jax.lax.scan(step, carry, order.reshape(-1, batch))
        return carry, losses.mean()

    keys = jax.random.split(key, epochs)
    (model, optimiser_state), losses = jax.lax.scan(epoch, (model, optimiser_state), keys)
    accuracy = (_decide(model, held_out, tokens) == (held_out.labels == 1)).mean()
    return model, optimiser_state, losses[-1], accuracy


def _loss(
    classifier: ActionFrequencyClassifier, data: _Data, tokens: Int32[Array, "L n"]
) -> tuple[Float[Array, ""], ActionFrequencyStatistics]:
    """Cross-entropy; the language's few instructions are read once each."""
    sentences = look_up(jax.vmap(classifier.read)(tokens), data.instruction_ids)
    scores, moments = classifier(sentences, data.frequencies, None)
    return optax.softmax_cross_entropy_with_integer_labels(scores, data.labels).mean(), moments


@jax.jit
def _decide(model: ActionFrequencyModel, data: _Data, tokens: Int32[Array, "L n"]) -> Array:
    """bool[N]: whether each pair is judged to go together."""
    sentences = jax.vmap(model.classifier.read)(tokens)[data.instruction_ids]
    return model.relatedness(sentences, data.frequencies) > 0


def _optimiser(settings: ActionFrequencyTrainingSettings) -> optax.GradientTransformation:
    return optax.adam(settings.learning_rate, eps=settings.adam_epsilon)
