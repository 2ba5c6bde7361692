"""What a set of runs says: curves per task and method, and the numbers that compare them."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ella.errors import InputError
from ella.intervals import Estimate
from ella.methods.registry import paper_bonus
from ella.report import statistics
from ella.report.artefacts import Artefacts, collect
from ella.report.palette import ordered
from ella.report.runs import BONUS, Run, Series, read_runs
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
SHORT_SHARE = 0.5
"""A run that has less than this of the frames it was asked for, and of those another run of its
task has, is not compared."""
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
    """How a group did within the frames all compared groups of its task have."""

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
    """As they are drawn: with all their seeds."""
    compared: tuple[Group, ...]
    """The same without the runs that stopped far too early, where anything is left."""
    artefacts: tuple[Artefacts, ...]
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
        """Drawn groups in the order of labels."""
        return self._in_order(self.groups, task)

    def _in_order(self, groups: Sequence[Group], task: str) -> list[Group]:
        found = [group for group in groups if group.task == task]
        return sorted(found, key=lambda group: self.labels.index(group.label))

    def budget(self, task: str) -> float:
        """Frames that every compared seed of the task has."""
        return min(min(group.ends) for group in self.compared if group.task == task)

    def scores(self, label: str, tasks: Sequence[str], kind: str) -> Scores:
        """Per task the `final` success or the `area` of each seed."""
        found = {group.task: group for group in self.compared if group.label == label}
        rate = final_success if kind == "final" else area
        return [rate(found[task], self.budget(task)) for task in tasks]

    def shared_tasks(self, labels: Sequence[str]) -> list[str]:
        """Tasks on which all of the labels are compared."""
        have = [{g.task for g in self.compared if g.label == label} for label in labels]
        return [task for task in self.tasks if all(task in tasks for tasks in have)]

    @cached_property
    def standings(self) -> list[Standing]:
        """One per compared group, by task."""
        return [
            self._standing(group)
            for task in self.tasks
            for group in self._in_order(self.compared, task)
        ]

    def _standing(self, group: Group) -> Standing:
        until = self.budget(group.task)
        reached = tuple(
            statistics.frames_to_reach(group.frames, group.success, threshold)
            for threshold in statistics.THRESHOLDS
        )
        against = next(
            (
                other
                for other in self.compared
                if (other.task, other.label) == (group.task, self.baseline) and other is not group
            ),
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
    def profile_tasks(self) -> list[str]:
        """Tasks on which all labels that are compared anywhere are."""
        return self.shared_tasks(self._compared_labels)

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


def summarise(paths: Sequence[Path], *, baseline: str = BASELINE) -> Summary:
    """Read and compare the runs in the folders. That nothing can be drawn is an error."""
    runs, remarks = read_runs(paths)
    groups, compared, more = _groups(runs)
    remarks = [*remarks, *more]
    if not groups:
        raise InputError(f"nothing to report on: {remarks[0] if remarks else 'name a folder'}")
    chosen, more = _baseline(groups, baseline)
    artefacts, left_out = collect(runs)
    remarks += [*more, *left_out]
    return Summary(
        tuple(runs), tuple(groups), tuple(compared), tuple(artefacts), tuple(remarks), chosen
    )


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


def _baseline(groups: Sequence[Group], asked: str) -> tuple[str | None, list[str]]:
    """The label to compare with, and remarks on tasks that have no such group or too many."""
    method = asked.split(",")[0]
    variants = ordered([g.label for g in groups if asked in (g.label, g.label.split(",")[0])])
    if not variants:
        return None, [f"no run of the baseline '{asked}', so nothing is compared with it"]
    chosen = asked if asked in variants else variants[0]
    remarks = []
    if chosen != asked and len(variants) > 1:
        remarks.append(
            f"several variants of the baseline '{asked}': compared with '{chosen}'; --baseline "
            "chooses another"
        )
    for task in sorted({group.task for group in groups}):
        labels = ordered([group.label for group in groups if group.task == task])
        others = [label for label in labels if label.split(",")[0] == method]
        if others and chosen not in others:
            listed = ", ".join(f"'{label}'" for label in others)
            remarks.append(
                f"{task}: nothing is compared with '{chosen}', which it does not have; --baseline "
                f"can name {listed}"
            )
    return chosen, remarks


def _groups(runs: Sequence[Run]) -> tuple[list[Group], list[Group], list[str]]:
    """Runs of one task and one label together, on the task's windows: as they are drawn, and as
    they are compared; and remarks."""
    drawn: list[Group] = []
    compared: list[Group] = []
    remarks: list[str] = []
    by_task: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_task[run.task].append(run)
    for task, of_task in sorted(by_task.items()):
        members: dict[str, list[Run]] = defaultdict(list)
        for run, label in zip(of_task, _labels(of_task), strict=True):
            members[label].append(run)
        width = _window(of_task)
        short = _cut_short(of_task)
        remarks.extend(short.values())
        compared_runs: list[Run] = []
        for label, same in members.items():
            group = _group(task, label, same, width)
            if np.isnan(group.success).all():
                remarks.append(f"{task}, {label}: nothing to draw, no success was measured")
                continue
            drawn.append(group)
            kept = [run for run in same if run.path not in short]
            if any(run.has_success for run in kept):
                is_whole = len(kept) == len(same)
                compared.append(group if is_whole else _group(task, label, kept, width))
                compared_runs += kept
        remarks.extend(_shortest_run(task, compared_runs, width))
    remarks.extend(_different_settings(drawn))
    return drawn, compared, remarks


def _cut_short(runs: Sequence[Run]) -> dict[Path, str]:
    """Remarks on the runs of a task that must not decide over how many frames it is compared."""
    longest = max((run.end for run in runs if run.has_success), default=0.0)
    return {
        run.path: f"{run.path}: drawn as far as it goes but not compared: it stopped at "
        f"{run.end / 1e6:.3g} of {run.asked_frames / 1e6:.3g} million frames, while others of "
        f"{run.task} have {longest / 1e6:.3g}"
        for run in runs
        if run.asked_frames is not None and run.end < SHORT_SHARE * min(run.asked_frames, longest)
    }


def _shortest_run(task: str, runs: Sequence[Run], width: float) -> Iterator[str]:
    """Which of the compared runs ends a window or more before the longest one."""
    if not runs:
        return
    shortest, longest = min(runs, key=lambda run: run.shared_end), max(run.end for run in runs)
    if longest - shortest.shared_end >= width:
        yield (
            f"{task}: compared over the first {shortest.shared_end / 1e6:.3g} of "
            f"{longest / 1e6:.3g} million frames, all that {shortest.path} has"
        )


def _labels(runs: Sequence[Run]) -> list[str]:
    """A name for each run of a task: its method, and where that is not enough the settings in
    which it differs from other runs of the method."""
    tables: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for run in runs:
        tables[run.method].append(run.identity)
    differing = {method: _differing(same) for method, same in tables.items()}
    labels = []
    for run in runs:
        names = differing[run.method]
        told = [f"{name.split('.')[-1]}={run.identity.get(name)}" for name in names]
        labels.append(", ".join([run.method, *told]))
    return labels


def _differing(tables: Sequence[dict[str, Any]]) -> list[str]:
    """Names that do not have the same value in all the tables."""
    names = {name for table in tables for name in table}
    return sorted(name for name in names if len({repr(table.get(name)) for table in tables}) > 1)


def _different_settings(groups: Sequence[Group]) -> list[str]:
    """Labels that stand for different settings on different tasks, although taken together."""
    remarks = []
    for label in ordered([group.label for group in groups]):
        firsts = [group.runs[0] for group in groups if group.label == label]
        names = [
            n for n in _differing([run.identity for run in firsts]) if not n.startswith("task.")
        ]
        # The paper's bonus is one choice, although it depends on the task.
        if all(run.identity.get(BONUS) == paper_bonus(run.task) for run in firsts):
            names = [name for name in names if name != BONUS]
        if names:
            remarks.append(f"{label} has other settings on other tasks: {', '.join(names)}")
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
