"""Training the termination classifier."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int32, PRNGKeyArray, PyTree, UInt8

from ella.compilation import jit_for_one_call
from ella.networks.actor_critic import RunningStatistics
from ella.networks.settings import TerminationNetworkSettings
from ella.networks.termination import TerminationClassifier, TerminationTable, prepare
from ella.offline.settings import TerminationTrainingSettings
from ella.offline.termination_examples import TerminationExamples
from ella.shaping.termination import visible_termination
from ella.world.grammar import CLAUSE_KINDS
from ella.world.language import Language
from ella.world.state import GridObservation


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TerminationModel:
    """A classifier and the normalisation statistics it is used with."""

    classifier: TerminationClassifier
    statistics: RunningStatistics
    threshold: Float[Array, ""] | None = None
    """What the score of 'done' must exceed that of 'not yet' by, where it was calibrated."""

    def table(self, language: Language) -> TerminationTable:
        """The model ready for a low-level language."""
        tokens = language.tokens(jnp.arange(language.num_ids))
        return prepare(self.classifier, self.statistics, tokens, self.threshold)


def empty_model(
    settings: TerminationNetworkSettings, *, calibrated: bool = False, key: PRNGKeyArray
) -> TerminationModel:
    """An untrained model; also the template that saved weights are read into."""
    classifier = TerminationClassifier(settings, key=key)
    threshold = jnp.zeros(()) if calibrated else None
    return TerminationModel(classifier, classifier.initial_statistics(), threshold)


@dataclass(frozen=True)
class Progress:
    """Where training stands after an evaluation."""

    step: int
    steps: int
    loss: float
    accuracy: float
    """Balanced, on the validation examples."""
    best: float


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Data:
    done_images: UInt8[Array, "P 7 7 3"]
    done_ids: Int32[Array, " P"]
    undone_images: UInt8[Array, "N 7 7 3"]
    undone_ids: Int32[Array, " N"]

    @staticmethod
    def of(examples: TerminationExamples) -> "_Data":
        return _Data(
            jnp.asarray(examples.done_images),
            jnp.asarray(examples.done_ids),
            jnp.asarray(examples.undone_images),
            jnp.asarray(examples.undone_ids),
        )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Training:
    model: TerminationModel
    optimiser: PyTree
    best: TerminationModel
    best_accuracy: Float[Array, ""]


def train_termination(
    language: Language,
    training: TerminationExamples,
    validation: TerminationExamples,
    settings: TerminationTrainingSettings,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> tuple[TerminationModel, dict[str, Any]]:
    """The model of the best evaluation, and a record of how it did (see `assess`)."""
    network_key, batch_key = jax.random.split(jax.random.key(settings.seed))
    optimiser = optax.adam(settings.learning_rate, eps=settings.adam_epsilon)
    model = jit_for_one_call(empty_model, static_argnums=0)(settings.network, key=network_key)
    state = _Training(
        model, optimiser.init(model.classifier), model, jnp.asarray(-1.0, jnp.float32)
    )
    tokens = language.tokens(jnp.arange(language.num_ids))
    variants = jnp.asarray(article_variants(language))
    wanted = settings.steps(training.num_done)
    every = min(settings.evaluate_every, -(-wanted // 20))
    steps = -(-wanted // every) * every  # whole rounds, each with an evaluation
    data, held_out = _Data.of(training), _Data.of(validation)
    others_undone = None
    if settings.ordinary_views > 0 and validation.exclusive:
        seen = GridObservation(held_out.undone_images)
        others_undone = ~visible_termination(language)(seen)

    taken, best, best_step, waited = 0, -1.0, 0, 0
    while taken < steps and (settings.patience == 0 or waited < settings.patience):
        state, loss, accuracy = _train_and_evaluate(
            settings, training.exclusive, every, state, data, held_out, tokens, variants,
            others_undone, jax.random.fold_in(batch_key, taken),
        )  # fmt: skip
        taken += every
        waited += 1
        if float(accuracy) > best:
            best, best_step, waited = float(accuracy), taken, 0
        progress(Progress(taken, steps, float(loss), float(accuracy), best))

    record = assess(state.best, language, validation)
    record |= {"best_step": best_step, "steps": taken, "training_examples": training.num_done}
    return state.best, record


@partial(jax.jit, static_argnums=(0, 1, 2))
def _train_and_evaluate(
    settings: TerminationTrainingSettings,
    exclusive: bool,
    steps: int,
    state: _Training,
    data: _Data,
    held_out: _Data,
    tokens: Int32[Array, "L n"],
    variants: Bool[Array, "L L"],
    others_undone: Bool[Array, "N L"] | None,
    key: PRNGKeyArray,
) -> tuple[_Training, Float[Array, ""], Float[Array, ""]]:
    optimiser = optax.adam(settings.learning_rate, eps=settings.adam_epsilon)

    def step(carry: tuple[TerminationModel, PyTree], key: PRNGKeyArray) -> tuple[Any, Array]:
        model, optimiser_state = carry
        images, ids, labels = draw_batch(data, settings.batch, exclusive, tokens.shape[0], key=key)
        (loss, moments), gradient = eqx.filter_value_and_grad(_loss, has_aux=True)(
            model.classifier, images, ids, labels, tokens, settings.entropy_coefficient
        )
        updates, optimiser_state = optimiser.update(gradient, optimiser_state)
        classifier = eqx.apply_updates(model.classifier, updates)
        statistics = model.statistics.updated(moments, settings.statistics_momentum)
        return (TerminationModel(classifier, statistics), optimiser_state), loss

    keys = jax.random.split(key, steps)
    (model, optimiser_state), losses = jax.lax.scan(step, (state.model, state.optimiser), keys)
    accuracy = _balanced_accuracy(model, held_out, exclusive, tokens, variants, others_undone)
    better = accuracy > state.best_accuracy
    best = jax.tree.map(lambda new, old: jnp.where(better, new, old), model, state.best)
    highest = jnp.maximum(accuracy, state.best_accuracy)
    return _Training(model, optimiser_state, best, highest), losses.mean(), accuracy


def draw_batch(
    data: _Data, batch: int, exclusive: bool, num_low_level: int, *, key: PRNGKeyArray
) -> tuple[UInt8[Array, "B 7 7 3"], Int32[Array, " B"], Int32[Array, " B"]]:
    """Images, instructions and labels: half positive; the rest negative, half of that by a
    mismatched instruction on a positive image where examples are exclusive and there is another
    instruction."""
    positive = batch // 2
    mismatched = (batch - positive) // 2 if exclusive and num_low_level > 1 else 0
    negative = batch - positive - mismatched
    keys = jax.random.split(key, 4)
    chosen = jax.random.randint(keys[0], (positive,), 0, data.done_ids.size)
    before = jax.random.randint(keys[1], (negative,), 0, data.undone_ids.size)
    other = jax.random.randint(keys[2], (mismatched,), 0, data.done_ids.size)
    shift = jax.random.randint(keys[3], (mismatched,), 1, num_low_level)
    images = jnp.concatenate(
        [data.done_images[chosen], data.undone_images[before], data.done_images[other]]
    )
    ids = jnp.concatenate(
        [
            data.done_ids[chosen],
            data.undone_ids[before],
            (data.done_ids[other] + shift) % num_low_level,
        ]
    )
    return images, ids, (jnp.arange(batch) < positive).astype(jnp.int32)


def _loss(
    classifier: TerminationClassifier,
    images: UInt8[Array, "B 7 7 3"],
    ids: Int32[Array, " B"],
    labels: Int32[Array, " B"],
    tokens: Int32[Array, "L n"],
    entropy_coefficient: float,
) -> tuple[Float[Array, ""], RunningStatistics]:
    modulations = classifier.instruct(tokens)[ids]
    scores, moments = classifier(images, modulations, None)
    logs = jax.nn.log_softmax(scores)
    entropy = -(jnp.exp(logs) * logs).sum(-1)
    correct = jnp.take_along_axis(logs, labels[:, None], axis=-1)[:, 0]
    return -(correct + entropy_coefficient * entropy).mean(), moments


def _balanced_accuracy(
    model: TerminationModel,
    held_out: _Data,
    exclusive: bool,
    tokens: Int32[Array, "L n"],
    variants: Bool[Array, "L L"],
    others_undone: Bool[Array, "N L"] | None,
) -> Float[Array, ""]:
    """`others_undone`: instructions that the negative examples do not show carried out; without, a
    negative example counts for its own instruction only."""
    decide = TerminationTable(model.classifier, model.statistics, tokens)
    on_done, on_undone = decide(held_out.done_images), decide(held_out.undone_images)
    own = jnp.take_along_axis(on_done, held_out.done_ids[:, None], axis=-1)
    before = jnp.take_along_axis(on_undone, held_out.undone_ids[:, None], axis=-1)
    recall, specificity = own.mean(), 1 - before.mean()
    if exclusive and tokens.shape[0] > 1:
        others = ~variants[held_out.done_ids]
        silent = (~on_done & others).sum() / jnp.maximum(others.sum(), 1)
        specificity = (specificity + silent) / 2
    if others_undone is not None:
        quiet = (~on_undone & others_undone).sum() / jnp.maximum(others_undone.sum(), 1)
        specificity = (2 * specificity + quiet) / 3
    return (recall + specificity) / 2


def article_variants(language: Language) -> np.ndarray:
    """bool[L, L]: pairs of instructions that differ at most in an article. One view cannot tell
    them apart, so validation does not count them as mismatches."""
    meaning = [
        (clause.kind, *(phrase.object_class for phrase in clause.phrases))
        for clause in language.clauses
    ]
    return np.array([[one == other for other in meaning] for one in meaning])


def assess(
    model: TerminationModel, language: Language, examples: TerminationExamples
) -> dict[str, Any]:
    """Accuracy on examples: balanced over positives and negatives, overall and for each kind of
    instruction, and its parts.

    recall: own instruction on positives. specificity_before: own instruction on negatives.
    specificity_mismatch: other instructions on positives, article variants aside.
    variants_agree: how often the variant with the other article fires along on positives.
    A share without cases is None.
    """
    table = model.table(language)
    on_done = np.asarray(_decide(table, jnp.asarray(examples.done_images)))
    on_undone = np.asarray(_decide(table, jnp.asarray(examples.undone_images)))
    kinds = np.array([clause.kind for clause in language.clauses])
    variants = article_variants(language)

    def parts(is_kind: np.ndarray) -> dict[str, float | None]:
        own_rows = np.flatnonzero(is_kind[examples.done_ids])
        before_rows = np.flatnonzero(is_kind[examples.undone_ids])
        others = ~variants[examples.done_ids] & is_kind
        siblings = variants[examples.done_ids] & is_kind
        siblings[np.arange(len(siblings)), examples.done_ids] = False
        recall = share(on_done[own_rows, examples.done_ids[own_rows]])
        before = share(~on_undone[before_rows, examples.undone_ids[before_rows]])
        found = {"recall": recall, "specificity_before": before}
        specificity = before
        if examples.exclusive and language.num_ids > 1:
            found["specificity_mismatch"] = share(~on_done[others])
            found["variants_agree"] = share(on_done[siblings])
            specificity = middle(before, found["specificity_mismatch"])
        return {"accuracy": middle(recall, specificity), **found}

    record: dict[str, Any] = parts(np.ones(language.num_ids, bool))
    record["kinds"] = {
        name: parts(kinds == kind) for name, kind in CLAUSE_KINDS.items() if (kinds == kind).any()
    }
    return record


def share(hits: np.ndarray) -> float | None:
    """The share of hits; None where there are no cases."""
    return float(hits.mean()) if hits.size else None


def middle(one: float | None, other: float | None) -> float | None:
    """The mean of two shares; None where one is missing."""
    return None if one is None or other is None else (one + other) / 2


@eqx.filter_jit
def _decide(table: TerminationTable, images: UInt8[Array, "N 7 7 3"]) -> Bool[Array, "N L"]:
    return table(images)
