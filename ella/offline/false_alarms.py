"""How often a termination classifier is wrong in use, and the threshold that limits it.

Held-out examples are half positive; in use nearly every view shows no low-level instruction carried
out, and one false alarm in a hundred views pays a bonus by mistake in every episode. So false
alarms are counted on the views of an agent that acts at random, against the truth that the view
shows (`ella.shaping.termination.VisibleTermination`).
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, UInt8

from ella.errors import InputError
from ella.networks.termination import TerminationTable
from ella.offline.termination_examples import TerminationExamples, with_locked_room
from ella.offline.train_termination import TerminationModel
from ella.shaping.termination import AGENT_CELL, visible_termination
from ella.world.encoding import DROP, EMPTY, FORWARD, LEFT, PICKUP, RIGHT, TOGGLE
from ella.world.environment import Environment, make
from ella.world.language import Language
from ella.world.state import GridObservation
from ella.world.tasks import TaskSpec

ACTIONS = (LEFT, RIGHT, FORWARD, FORWARD, FORWARD, PICKUP, DROP, TOGGLE)
"""What the random agent chooses from: it walks a little more than a new policy does."""
SEEN_BY_VIEW = ("goto", "open", "pickup")
"""Kinds of instructions whose truth a single view shows."""


@dataclass(frozen=True)
class OrdinaryEpisodes:
    """T steps of B environments under random actions. Host arrays."""

    images: np.ndarray
    """uint8[T, B, 7, 7, 3]."""
    first: np.ndarray
    """bool[T, B]: whether the view is the first of its episode."""

    def environments(self, chosen: slice) -> "OrdinaryEpisodes":
        """Some of the environments."""
        return OrdinaryEpisodes(self.images[:, chosen], self.first[:, chosen])


def ordinary_episodes(
    tasks: tuple[TaskSpec, ...], num_views: int, *, key: PRNGKeyArray
) -> tuple[OrdinaryEpisodes, ...]:
    """About as many views in all, of each task and, where it has doors but locks none, of the same
    task with a locked room. Every environment plays for twice the longest horizon."""
    layouts: list[TaskSpec] = []
    for task in tasks:
        if unseen := [kind for kind in task.kinds if kind not in SEEN_BY_VIEW]:
            raise InputError(
                f"false alarms of '{task.name}' cannot be counted: a view does not show whether "
                f"'{unseen[0]}' is carried out; set ordinary_views to 0"
            )
        layouts.append(task)
        locked = with_locked_room(task)
        if locked is not None and task.lock_probability == 0:
            layouts.append(locked)
    found = []
    for layout, layout_key in zip(layouts, jax.random.split(key, len(layouts)), strict=True):
        num_envs = max(2, math.ceil(num_views / len(layouts) / _steps(layout)))
        found.append(random_episodes(layout, num_envs, ACTIONS, key=layout_key))
    return tuple(found)


def random_episodes(
    task: TaskSpec, num_envs: int, actions: tuple[int, ...], *, key: PRNGKeyArray
) -> OrdinaryEpisodes:
    """Environments that play for twice the task's longest horizon. Every action is drawn uniformly
    from `actions`; one that is listed twice is drawn twice as often."""
    images, first = _act_at_random(make(task), num_envs, _steps(task), actions, key)
    return OrdinaryEpisodes(np.asarray(images), np.asarray(first))


def _steps(task: TaskSpec) -> int:
    return 2 * max(task.horizons)


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _act_at_random(
    env: Environment, num_envs: int, steps: int, choices: tuple[int, ...], key: PRNGKeyArray
) -> tuple[UInt8[Array, "T B 7 7 3"], Bool[Array, "T B"]]:
    start_key, action_key = jax.random.split(key)
    vector = env.start(start_key, num_envs, 4 * num_envs)

    def step(vector: Any, action: Array) -> tuple[Any, tuple[Array, Array]]:
        after, _ = env.step_vector(vector, action)
        return after, (vector.observation.image, vector.first)

    actions = jax.random.choice(action_key, jnp.array(choices, jnp.int32), (steps, num_envs))
    return jax.lax.scan(step, vector, actions)[1]


def calibrated(
    model: TerminationModel,
    language: Language,
    episodes: tuple[OrdinaryEpisodes, ...],
    false_alarms: float,
) -> TerminationModel:
    """The model with the lowest threshold >= 0 at which the views have at most `false_alarms` on
    average, all instructions together."""
    margins, truth = zip(*(_judged(model, language, part) for part in episodes), strict=True)
    wrong = np.concatenate([margin[~true] for margin, true in zip(margins, truth, strict=True)])
    views = sum(part.first.size for part in episodes)
    return replace(model, threshold=jnp.asarray(_threshold(wrong, int(false_alarms * views))))


def calibrated_on_examples(
    model: TerminationModel,
    language: Language,
    examples: TerminationExamples,
    false_alarms: float,
) -> TerminationModel:
    """The same by examples of label 0, each for its own instruction and taken for one of all
    instructions."""
    table = model.table(language)
    margins = np.asarray(_margins(table, jnp.asarray(examples.undone_images)))
    own = margins[np.arange(len(margins)), examples.undone_ids]
    allowed = false_alarms / language.num_ids * len(own)
    return replace(model, threshold=jnp.asarray(_threshold(own, int(allowed))))


def count_false_alarms(
    model: TerminationModel, language: Language, episodes: tuple[OrdinaryEpisodes, ...]
) -> dict[str, float | None]:
    """What the classifier finds completed on ordinary views, against the truth.

    per_view: false alarms in a view, all instructions together; per_view_carrying: the same where
    the agent carries something, which no expert of "go to" does. false_completions,
    true_completions: low-level instructions that an episode completes by mistake (at its first
    alarm the view did not show it) and rightly. seen_at_once: the share of what episodes complete
    that is judged so in the first view that shows it, None where they complete nothing. Episodes
    last until they end or are cut off.
    """
    threshold = 0.0 if model.threshold is None else float(model.threshold)
    alarms, false, true, ends, views = 0, 0, 0, 0, 0
    carrying, alarms_carrying = 0, 0
    shown, seen_at_once = 0, 0
    for part in episodes:
        margins, truth = _judged(model, language, part)
        fires = margins > threshold
        wrong = (fires & ~truth).sum(-1)
        carries = part.images[:, :, *AGENT_CELL, 0] != EMPTY
        alarms += int(wrong.sum())
        alarms_carrying += int(wrong[carries].sum())
        carrying += int(carries.sum())
        views += part.first.size
        ends += int(part.first.sum())
        new = fires & ~_earlier_in_episode(fires, part.first)
        false += int((new & ~truth).sum())
        true += int((new & truth).sum())
        first_shown = truth & ~_earlier_in_episode(truth, part.first)
        shown += int(first_shown.sum())
        seen_at_once += int((fires & first_shown).sum())
    return {
        "threshold": threshold,
        "per_view": alarms / views,
        "per_view_carrying": alarms_carrying / max(1, carrying),
        "false_completions": false / ends,
        "true_completions": true / ends,
        "seen_at_once": seen_at_once / shown if shown else None,
        "steps_per_episode": views / ends,
        "episodes": ends,
    }


def _threshold(wrong_margins: np.ndarray, allowed: int) -> np.float32:
    """The least threshold >= 0 that at most `allowed` of the margins exceed."""
    if allowed >= wrong_margins.size:
        return np.float32(0)
    return np.float32(max(0.0, np.sort(wrong_margins)[::-1][allowed]))


def _judged(
    model: TerminationModel, language: Language, part: OrdinaryEpisodes
) -> tuple[np.ndarray, np.ndarray]:
    """(margins, truth) [T, B, L] of every view."""
    images = jnp.asarray(part.images.reshape(-1, *part.images.shape[2:]))
    margins = _margins(model.table(language), images)
    truth = visible_termination(language)(GridObservation(images))
    shape = (*part.first.shape, language.num_ids)
    return np.asarray(margins).reshape(shape), np.asarray(truth).reshape(shape)


def _earlier_in_episode(now: np.ndarray, first: np.ndarray) -> np.ndarray:
    """bool[T, B, L]: whether it was so before in the same episode."""
    found = np.zeros_like(now)
    for t in range(1, len(now)):
        found[t] = (found[t - 1] | now[t - 1]) & ~first[t][:, None]
    return found


@eqx.filter_jit
def _margins(table: TerminationTable, images: UInt8[Array, "N 7 7 3"]) -> Float[Array, "N L"]:
    return table.margins(images)
