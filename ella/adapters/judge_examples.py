"""Labelled observations for a judge: the split, balanced batches, and quality on held-out ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ella.errors import InputError

MOST_DRAWS = 100
"""Of a split that has every label on both sides, if there is one."""


@dataclass(frozen=True)
class JudgeQuality:
    """How often a judge is right on held-out labels."""

    accuracy: float
    """Share of labels judged right."""
    recall: float
    """Share of the labels 1 judged 1."""
    false_alarm_rate: float
    """Share of the labels 0 judged 1."""
    false_alarms_per_episode: float | None
    """Instructions that an episode's observations are judged to show before they do, if ever; each
    is a bonus for nothing. None without episodes."""
    labels: int
    """How many there were."""

    @property
    def balanced_accuracy(self) -> float:
        """Accuracy if there were as many 1 as 0."""
        return (self.recall + 1 - self.false_alarm_rate) / 2

    def __str__(self) -> str:
        per_episode = self.false_alarms_per_episode
        return (
            f"accuracy {self.accuracy:.1%}, recall {self.recall:.1%}, false alarms at "
            f"{self.false_alarm_rate:.2%} of observations"
            + ("" if per_episode is None else f" ({per_episode:.2f} per episode)")
        )


@dataclass(frozen=True)
class LabelledExamples:
    """N observations with labels for some or all of L instructions."""

    instructions: tuple[str, ...]
    labels: np.ndarray
    """bool[N, L]."""
    known: np.ndarray
    """bool[N, L]: which labels were given."""
    episodes: np.ndarray | None
    """[N], in the order of the observations; None if unknown."""
    held_out: np.ndarray
    """bool[N]."""

    @cached_property
    def _groups(self) -> tuple[np.ndarray, np.ndarray]:
        """Training rows, group after group, and the groups' sizes int[2 * L]: a group has the rows
        of 2 * instruction + label."""
        usable = self.known & ~self.held_out[:, None]
        groups = [
            np.flatnonzero(usable[:, index] & (self.labels[:, index] == label))
            for index in range(len(self.instructions))
            for label in (False, True)
        ]
        return np.concatenate(groups), np.array([len(rows) for rows in groups])

    def check(self) -> "LabelledExamples":
        """Itself, if every instruction has both labels among what training and validation see."""
        for index, text in enumerate(self.instructions):
            for label in (0, 1):
                given = self.known[:, index] & (self.labels[:, index] == bool(label))
                if not (given & ~self.held_out).any():
                    where = "outside the held-out part" if given.any() else "at all"
                    raise InputError(f"'{text}' has no example with label {label} {where}")
        if not (self.known & self.held_out[:, None]).any():
            raise InputError("nothing is held out to measure the judge on; give more examples")
        return self

    def balanced_batch(
        self, size: int, random: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(rows int[size], instructions int32[size], labels float32[size]): instructions and
        labels are equally probable."""
        rows, sizes = self._groups
        group = random.integers(len(sizes), size=size)
        place = random.random(size)
        starts = np.cumsum(sizes) - sizes
        rows = rows[starts[group] + (place * sizes[group]).astype(int)]
        return rows, (group // 2).astype(np.int32), (group % 2).astype(np.float32)

    def log_odds(self) -> np.ndarray:
        """float[L]: of label 1 in training, for judging observations as often as they come."""
        sizes = self._groups[1].astype(float).reshape(-1, 2)
        return np.log(sizes[:, 1] / sizes[:, 0])


def labelled_examples(
    count: int,
    instructions: Sequence[str],
    labels: Any,
    episodes: Any,
    held_out: float,
    random: np.random.Generator,
    known: Any = None,
) -> LabelledExamples:
    """Examples of `count` observations, checked and split; the arguments are those of
    `TrainedJudge.fit`."""
    if isinstance(instructions, str) or not len(instructions):
        raise InputError("instructions must be a list of at least one instruction")
    texts = tuple(str(text) for text in instructions)
    labels = np.asarray(labels)
    if labels.dtype.kind not in "biuf" or not np.isin(labels, (0, 1)).all():
        raise InputError("labels must be 0 or 1")
    if labels.shape == (count, len(texts)):
        if len(set(texts)) < len(texts):
            raise InputError("two instructions are the same")
        different, found = texts, labels.astype(bool)
        known = np.ones(labels.shape, bool) if known is None else np.asarray(known)
        if known.shape != labels.shape or known.dtype != bool:
            raise InputError(
                f"known must be bool{list(labels.shape)} like the labels, got "
                f"{known.dtype}{list(known.shape)}"
            )
    elif labels.shape == (count,) == (len(texts),):
        if known is not None:
            raise InputError("known needs labels [N, L], with a column for each instruction")
        different = tuple(dict.fromkeys(texts))
        place = {text: index for index, text in enumerate(different)}
        columns = [place[text] for text in texts]
        known, found = np.zeros((2, count, len(different)), bool)
        known[np.arange(count), columns] = True
        found[np.arange(count), columns] = labels.astype(bool)
    else:
        raise InputError(
            f"labels of {count} observations must be [{count}, {len(texts)}] with one column for "
            f"each instruction, or [{count}] with {count} instructions, got {list(labels.shape)} "
            f"with {len(texts)} instructions"
        )
    if episodes is not None:
        episodes = np.asarray(episodes)
        if episodes.shape != (count,):
            raise InputError(f"episodes must be [{count}], got {list(episodes.shape)}")
    chosen = _held_out(found, known, episodes, held_out, random)
    return LabelledExamples(different, found, known, episodes, chosen).check()


def measured_quality(examples: LabelledExamples, judged: np.ndarray) -> JudgeQuality:
    """Of judgements bool[held-out rows, L]."""
    known, labels = examples.known[examples.held_out], examples.labels[examples.held_out]
    carried_out, not_yet = known & labels, known & ~labels
    return JudgeQuality(
        accuracy=float((judged == labels)[known].mean()),
        recall=_share(judged, carried_out),
        false_alarm_rate=_share(judged, not_yet),
        false_alarms_per_episode=None
        if examples.episodes is None
        else _false_alarms(examples.episodes[examples.held_out], judged & not_yet, carried_out),
        labels=int(known.sum()),
    )


def recall_of_each(examples: LabelledExamples, judged: np.ndarray) -> np.ndarray:
    """[L] of judgements bool[held-out rows, L]: the share of the held-out labels 1 judged 1; nan
    where there are none."""
    shown = (examples.known & examples.labels)[examples.held_out]
    return np.array([_share(judged[:, i], shown[:, i]) for i in range(shown.shape[1])])


def _share(judged: np.ndarray, among: np.ndarray) -> float:
    return float(judged[among].mean()) if among.any() else float("nan")


def _false_alarms(episodes: np.ndarray, alarm: np.ndarray, carried_out: np.ndarray) -> float:
    """Instructions per episode with an alarm before they were carried out."""
    ids = np.unique(episodes)
    found = 0
    for episode in ids:
        rows = episodes == episode
        before = ~np.logical_or.accumulate(carried_out[rows], axis=0)
        found += int((alarm[rows] & before).any(axis=0).sum())
    return found / len(ids)


def _held_out(
    labels: np.ndarray,
    known: np.ndarray,
    episodes: np.ndarray | None,
    share: float,
    random: np.random.Generator,
) -> np.ndarray:
    """bool[N]: a share of the episodes, or of the observations. It is drawn again while none or all
    of the several examples of a label are among them; if need be, one of all is taken out."""
    if episodes is None:
        row_unit = np.arange(len(labels))
        count = len(labels)
    else:
        ids, row_unit = np.unique(episodes, return_inverse=True)
        row_unit, count = row_unit.reshape(-1), len(ids)
    number = max(1, round(share * count))
    groups = [
        np.flatnonzero(np.bincount(row_unit[known[:, index] & (labels[:, index] == label)]))
        for index in range(labels.shape[1])
        for label in (False, True)
    ]
    several = [units for units in groups if len(units) > 1]
    needed = [units for units in groups if len(units) == 1]
    free = np.setdiff1d(np.arange(count), np.concatenate([*needed, []]))
    best, most = np.zeros(count, bool), -1
    for _ in range(MOST_DRAWS):
        chosen = np.zeros(count, bool)
        chosen[random.permutation(free)[:number]] = True
        shared = sum(0 < chosen[units].sum() < len(units) for units in several)
        if shared > most:
            best, most = chosen, shared
        if shared == len(several):
            break
    for units in several:
        if best[units].all():
            best[units[0]] = False
    return best[row_unit]
