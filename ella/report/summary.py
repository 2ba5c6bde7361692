"""What a set of runs says: how methods did on each task, and how they compare."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ella.errors import InputError, unknown_name
from ella.intervals import SHARE, Interval, difference_of_means, student_t
from ella.report import statistics
from ella.report.artefacts import Artefacts, collect
from ella.report.groups import (
    Group,
    area,
    final_success,
    group_runs,
    success_alone,
)
from ella.report.method_styles import baseline, method_label
from ella.report.palette import ordered
from ella.report.runs import Run, read_runs
from ella.report.statistics import Ratio, Scores, Verdict
from ella.training.evaluation import BACKENDS, MODES, Backend, Mode
from ella.world.tasks import all_tasks

PROFILE_THRESHOLDS = np.linspace(0, 1, 101)
MARGIN = 0.05
"""Areas that differ by less are equivalent, unless another margin is named."""
DIFFERENCE = (-1.0, 1.0)
"""Bounds of the difference of two shares."""


@dataclass(frozen=True)
class AreaDifference:
    """How much the area of a method exceeds that of the baseline."""

    interval: Interval
    verdict: Verdict


@dataclass(frozen=True)
class GroupResult:
    """How a group did within the frames all compared groups of its task have."""

    group: Group
    final: Interval
    area: Interval
    difference: AreaDifference | None
    """From the baseline; None without one."""
    reached: tuple[np.ndarray, ...]
    """Per threshold float[seeds]: frames until it; infinite if never."""
    ratios: tuple[Ratio | None, ...]
    """Per threshold: the baseline's frames to this group's."""
    alone: Mapping[tuple[Backend, Mode], Interval]
    """By world and mode: success of the final policies, each alone on fresh levels, where it was
    measured of all seeds."""


@dataclass(frozen=True)
class Comparison:
    """A method against the baseline, over the tasks both have."""

    label: str
    tasks: tuple[str, ...]
    better_area: Interval
    better_final: Interval
    difference: AreaDifference | None
    """Averaged over the tasks; None where a task has no seeds in common."""


@dataclass(frozen=True)
class Summary:
    """All a report shows."""

    runs: tuple[Run, ...]
    groups: tuple[Group, ...]
    """As they are drawn: with all their seeds."""
    compared: tuple[Group, ...]
    """The same without the runs that stopped far too early, where anything is left."""
    artefacts: tuple[Artefacts, ...]
    warnings: tuple[str, ...]
    baseline: str | None
    """The label others are compared with."""
    margin: float
    """Areas that differ by less are equivalent."""

    @cached_property
    def labels(self) -> list[str]:
        return ordered([group.label for group in self.groups])

    @cached_property
    def tasks(self) -> list[str]:
        """In the order in which they are registered (the paper's), then others."""
        known = [spec.name for spec in all_tasks()]
        found = dict.fromkeys(group.task for group in self.groups)
        return sorted(found, key=lambda task: known.index(task) if task in known else len(known))

    def of_task(self, task: str) -> list[Group]:
        """Drawn groups in the order of labels."""
        return self._in_order(self.groups, task)

    def _in_order(self, groups: Sequence[Group], task: str) -> list[Group]:
        found = [group for group in groups if group.task == task]
        return sorted(found, key=lambda group: self.labels.index(group.label))

    def budget(self, task: str) -> float:
        """Frames that every compared seed of the task has."""
        return min(min(group.ends) for group in self.compared if group.task == task)

    def scores(self, label: str, tasks: Sequence[str], kind: str) -> Scores:
        """Per task the `final` success or the `area` of each seed that measured it."""
        rate = final_success if kind == "final" else area
        return [_known(rate(self._compared(label, task), self.budget(task))) for task in tasks]

    def _compared(self, label: str, task: str) -> Group:
        return next(group for group in self.compared if (group.label, group.task) == (label, task))

    def shared_tasks(self, labels: Sequence[str]) -> list[str]:
        """Tasks on which all of the labels are compared."""
        have = [{g.task for g in self.compared if g.label == label} for label in labels]
        return [task for task in self.tasks if all(task in tasks for tasks in have)]

    @cached_property
    def results(self) -> list[GroupResult]:
        """One per compared group, by task."""
        return [
            self._result(group)
            for task in self.tasks
            for group in self._in_order(self.compared, task)
        ]

    def _result(self, group: Group) -> GroupResult:
        until = self.budget(group.task)
        against = None
        if self.baseline is not None and self.baseline != group.label:
            others = [one for one in self.compared if one.label == self.baseline]
            against = next((one for one in others if one.task == group.task), None)
        reached = tuple(
            statistics.frames_to_reach(group.frames, group.success, threshold)
            for threshold in statistics.THRESHOLDS
        )
        ratios: list[Ratio | None] = []
        for threshold, mine in zip(statistics.THRESHOLDS, reached, strict=True):
            if against is None:
                ratios.append(None)
                continue
            theirs = statistics.frames_to_reach(against.frames, against.success, threshold)
            budgets = (min(against.ends), min(group.ends))
            ratios.append(statistics.frames_ratio(theirs, mine, budgets))
        areas = _known(area(group, until))
        pairs = [] if against is None else [(areas, _known(area(against, until)))]
        return GroupResult(
            group,
            student_t(_known(final_success(group, until)), SHARE),
            student_t(areas, SHARE),
            self._difference(pairs),
            reached,
            tuple(ratios),
            {
                (backend, mode): found
                for backend in BACKENDS
                for mode in MODES
                if (found := success_alone(group, backend, mode)) is not None
            },
        )

    def _difference(self, pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> AreaDifference | None:
        """Of two groups' areas, per task."""
        if not pairs or min(side.size for pair in pairs for side in pair) == 0:
            return None
        found = difference_of_means(pairs)
        low, high = np.clip((found.low, found.high), *DIFFERENCE)
        interval = Interval(found.value, float(low), float(high))
        return AreaDifference(interval, statistics.verdict(interval, self.margin))

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """Every label that shares a task with the baseline."""
        found = []
        for label in self.labels:
            tasks = self.shared_tasks([label, self.baseline]) if self.baseline else []
            if label == self.baseline or not tasks:
                continue
            theirs = str(self.baseline)
            areas, finals = (
                (self.scores(label, tasks, kind), self.scores(theirs, tasks, kind))
                for kind in ("area", "final")
            )
            area_chance = statistics.probability_of_improvement(*areas)
            final_chance = statistics.probability_of_improvement(*finals)
            difference = self._difference(list(zip(*areas, strict=True)))
            found.append(Comparison(label, tuple(tasks), area_chance, final_chance, difference))
        return found

    @cached_property
    def profile_tasks(self) -> list[str]:
        """Tasks on which all labels that are compared anywhere are."""
        return self.shared_tasks(self._compared_labels)

    def interquartile_mean(self, label: str, kind: str) -> Interval:
        """Of the `final` success or the `area` of all seeds on `profile_tasks`."""
        scores = self.scores(label, self.profile_tasks, kind)
        return statistics.bootstrap_interval(scores, statistics.interquartile_mean, SHARE)

    @cached_property
    def profiles(self) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Per label the share of its runs whose final success exceeds `PROFILE_THRESHOLDS`, over
        `profile_tasks`; empty if there are none."""
        if not self.profile_tasks:
            return {}
        return {
            label: statistics.performance_profile(
                self.scores(label, self.profile_tasks, "final"), PROFILE_THRESHOLDS
            )
            for label in self._compared_labels
        }

    @property
    def _compared_labels(self) -> list[str]:
        return ordered([group.label for group in self.compared])


def summarise(
    paths: Sequence[Path],
    *,
    baseline: str | None = None,
    margin: float = MARGIN,
    frames: float | None = None,
) -> Summary:
    """Read and compare the runs in the folders, all of each or the first `frames` of a seed. That
    nothing can be drawn is an error, and so is a named baseline without a run."""
    check_comparison(margin, frames)
    runs, warnings = read_runs(paths)
    if frames is not None:
        runs, more = _cut(runs, frames)
        warnings = [*warnings, *more]
    groups, compared, more = group_runs(runs)
    warnings = [*warnings, *more]
    if not groups:
        raise InputError(f"nothing to report on: {warnings[0] if warnings else 'name a folder'}")
    chosen, more = _baseline(groups, baseline)
    artefacts, left_out = collect(runs)
    warnings += [*more, *left_out]
    return Summary(
        tuple(runs),
        tuple(groups),
        tuple(compared),
        tuple(artefacts),
        tuple(warnings),
        chosen,
        margin,
    )


def check_comparison(margin: float, frames: float | None) -> None:
    """Refuse what no runs can be compared by."""
    if not 0 <= margin < math.inf:
        raise InputError(f"margin must be >= 0, got {margin:g}")
    if frames is not None and not 0 < frames < math.inf:
        raise InputError(f"frames must be > 0, got {frames:g}")


def _cut(runs: Sequence[Run], frames: float) -> tuple[list[Run], list[str]]:
    """The first frames of every run, and warnings about those that have no log line so early. That
    none has one is an error."""
    cut = [(run.path, run.cut(frames)) for run in runs]
    missing = f"no log line within the first {frames:.12g} frames"
    kept = [run for _, run in cut if run is not None]
    if runs and not kept:
        raise InputError(f"nothing to report on: {missing} of any run")
    return kept, [f"{path}: left out: {missing}" for path, run in cut if run is None]


def _known(values: np.ndarray) -> np.ndarray:
    return values[~np.isnan(values)]


def _known_baselines(groups: Sequence[Group]) -> list[str]:
    """Labels, and names of methods, in the order of labels."""
    known: dict[str, None] = {}
    for label in ordered([group.label for group in groups]):
        methods = [group.runs[0].method for group in groups if group.label == label]
        known |= dict.fromkeys([*methods, label])
    return list(known)


def _baseline(groups: Sequence[Group], named: str | None) -> tuple[str | None, list[str]]:
    """The label to compare with, and warnings about tasks that have no such group or too many."""
    method, *settings = (named or baseline()).split(",")
    method = method_label(method)
    asked = ",".join([method, *settings])
    labels = ordered([group.label for group in groups])
    variants = [label for label in labels if asked in (label, label.split(",")[0])]
    if not variants and named is not None:
        raise unknown_name("baseline", named, _known_baselines(groups))
    if not variants:
        methods = dict.fromkeys(label.split(",")[0] for label in labels)
        listed = ", ".join(f"'{one}'" for one in methods)
        return None, [f"no run of {asked}, so nothing is compared; --baseline can name {listed}"]
    chosen = asked if asked in variants else variants[0]
    warnings = []
    if chosen != asked and len(variants) > 1:
        warnings.append(
            f"several variants of the baseline '{asked}': compared with '{chosen}'; --baseline "
            "chooses another"
        )
    for task in sorted({group.task for group in groups}):
        labels = ordered([group.label for group in groups if group.task == task])
        others = [label for label in labels if label.split(",")[0] == method]
        if others and chosen not in others:
            listed = ", ".join(f"'{label}'" for label in others)
            warnings.append(
                f"{task}: nothing is compared with '{chosen}', which it does not have; --baseline "
                f"can name {listed}"
            )
    return chosen, warnings
