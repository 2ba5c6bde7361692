"""Collects labelled examples for a judge while a script or a person acts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from ella.adapters.observation_parts import numeric_parts
from ella.adapters.recorded_examples import RecordedExamples
from ella.errors import InputError, unknown_name

Completed = Callable[[gymnasium.Env[Any, Any]], Sequence[bool]]
"""Of the environment in its current state, bool[L]: which instructions are shown completed."""


class ExampleRecorder(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that keeps every observation, with labels for L low-level instructions.

    Labels come from `completed`, called after every reset and step, or from whoever acts: `mark`
    says that the current observation shows an instruction completed. Then an instruction counts as
    not completed before its first mark in an episode, and as unknown after a mark, until it is
    marked or unmarked again.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        instructions: Sequence[str],
        completed: Completed | None = None,
    ) -> None:
        super().__init__(env)
        if isinstance(instructions, str) or not len(instructions):
            raise InputError("instructions must be a list of at least one instruction")
        if len(set(instructions)) < len(instructions):
            raise InputError("two instructions are the same")
        self.instructions = tuple(instructions)
        self._completed = completed
        self._episodes: list[_Episode] = []
        self._current: _Episode | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._current = _Episode(is_unmarked=np.ones(len(self.instructions), bool))
        self._episodes.append(self._current)
        self._add(observation)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._add(observation)
        return observation, reward, terminated, truncated, info

    def mark(self, instruction: str) -> None:
        """The current observation shows the instruction completed."""
        self._label(instruction, completed=True)

    def unmark(self, instruction: str) -> None:
        """The current observation does not, or no longer, show the instruction completed; nor do
        those that follow, until the next mark."""
        self._label(instruction, completed=False)

    def discard_episode(self) -> None:
        """Forget the current episode, because a mark was missed for example; nothing is recorded
        until the next reset."""
        if self._current is not None:
            self._episodes.remove(self._current)
            self._current = None

    def examples(self) -> RecordedExamples:
        """Everything recorded so far."""
        if not self._episodes:
            raise InputError("nothing is recorded yet; call reset() and step()")
        observations = [one for episode in self._episodes for one in episode.observations]
        lengths = [len(episode.observations) for episode in self._episodes]
        return RecordedExamples(
            instructions=self.instructions,
            observations={
                name: np.concatenate([one[name] for one in observations])
                for name in observations[0]
            },
            labels=np.array([row for episode in self._episodes for row in episode.labels]),
            known=np.array([row for episode in self._episodes for row in episode.known]),
            episodes=np.repeat(np.arange(len(lengths), dtype=np.int32), lengths),
        )

    def save(self, path: Path | str) -> None:
        """Write everything recorded so far to one file, which `RecordedExamples.load` reads."""
        self.examples().save(path)

    def _add(self, observation: Any) -> None:
        episode = self._current
        if episode is None:
            return
        parts = numeric_parts([observation])
        if not parts:
            raise InputError("the observations have no numbers for a judge to read")
        episode.observations.append(parts)
        if self._completed is None:
            episode.labels.append(np.zeros(len(self.instructions), bool))
            episode.known.append(episode.is_unmarked.copy())
            return
        labels = np.array(self._completed(self.env))
        if labels.shape != (len(self.instructions),) or not np.isin(labels, (0, 1)).all():
            raise InputError(
                f"completed must return {len(self.instructions)} truth values, one for each "
                f"instruction, got {labels.tolist()}"
            )
        episode.labels.append(labels.astype(bool))
        episode.known.append(np.ones(len(self.instructions), bool))

    def _label(self, instruction: str, *, completed: bool) -> None:
        if self._completed is not None:
            raise InputError("labels come from `completed`, so nothing can be marked")
        if self._current is None:
            raise InputError("there is no observation to mark; call reset() first")
        if instruction not in self.instructions:
            raise unknown_name("instruction", instruction, self.instructions)
        index = self.instructions.index(instruction)
        self._current.labels[-1][index] = completed
        self._current.known[-1][index] = True
        self._current.is_unmarked[index] = not completed


@dataclass(eq=False)
class _Episode:
    """What was recorded of one episode, an observation each."""

    is_unmarked: np.ndarray
    """bool[L]: which instructions the next observation is taken not to show."""
    observations: list[dict[str, np.ndarray]] = field(default_factory=list)
    """Parts [1, ...]."""
    labels: list[np.ndarray] = field(default_factory=list)
    known: list[np.ndarray] = field(default_factory=list)
