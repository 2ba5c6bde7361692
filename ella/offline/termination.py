"""The offline stage of ELLA: a termination classifier for a low-level task, trained or recalled."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from ella.networks.settings import Precision
from ella.networks.termination import prepare
from ella.offline import cache
from ella.offline.demonstrations import record_episodes
from ella.offline.false_alarms import (
    calibrated,
    calibrated_on_examples,
    count_false_alarms,
    ordinary_episodes,
)
from ella.offline.settings import TerminationTrainingSettings
from ella.offline.stage import log_accuracy, stage_progress
from ella.offline.termination_examples import (
    TerminationExamples,
    concatenated,
    digest_of,
    expert_split,
    read_examples,
    split_examples,
    with_carried_objects,
    with_channels,
    with_locked_room,
)
from ella.offline.train_termination import (
    Progress,
    TerminationModel,
    assess,
    empty_model,
    middle,
    share,
    train_termination,
)
from ella.random_streams import Stream, stream_key
from ella.shaping.low_level import channels_of, low_level_language
from ella.shaping.termination import LearnedTermination, visible_termination
from ella.world.encoding import DOOR, LOCKED
from ella.world.environment import make
from ella.world.grammar import CLAUSE_KINDS
from ella.world.language import Language
from ella.world.state import GridObservation
from ella.world.tasks import TaskSpec

logger = logging.getLogger(__name__)

HELD_OUT_SHARE = 0.1
"""Of a user's examples, for validation."""
LEAST_RECALL = 0.5
"""A threshold that leaves less of the completions is warned of."""


@dataclass(frozen=True)
class TrainedTermination:
    """A termination classifier of a low-level task and how it was found to do."""

    task: TaskSpec
    model: TerminationModel
    record: dict[str, Any]
    """See `ella.offline.train_termination.assess`; also steps, best_step, training_examples and,
    where they were counted, false_alarms (`ella.offline.false_alarms.count_false_alarms`)."""
    low_level: Language | None = None
    """The instructions it judges; None for those of the task."""

    @property
    def language(self) -> Language:
        return self.low_level or self.task.language

    def prepared(self, dtype: Precision = "float32", chunk: int = 256) -> LearnedTermination:
        """Ready for use in a shaper. `chunk` observations are crossed with all instructions at a
        time."""
        tokens, model = jnp.asarray(self.language.all_tokens), self.model
        table = prepare(
            model.classifier, model.statistics, tokens, model.threshold, dtype=dtype, chunk=chunk
        )
        return LearnedTermination(table)


def termination_classifier(
    task: TaskSpec,
    settings: TerminationTrainingSettings | None = None,
    *,
    beside: tuple[TaskSpec, ...] = (),
    examples: Path | None = None,
    directory: Path | None = None,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> TrainedTermination:
    """The classifier of a low-level task, from the cache or trained now.

    Args:
        task: The low-level task.
        beside: Further low-level tasks whose instructions it is to judge as well; the episodes are
            shared out evenly.
        settings: How to train; the paper's way by default.
        examples: A file of labelled examples (docs/offline.md) to learn from instead of the
            expert's episodes.
        directory: The cache's place; the user's own by default.
        progress: Called after every evaluation while training, besides what is shown.
    """
    settings = settings or TerminationTrainingSettings()
    tasks = (task, *beside)
    language = low_level_language(tasks, settings.one_article)
    configuration: dict[str, Any] = {"task": task, "settings": settings}
    if beside:
        configuration |= {"beside": beside, "carried": "by task"}
    if examples is not None:
        configuration["examples"] = digest_of(examples)

    def compute() -> tuple[TerminationModel, dict[str, Any]]:
        if examples is not None:
            both = low_level_language(tasks)
            found = with_channels(read_examples(examples, both), channels_of(both, language))
            training, validation = split_examples(found, HELD_OUT_SHARE, settings.seed)
            layouts: dict[str, TerminationExamples] = {}
        else:
            training, layouts = examples_of_tasks(tasks, language, settings)
            validation = concatenated(*layouts.values())
        what = f"training the termination classifier of {_names(tasks)}"
        with stage_progress(what, "steps") as shown:

            def show(now: Progress) -> None:
                accuracies = f"balanced accuracy {now.accuracy:.2%}, best {now.best:.2%}"
                shown(now.step, now.steps, accuracies)
                progress(now)

            model, record = train_termination(language, training, validation, settings, show)
        if settings.ordinary_views > 0:
            labelled = validation if examples is not None else None
            model, counted = _with_false_alarms(model, tasks, language, settings, labelled)
            record |= {**assess(model, language, validation), "false_alarms": counted}
        record["layouts"] = {name: assess(model, language, part) for name, part in layouts.items()}
        return model, record

    model, record = cache.cached(
        directory or cache.default_directory(),
        f"termination-{_names(tasks)}",
        configuration,
        jax.eval_shape(lambda key: _empty(settings, key=key), jax.random.key(0)),
        compute,
    )
    log_quality(f"termination classifier of {_names(tasks)}", record, settings.false_alarms)
    return TrainedTermination(task, model, record, language)


def log_quality(what: str, record: dict[str, Any], false_alarms: float) -> None:
    """Log how a classifier did; warn if bonuses are close to noise, or if its threshold leaves few
    of them."""
    remedy = (
        "train it on more episodes or for more steps (its settings episodes, epochs, max_steps)"
    )
    if false_alarms > 0 and record["recall"] < LEAST_RECALL:
        logger.warning(
            f"{what}: at most {false_alarms:g} false alarms a view leave it {record['recall']:.1%} "
            f"of completions, so few bonuses are paid; raise its setting false_alarms, or {remedy}"
        )
    else:
        log_accuracy(what, record["accuracy"], f"{remedy}, or from better examples")
    if counted := record.get("false_alarms"):
        logger.info("%.2g false completions an ordinary episode", counted["false_completions"])


def _names(tasks: tuple[TaskSpec, ...]) -> str:
    return "+".join(task.name for task in tasks)


def _empty(settings: TerminationTrainingSettings, *, key: PRNGKeyArray) -> TerminationModel:
    return empty_model(settings.network, calibrated=settings.false_alarms > 0, key=key)


def examples_of_tasks(
    tasks: tuple[TaskSpec, ...], language: Language, settings: TerminationTrainingSettings
) -> tuple[TerminationExamples, dict[str, TerminationExamples]]:
    """(training examples, validation examples by layout) of the tasks' expert episodes."""
    found: dict[str, list[TerminationExamples]] = {}
    for task in tasks:
        episodes = -(-settings.episodes // len(tasks))
        validation = -(-settings.validation_episodes // len(tasks))
        total = episodes + validation * (1 if with_locked_room(task) is None else 2)
        what = f"collecting {episodes} expert episodes of {task.name}"
        with stage_progress(what, "episodes") as shown:
            split = expert_split(
                task,
                episodes,
                validation,
                settings.locked_share,
                settings.seed,
                shown.counting(total),
            )
        # What is in hand is the truth of "pick up". Beside such a task, a view of another with a
        # random object in hand is rarely drawn as a mismatch of the very instruction it shows.
        carried_share = 0.0 if "pickup" in task.kinds else settings.carried_share
        channels = channels_of(task.language, language)
        for name, part in (
            ("training", split.training),
            ("as_the_task", split.held_out),
            ("locked_room", split.held_out_locked),
        ):
            if part is not None:
                carrying = with_carried_objects(part, carried_share, seed=settings.seed)
                found.setdefault(name, []).append(with_channels(carrying, channels))
    together = {name: concatenated(*parts) for name, parts in found.items()}
    return together.pop("training"), together


def _with_false_alarms(
    model: TerminationModel,
    tasks: tuple[TaskSpec, ...],
    language: Language,
    settings: TerminationTrainingSettings,
    labelled: TerminationExamples | None,
) -> tuple[TerminationModel, dict[str, Any]]:
    """(the model with its threshold, where one is asked for; false alarms on other ordinary views
    than the threshold was chosen on). A user's `labelled` examples choose it by themselves."""
    logger.info("counting false alarms on %d ordinary views", settings.ordinary_views)
    key = stream_key(settings.seed, Stream.ORDINARY_VIEWS)
    episodes = ordinary_episodes(tasks, settings.ordinary_views, key=key)
    chosen_on = tuple(part.environments(slice(0, None, 2)) for part in episodes)
    counted_on = tuple(part.environments(slice(1, None, 2)) for part in episodes)
    before = count_false_alarms(model, language, counted_on)
    if settings.false_alarms == 0:
        return model, before
    if labelled is None:
        model = calibrated(model, language, chosen_on, settings.false_alarms)
    else:
        model = calibrated_on_examples(model, language, labelled, settings.false_alarms)
    counted = count_false_alarms(model, language, counted_on)
    return model, {**counted, "without_threshold": before}


def find_termination(
    tasks: tuple[TaskSpec, ...],
    settings: TerminationTrainingSettings,
    *,
    examples: Path | None = None,
    trained: bool = True,
) -> TrainedTermination:
    """The classifier of some low-level tasks together; not `trained`, one of the same shape to put
    weights into."""
    if not trained:
        return untrained_termination(tasks, settings)
    task, *beside = tasks
    return termination_classifier(task, settings, beside=tuple(beside), examples=examples)


def untrained_termination(
    tasks: tuple[TaskSpec, ...], settings: TerminationTrainingSettings
) -> TrainedTermination:
    """A classifier of the same shape as the trained one, to put weights into; all are zero, since
    random ones would have to be compiled."""
    language = low_level_language(tasks, settings.one_article)
    shapes = jax.eval_shape(lambda key: _empty(settings, key=key), jax.random.key(0))
    model = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return TrainedTermination(tasks[0], model, {}, language)


def assess_on_task(
    trained: TrainedTermination, task: TaskSpec, num_episodes: int = 256, *, key: PRNGKeyArray
) -> dict[str, Any]:
    """How the classifier does on what is seen in another task's episodes, against the truth the
    view shows, for each kind of instruction, and separately where a locked door is in view.

    The truth counts 'go to' while the object is ahead and 'pick up' while it is in hand, however
    that came about, and it is the same for both articles. Returns, under 'all' and 'locked_door',
    the number of views and per kind accuracy (balanced), recall and specificity; a share without
    cases is None.
    """
    episodes = record_episodes(make(task), key, num_episodes)
    in_episode = np.arange(episodes.images.shape[1]) <= episodes.lengths[:, None]
    views = episodes.images[in_episode]
    seen = GridObservation(jnp.asarray(views))
    decided = np.asarray(eqx.filter_jit(trained.prepared())(seen))
    truth = np.asarray(visible_termination(trained.language)(seen))
    locked = ((views[..., 0] == DOOR) & (views[..., 2] == LOCKED)).any(axis=(1, 2))
    kinds = np.array([clause.kind for clause in trained.language.clauses])

    def scores(rows: np.ndarray) -> dict[str, Any]:
        found: dict[str, Any] = {"views": int(rows.sum())}
        for name, kind in CLAUSE_KINDS.items():
            if not (kinds == kind).any():
                continue
            said, true = decided[rows][:, kinds == kind], truth[rows][:, kinds == kind]
            recall, specificity = share(said[true]), share(~said[~true])
            found[name] = {
                "accuracy": middle(recall, specificity),
                "recall": recall,
                "specificity": specificity,
            }
        return found

    return {"all": scores(np.ones(len(views), bool)), "locked_door": scores(locked)}
