"""What a set of runs says: curves per task and method, and the numbers that compare them."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ella.errors import InputError
from ella.experiment.intervals import Estimate
from ella.report import statistics
from ella.report.palette import ordered
from ella.report.runs import Run, Series, read_runs
from ella.report.statistics import Ratio, Scores
from ella.world.tasks import all_tasks

SUCCESS = "success_rate"
MEASURES = (
    SUCCESS,
    "decomposition_size",
    "relevance_accuracy",
    "relevance_precision",
    "relevance_recall",
)
"""Measurements the report draws."""
CLOCKS = ("episodes", "seconds")
"""What curves can be drawn over besides frames."""
POINTS = 200
"""Points of a curve, at most: log lines are averaged over windows of frames."""
FINAL_SHARE = 0.1
"""Part of the frames, at their end, over which the final success rate is taken."""
PROFILE_THRESHOLDS = np.linspace(0, 1, 101)
BASELINE = "ppo"


@dataclass(frozen=True)
class Group:
    """The seeds of one method on one task."""

    task: str
    label: str
    runs: tuple[Run, ...]
    frames: np.ndarray
    """float[T]: ends of the windows."""
    clocks: dict[str, np.ndarray]
    """Per clock float[T]: its mean over seeds at these frames."""
    measures: dict[str, np.ndarray]
    """Per measurement float[seeds, T]; NaN before and after a seed's measurements."""
    ends: tuple[float, ...]
    """Frames of each seed."""

    @property
    def success(self) -> np.ndarray:
        """float[seeds, T]"""
        return self.measures[SUCCESS]


@dataclass(frozen=True)
class Standing:
    """How a group did within the frames all groups of its task have."""

    group: Group
    final: Estimate
    area: Estimate
    reached: tuple[np.ndarray, ...]
    """Per threshold float[seeds]: frames until it; infinite if never."""
    ratios: tuple[Ratio | None, ...]
    """Per threshold: the baseline's frames to this group's."""


@dataclass(frozen=True)
class Comparison:
    """A method against the baseline, over the tasks both have."""

    label: str
    tasks: tuple[str, ...]
    better_area: Estimate
    better_final: Estimate


@dataclass(frozen=True)
class Summary:
    """All a report shows."""

    runs: tuple[Run, ...]
    groups: tuple[Group, ...]
    remarks: tuple[str, ...]
    baseline: str | None
    """The label others are compared with."""

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
        """Groups in the order of labels."""
        found = [group for group in self.groups if group.task == task]
        return sorted(found, key=lambda group: self.labels.index(group.label))

    def budget(self, task: str) -> float:
        """Frames that every seed of the task has."""
        return min(min(group.ends) for group in self.of_task(task))

    def scores(self, label: str, tasks: Sequence[str], kind: str) -> Scores:
        """Per task the `final` success or the `area` of each seed."""
        found = {group.task: group for group in self.groups if group.label == label}
        rate = final_success if kind == "final" else area
        return [rate(found[task], self.budget(task)) for task in tasks]

    def shared_tasks(self, labels: Sequence[str]) -> list[str]:
        """Tasks on which all of the labels were measured."""
        have = [{g.task for g in self.groups if g.label == label} for label in labels]
        return [task for task in self.tasks if all(task in tasks for tasks in have)]

    @cached_property
    def standings(self) -> list[Standing]:
        """One per group, by task."""
        return [self._standing(group) for task in self.tasks for group in self.of_task(task)]

    def _standing(self, group: Group) -> Standing:
        until = self.budget(group.task)
        reached = tuple(
            statistics.frames_to_reach(group.frames, group.success, threshold)
            for threshold in statistics.THRESHOLDS
        )
        against = next(
            (g for g in self.of_task(group.task) if g.label == self.baseline and g is not group),
            None,
        )
        ratios: list[Ratio | None] = []
        for threshold, mine in zip(statistics.THRESHOLDS, reached, strict=True):
            if against is None:
                ratios.append(None)
                continue
            theirs = statistics.frames_to_reach(against.frames, against.success, threshold)
            budgets = (min(against.ends), min(group.ends))
            ratios.append(statistics.frames_ratio(theirs, mine, budgets))
        return Standing(
            group,
            statistics.aggregate_interval([final_success(group, until)], statistics.mean),
            statistics.aggregate_interval([area(group, until)], statistics.mean),
            reached,
            tuple(ratios),
        )

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """Every label that shares a task with the baseline."""
        found = []
        for label in self.labels:
            tasks = self.shared_tasks([label, self.baseline]) if self.baseline else []
            if label == self.baseline or not tasks:
                continue
            area_chance, final_chance = (
                statistics.probability_of_improvement(
                    self.scores(label, tasks, kind), self.scores(str(self.baseline), tasks, kind)
                )
                for kind in ("area", "final")
            )
            found.append(Comparison(label, tuple(tasks), area_chance, final_chance))
        return found

    @cached_property
    def profiles(self) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Per label the share of its runs whose final success exceeds `PROFILE_THRESHOLDS`, over
        the tasks that all labels share; empty if there are none."""
        tasks = self.shared_tasks(self.labels)
        if not tasks:
            return {}
        return {
            label: statistics.performance_profile(
                self.scores(label, tasks, "final"), PROFILE_THRESHOLDS
            )
            for label in self.labels
        }


def summarise(paths: Sequence[Path], *, baseline: str = BASELINE) -> Summary:
    """Read and compare the runs in the folders. That nothing can be drawn is an error."""
    runs, remarks = read_runs(paths)
    groups, more = _groups(runs)
    remarks = [*remarks, *more]
    if not groups:
        raise InputError(f"nothing to report on: {remarks[0] if remarks else 'name a folder'}")
    labels = ordered([group.label for group in groups])
    alike = [x for x in labels if x == baseline] or [
        x for x in labels if x.split(",")[0] == baseline
    ]
    if not alike:
        remarks.append(f"no run of the baseline '{baseline}', so nothing is compared with it")
    return Summary(tuple(runs), tuple(groups), tuple(remarks), alike[0] if alike else None)


def final_success(group: Group, until: float) -> np.ndarray:
    """Mean success over the last tenth of the frames up to `until`, per seed that measured it; the
    measurement nearest to `until` where there is none in the last tenth."""
    scores = []
    for curve in group.success:
        known = ~np.isnan(curve)
        if not known.any():
            continue
        late = known & (group.frames <= until) & (group.frames > (1 - FINAL_SHARE) * until)
        nearest = np.abs(group.frames[known] - until).argmin()
        scores.append(curve[late].mean() if late.any() else curve[known][nearest])
    return np.array(scores)


def area(group: Group, until: float) -> np.ndarray:
    """Area under the success curve up to `until`, as a share of the largest, per seed that measured
    it."""
    areas = statistics.area_under_curve(group.frames, group.success, until)
    return areas[~np.isnan(areas)]


def _groups(runs: Sequence[Run]) -> tuple[list[Group], list[str]]:
    """Runs of one task and one label together, on the task's windows; and remarks."""
    remarks = []
    by_task: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_task[run.task].append(run)
    groups = []
    for task in sorted(by_task):
        members: dict[str, list[Run]] = defaultdict(list)
        for run, label in zip(by_task[task], _labels(by_task[task]), strict=True):
            members[label].append(run)
        width = _window(by_task[task])
        for label, same in members.items():
            group = _group(task, label, same, width)
            if np.isnan(group.success).all():
                remarks.append(f"{task}, {label}: nothing to draw, no success was measured")
            else:
                groups.append(group)
    remarks.extend(_different_settings(groups))
    return groups, remarks


def _labels(runs: Sequence[Run]) -> list[str]:
    """A name for each run of a task: its method, and where that is not enough the settings in
    which it differs from other runs of the method."""
    labels = []
    for run in runs:
        others = [other.identity for other in runs if other.method == run.method]
        names = {name for other in others for name in other}
        differing = sorted(
            name for name in names if len({repr(other.get(name)) for other in others}) > 1
        )
        told = [f"{name.split('.')[-1]}={run.identity.get(name)}" for name in differing]
        labels.append(", ".join([run.method, *told]))
    return labels


def _different_settings(groups: Sequence[Group]) -> list[str]:
    """Labels that stand for different settings on different tasks, although taken together."""
    remarks = []
    for label in ordered([group.label for group in groups]):
        tables = [g.runs[0].identity for g in groups if g.label == label]
        names = {n for table in tables for n in table if not n.startswith("task.")}
        differing = sorted(n for n in names if len({repr(t.get(n)) for t in tables}) > 1)
        if differing:
            remarks.append(f"{label} has other settings on other tasks: {', '.join(differing)}")
    return remarks


def _window(runs: Sequence[Run]) -> float:
    """Frames averaged into a point: whole log lines, and at most `POINTS` points."""
    series = [series for run in runs for series in run.series.values()]
    interval = max(float(np.median(np.diff(s.frames, prepend=0.0))) for s in series)
    end = max(s.frames[-1] for s in series)
    return interval * math.ceil(end / interval / POINTS)


def _group(task: str, label: str, runs: Sequence[Run], width: float) -> Group:
    series = [series for run in runs for series in run.series.values()]
    ends = tuple(float(s.frames[-1]) for s in series)
    frames = width * np.arange(1, max(1, math.ceil(round(max(ends) / width, 6))) + 1)
    names = [m for m in MEASURES if m == SUCCESS or any(m in s.values for s in series)]
    measures = {name: np.stack([_resampled(s, name, frames) for s in series]) for name in names}
    clocks = {}
    for name in CLOCKS:
        values = np.stack([_resampled(s, name, frames, last=True) for s in series])
        if not np.isnan(values).all(axis=0).any():
            clocks[name] = np.nanmean(values, axis=0)
    # The last window may be cut short.
    frames[-1] = min(frames[-1], max(ends))
    return Group(task, label, tuple(runs), frames, clocks, measures, ends)


def _resampled(series: Series, name: str, edges: np.ndarray, *, last: bool = False) -> np.ndarray:
    """A column as its mean (or its last value) in the window before each edge, float[T]. Windows
    without a measurement are interpolated, those after the end are NaN."""
    values = series.values.get(name, np.full(len(series.frames), np.nan))
    known = ~np.isnan(values)
    width = edges[0]
    place = np.ceil(np.round(series.frames[known] / width, 6)).astype(int).clip(1) - 1
    found = np.full(len(edges), np.nan)
    if not known.any():
        return found
    if last:
        found[place] = values[known]
    else:
        totals = np.bincount(place, values[known], len(edges))
        counts = np.bincount(place, minlength=len(edges))
        np.divide(totals, counts, out=found, where=counts > 0)
    filled = np.flatnonzero(~np.isnan(found))
    inner = np.arange(filled[0], filled[-1] + 1)
    found[inner] = np.interp(inner, filled, found[filled])
    return found
