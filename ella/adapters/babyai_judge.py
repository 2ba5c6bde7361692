"""Low-level instructions and their judge for BabyAI's observations: ELLA's tasks or minigrid's."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ella.adapters.host_ella import Judge
from ella.errors import InputError
from ella.offline.settings import TerminationTrainingSettings
from ella.offline.termination import termination_classifier
from ella.shaping.termination import AbstractTermination, visible_termination
from ella.world.state import GridObservation
from ella.world.tasks import TaskSpec, find


@dataclass(frozen=True)
class LowLevel:
    """What `HostElla` needs to know of a low-level task."""

    instructions: tuple[str, ...]
    judge: Judge


def babyai_low_level(
    task: str | TaskSpec,
    *,
    learned: bool = True,
    settings: TerminationTrainingSettings | None = None,
) -> LowLevel:
    """The instructions of a low-level task such as `goto-room`, judged by `observations["image"]`.

    The judge is the termination classifier of the offline stage, trained now unless it is in the
    cache (minutes on a GPU), or without `learned` the truth as far as one view tells it.
    """
    spec = find(task) if isinstance(task, str) else task
    language = spec.language
    if language.form != "single":
        raise InputError(f"low-level task '{spec.name}' must have sentences of one clause")
    termination: AbstractTermination = (
        termination_classifier(spec, settings).prepared()
        if learned
        else visible_termination(language)
    )
    terminated = eqx.filter_jit(termination)

    def judge(observations: Any) -> np.ndarray:
        seen = GridObservation(jnp.asarray(observations["image"], jnp.uint8))
        return np.asarray(terminated(seen))

    return LowLevel(tuple(language.text(index) for index in range(language.num_ids)), judge)
