"""The offline stage of ELLA: a termination classifier for a low-level task, trained or recalled."""

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
from ella.offline.settings import TerminationTrainingSettings
from ella.offline.stage import log_accuracy, stage_progress
from ella.offline.termination_examples import (
    digest_of,
    expert_split,
    joined,
    read_examples,
    split_examples,
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
from ella.shaping.termination import LearnedTermination, visible_termination
from ella.world.encoding import DOOR, LOCKED
from ella.world.environment import make
from ella.world.grammar import CLAUSE_KINDS
from ella.world.state import GridObservation
from ella.world.tasks import TaskSpec

HELD_OUT_SHARE = 0.1
"""Of a user's examples, for validation."""


@dataclass(frozen=True)
class TrainedTermination:
    """A termination classifier of a low-level task and how it was found to do."""

    task: TaskSpec
    model: TerminationModel
    record: dict[str, Any]
    """See `ella.offline.train_termination.assess`; also steps, best_step, training_examples."""

    def prepared(self, dtype: Precision = "float32", chunk: int = 256) -> LearnedTermination:
        """Ready for use in a shaper. `chunk` observations are crossed with all instructions at a
        time."""
        language = self.task.language
        tokens = language.tokens(jnp.arange(language.num_ids))
        model = self.model
        return LearnedTermination(
            prepare(model.classifier, model.statistics, tokens, dtype=dtype, chunk=chunk)
        )


def termination_classifier(
    task: TaskSpec,
    settings: TerminationTrainingSettings | None = None,
    *,
    examples: Path | None = None,
    directory: Path | None = None,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> TrainedTermination:
    """The classifier of a low-level task, from the cache or trained now.

    Args:
        task: The low-level task.
        settings: How to train; the paper's way by default.
        examples: A file of labelled examples (docs/offline.md) to learn from instead of the
            expert's episodes.
        directory: The cache's place; the user's own by default.
        progress: Called after every evaluation while training, besides what is shown.
    """
    settings = settings or TerminationTrainingSettings()
    configuration: dict[str, Any] = {"task": task, "settings": settings}
    if examples is not None:
        configuration["examples"] = digest_of(examples)

    def compute() -> tuple[TerminationModel, dict[str, Any]]:
        if examples is not None:
            found = read_examples(examples, task.language)
            training, validation = split_examples(found, HELD_OUT_SHARE, settings.seed)
            layouts = {}
        else:
            what = f"collecting {settings.episodes} expert episodes of {task.name}"
            num_layouts = 1 if with_locked_room(task) is None else 2
            total = settings.episodes + num_layouts * settings.validation_episodes
            with stage_progress(what, "episodes") as shown:
                split = expert_split(
                    task,
                    settings.episodes,
                    settings.validation_episodes,
                    settings.locked_share,
                    settings.seed,
                    shown.counting(total),
                )
            training, layouts = split.training, {"as_the_task": split.held_out}
            if split.held_out_locked is not None:
                layouts["locked_room"] = split.held_out_locked
            validation = joined(*layouts.values())
        what = f"training the termination classifier of {task.name}"
        with stage_progress(what, "steps") as shown:

            def show(now: Progress) -> None:
                accuracies = f"balanced accuracy {now.accuracy:.2%}, best {now.best:.2%}"
                shown(now.step, now.steps, accuracies)
                progress(now)

            model, record = train_termination(task.language, training, validation, settings, show)
        record["layouts"] = {
            name: assess(model, task.language, part) for name, part in layouts.items()
        }
        return model, record

    model, record = cache.cached(
        directory or cache.default_directory(),
        f"termination-{task.name}",
        configuration,
        jax.eval_shape(lambda key: empty_model(settings.network, key=key), jax.random.key(0)),
        compute,
    )
    log_accuracy(
        f"termination classifier of {task.name}",
        record["accuracy"],
        "train it on more episodes or for more steps (its settings episodes, epochs, max_steps), "
        "or from better examples",
    )
    return TrainedTermination(task, model, record)


def termination_judge(
    task: TaskSpec,
    settings: TerminationTrainingSettings,
    *,
    examples: Path | None = None,
    dtype: Precision = "float32",
    trained: bool = True,
) -> LearnedTermination:
    """The classifier of a low-level task, ready for use in a shaper; not `trained`, one of the same
    shape to put weights into."""
    if not trained:
        return untrained_termination(task, settings).prepared(dtype)
    return termination_classifier(task, settings, examples=examples).prepared(dtype)


def untrained_termination(
    task: TaskSpec, settings: TerminationTrainingSettings
) -> TrainedTermination:
    """A classifier of the same shape as the trained one, to put weights into."""
    return TrainedTermination(task, empty_model(settings.network, key=jax.random.key(0)), {})


def assess_on_task(
    trained: TrainedTermination, task: TaskSpec, num_episodes: int = 256, *, key: PRNGKeyArray
) -> dict[str, Any]:
    """How the classifier does on what is seen in another task's episodes, against the truth the
    view shows, for each kind of instruction; apart where a locked door is in view.

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
    truth = np.asarray(visible_termination(trained.task.language)(seen))
    locked = ((views[..., 0] == DOOR) & (views[..., 2] == LOCKED)).any(axis=(1, 2))
    kinds = np.array([clause.kind for clause in trained.task.language.clauses])

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
