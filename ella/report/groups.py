"""Runs grouped by task and method, as curves over the same windows of frames."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ella.intervals import Interval, mean_rate
from ella.report import statistics
from ella.report.method_styles import drawn_columns, is_default_of_task, method_label
from ella.report.palette import ordered
from ella.report.runs import Run
from ella.report.series import CLOCKS, SUCCESS, Series
from ella.training.evaluation import Backend, Mode

POINTS = 200
"""Points of a curve, at most: log lines are averaged over windows of frames."""
FINAL_SHARE = 0.1
"""Part of the frames, at their end, over which the final success rate is taken."""
SHORT_SHARE = 0.5
"""A run that has less than this of the frames it was asked for, and of those another run of its
task has, is not compared, unless it reached its goal."""

SPEED_ALONE = ("ppo.unroll",)
"""Settings that decide how quickly a program runs, not what it computes."""


@dataclass(frozen=True)
class Group:
    """The seeds of one method on one task."""

    task: str
    label: str
    runs: tuple[Run, ...]
    frames: np.ndarray
    """float[T]: ends of the windows."""
    clocks: dict[str, np.ndarray]
    """Per clock float[T]: its mean over seeds at these frames. Without seconds where a run was
    trained as one program with others: they all end at the same second."""
    measures: dict[str, np.ndarray]
    """Per measurement float[seeds, T]; NaN before and after a seed's measurements."""
    seeds: tuple[int, ...]
    ends: tuple[float, ...]
    """Frames of each seed."""

    @property
    def success(self) -> np.ndarray:
        """float[seeds, T]"""
        return self.measures[SUCCESS]

    @property
    def log_lines(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Per seed frames and success of the lines that measured it, each float[lines]."""
        for run in self.runs:
            for series in run.series.values():
                rates = series.values.get(SUCCESS, np.full(len(series.frames), np.nan))
                known = ~np.isnan(rates)
                yield series.frames[known], rates[known]


def success_alone(group: Group, backend: Backend, mode: Mode) -> Interval | None:
    """Success of the final policies on fresh levels; None where a seed played none."""
    found: dict[int, tuple[int, int]] = {}
    for run in group.runs:
        if backend in run.evaluations:
            evaluation = run.evaluations[backend]
            for seed, rate in evaluation.success[mode].items():
                if seed in run.series:
                    found[seed] = (round(rate * evaluation.episodes), evaluation.episodes)
    if any(seed not in found for seed in group.seeds):
        return None
    successes, trials = np.array([found[seed] for seed in group.seeds]).T
    return mean_rate(successes, trials)


def final_success(group: Group, until: float) -> np.ndarray:
    """float[seeds]: mean success over the last tenth of the frames up to `until`; the measurement
    nearest to `until` where there is none in the last tenth. NaN where a seed measured nothing.

    Of log lines, so that what else a report draws changes nothing.
    """
    scores = []
    for frames, rates in group.log_lines:
        late = rates[(frames <= until) & (frames > (1 - FINAL_SHARE) * until)]
        if not late.size:
            late = rates[np.abs(frames - until).argsort()[:1]]
        scores.append(late.mean() if late.size else math.nan)
    return np.array(scores)


def area(group: Group, until: float) -> np.ndarray:
    """float[seeds]: area under the success curve up to `until`, as a share of the largest. NaN
    where a seed measured nothing. Of log lines, as `final_success`."""
    areas = [
        statistics.area_under_curve(frames, rates[None], until)[0]
        for frames, rates in group.log_lines
    ]
    return np.array(areas)


def group_runs(runs: Sequence[Run]) -> tuple[list[Group], list[Group], list[str]]:
    """Runs of one task and one label together, on the task's windows: as they are drawn, and as
    they are compared; and warnings."""
    drawn: list[Group] = []
    compared: list[Group] = []
    warnings: list[str] = []
    by_task: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_task[run.task].append(run)
    labels = _labels(runs)
    for task, of_task in sorted(by_task.items()):
        members: dict[str, list[Run]] = defaultdict(list)
        for run in of_task:
            members[labels[run.path]].append(run)
        width = _window(of_task)
        short = _cut_short(of_task)
        warnings.extend(short.values())
        compared_runs: list[Run] = []
        for label, same in members.items():
            group = _group(task, label, same, width)
            if np.isnan(group.success).all():
                warnings.append(f"{task}, {label}: nothing to draw, no success was measured")
                continue
            drawn.append(group)
            kept = [run for run in same if run.path not in short]
            if any(run.has_success for run in kept):
                is_whole = len(kept) == len(same)
                compared.append(group if is_whole else _group(task, label, kept, width))
                compared_runs += kept
        warnings.extend(_shortest_run(task, compared_runs, width))
    warnings.extend(_different_settings(drawn))
    return drawn, compared, warnings


def _cut_short(runs: Sequence[Run]) -> dict[Path, str]:
    """Warnings about runs that must not decide over how many frames their task is compared."""
    longest = max((run.end for run in runs if run.has_success), default=0.0)
    return {
        run.path: f"{run.path}: drawn as far as it goes but not compared: it stopped at "
        f"{run.end / 1e6:.3g} of {run.asked_frames / 1e6:.3g} million frames, while others of "
        f"{run.task} have {longest / 1e6:.3g}"
        for run in runs
        if run.asked_frames is not None
        and run.end < SHORT_SHARE * min(run.asked_frames, longest)
        and not run.reached_its_goal
    }


def _shortest_run(task: str, runs: Sequence[Run], width: float) -> Iterator[str]:
    """Which of the compared runs ends a window or more before the longest one."""
    if not runs:
        return
    shortest, longest = min(runs, key=lambda run: run.shared_end), max(run.end for run in runs)
    if longest - shortest.shared_end >= width:
        has_goal = shortest.reached_its_goal
        goal = f", which reached its goal (--until {shortest.config['until']})" if has_goal else ""
        yield (
            f"{task}: compared over the first {shortest.shared_end / 1e6:.3g} of "
            f"{longest / 1e6:.3g} million frames, all that {shortest.path} has{goal}"
        )


def _labels(runs: Sequence[Run]) -> dict[Path, str]:
    """A name for each run: its method's label, and where that is not enough the settings in which
    it differs from other runs of the method on the task. Where a task has the method with one
    setting only, the label is that of the same setting on another task, unless the setting is the
    task's default."""
    alike: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        alike[run.method, run.task].append(run)
    names = {key: _telling_apart([run.identity for run in same]) for key, same in alike.items()}
    labels = {run.path: _label(run, names[run.method, run.task]) for run in runs}
    taken = set(labels.values())
    for (method, task), same in alike.items():
        if names[method, task]:
            continue
        # A task's default is one choice on all tasks, although its value differs.
        elsewhere = [
            n
            for (other, _), n in names.items()
            if other == method
            and n
            and not all(is_default_of_task(name, same[0].identity.get(name), task) for name in n)
        ]
        found = next((label for n in elsewhere if (label := _label(same[0], n)) in taken), None)
        if found is not None:
            labels |= {run.path: found for run in same}
    return labels


def _label(run: Run, names: Sequence[str]) -> str:
    told = [f"{_short(name, names)}={run.identity.get(name)}" for name in names]
    return ", ".join([method_label(run.method), *told])


def _short(name: str, names: Sequence[str]) -> str:
    """The shortest end of a dotted name that no other of the names ends with."""
    parts = name.split(".")
    ends = (".".join(parts[start:]) for start in reversed(range(len(parts))))
    alone = (e for e in ends if sum(f".{other}".endswith(f".{e}") for other in names) == 1)
    return next(alone, name)


def _telling_apart(tables: Sequence[dict[str, Any]]) -> list[str]:
    """Names by whose values tables that are not equal can be told apart; of `SPEED_ALONE` only
    where nothing else does."""
    names = _differing(tables)
    telling = [name for name in names if name not in SPEED_ALONE]
    if _distinct(tables, telling) < _distinct(tables, names):
        return names
    return telling


def _distinct(tables: Sequence[dict[str, Any]], names: Sequence[str]) -> int:
    """How many of the tables differ in these names."""
    return len({repr([table.get(name) for name in names]) for table in tables})


def _differing(tables: Sequence[dict[str, Any]]) -> list[str]:
    """Names that do not have the same value in all the tables."""
    names = {name for table in tables for name in table}
    return sorted(name for name in names if len({repr(table.get(name)) for table in tables}) > 1)


def _different_settings(groups: Sequence[Group]) -> list[str]:
    """Labels that stand for different settings on different tasks, although taken together."""
    warnings = []
    for label in ordered([group.label for group in groups]):
        firsts = [group.runs[0] for group in groups if group.label == label]
        names = [
            name
            for name in _differing([run.identity for run in firsts])
            if not name.startswith("task.") and name not in SPEED_ALONE
        ]
        names = [
            name
            for name in names
            if not all(is_default_of_task(name, run.identity.get(name), run.task) for run in firsts)
        ]
        if names:
            warnings.append(f"{label} has other settings on other tasks: {', '.join(names)}")
    return warnings


def _window(runs: Sequence[Run]) -> float:
    """Frames averaged into a point: whole log lines, and at most `POINTS` points."""
    series = [series for run in runs for series in run.series.values()]
    interval = max(float(np.median(np.diff(s.frames, prepend=0.0))) for s in series)
    end = max(s.frames[-1] for s in series)
    return interval * math.ceil(end / interval / POINTS)


def _group(task: str, label: str, runs: Sequence[Run], width: float) -> Group:
    by_seed = [(seed, series) for run in runs for seed, series in run.series.items()]
    seeds, series = zip(*by_seed, strict=True)
    ends = tuple(float(s.frames[-1]) for s in series)
    frames = width * np.arange(1, max(1, math.ceil(round(max(ends) / width, 6))) + 1)
    drawn = [name for name in drawn_columns() if any(name in s.values for s in series)]
    names = [SUCCESS, *drawn]
    measures = {name: np.stack([_resampled(s, name, frames) for s in series]) for name in names}
    clocks = {}
    for name in CLOCKS:
        if name == "seconds" and any(run.shared_program for run in runs):
            continue
        values = np.stack([_resampled(s, name, frames, last=True) for s in series])
        if not np.isnan(values).all(axis=0).any():
            clocks[name] = np.nanmean(values, axis=0)
    # The last window may be cut short.
    frames[-1] = min(frames[-1], max(ends))
    return Group(task, label, tuple(runs), frames, clocks, measures, seeds, ends)


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
