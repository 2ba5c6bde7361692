"""Reads run directories as they are: what is damaged or missing becomes a warning, the rest is
used."""

import json
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ella.errors import InputError
from ella.report.figure_files import is_figure
from ella.report.series import MAX_NUMBER, SUCCESS, Series, read_series
from ella.runs.config_file import CONFIG_FILE, check_format, split_table
from ella.runs.directory import PROVENANCE_FILE
from ella.runs.metrics import FILE_NAME
from ella.runs.run_evaluation import FILES, RunEvaluation, read_evaluation
from ella.settings_table import flat, read_table, to_json
from ella.training.evaluation import BACKENDS, Backend
from ella.training.goal import LINES
from ella.training.settings import from_table, to_table

RUN_FILES = (CONFIG_FILE, PROVENANCE_FILE, FILE_NAME)
MAX_DEPTH = 4
"""Folders below a named one in which runs are looked for."""
MAX_SEEDS = 100_000
"""More seeds than that in a configuration are damage."""
MAX_LISTED = 12
"""Seeds a warning lists."""
_NOT_THE_METHOD = ("format_version", "seed", "seeds", "frames", "until", "devices", "log")
"""Settings in which runs of one method may differ."""


@dataclass(frozen=True)
class Run:
    """A folder that could be read."""

    path: Path
    config: dict[str, Any]
    provenance: dict[str, Any]
    """What run.json tells: command, versions, device."""
    series: dict[int, Series]
    """By seed."""
    evaluations: Mapping[Backend, RunEvaluation] = field(default_factory=dict)
    """By world: how its final policies do alone on fresh levels."""

    @property
    def task(self) -> str:
        return str(self.config["task"]["name"])

    @property
    def method(self) -> str:
        return str(self.identity["method"])

    @property
    def command(self) -> str:
        """The command line, quoted for a shell; empty if it is not known."""
        words = self.provenance.get("command")
        if not isinstance(words, list) or not words:
            return ""
        return shlex.join(["ella", *map(str, words[1:])])

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Settings that make it the method it is, by dotted name: runs that agree in them are
        seeds of one experiment. What the configuration does not tell has its default; options of
        methods that take no part are left out."""
        return {
            name: value
            for name, value in flat(_resolved(self.config)).items()
            if name.split(".")[0] not in _NOT_THE_METHOD
        }

    @property
    def end(self) -> float:
        """Frames of the seed that has most."""
        return max(float(series.frames[-1]) for series in self.series.values())

    @property
    def shared_end(self) -> float:
        """Frames that all its seeds have."""
        return min(float(series.frames[-1]) for series in self.series.values())

    @property
    def asked_frames(self) -> float | None:
        """Frames of each seed that the configuration asks for, where it tells."""
        frames = self.config.get("frames")
        if isinstance(frames, int | float) and 0 < frames < MAX_NUMBER:
            return float(frames)
        return None

    @property
    def reached_its_goal(self) -> bool:
        """Whether success was at last what the configuration lets training end at."""
        until = self.config.get("until")
        if not isinstance(until, int | float):
            return False
        last = [_success(series)[-LINES:] for series in self.series.values()]
        return all(len(rates) == LINES and (rates >= until).all() for rates in last)

    @property
    def shared_program(self) -> bool:
        """Whether it was trained as one program with other runs, at any time."""
        return any(part.get("trained_together_with") for part in _parts(self.provenance))

    @property
    def has_success(self) -> bool:
        """Whether any seed measured the success of an episode."""
        return any(not np.isnan(_success(series)).all() for series in self.series.values())

    def cut(self, frames: float) -> "Run | None":
        """As if so many frames of each seed had been asked for; none without a log line so far.
        What its final policies do is left out where they were trained for longer."""
        series = {
            seed: found
            for seed, one in self.series.items()
            if len((found := one.cut(frames)).frames) > 0
        }
        if not series:
            return None
        asked = int(min(frames, self.asked_frames or frames))
        evaluations = self.evaluations if self.end <= frames else {}
        config = {**self.config, "frames": asked}
        return replace(self, config=config, series=series, evaluations=evaluations)

    def files(self, endings: Sequence[str]) -> list[Path]:
        """Files in the folder and its direct subfolders, by name, without the figures of a report
        that was written there."""
        found = [path for pattern in ("*", "*/*") for path in self.path.glob(pattern)]
        chosen = [path for path in found if path.suffix in endings and not is_figure(path)]
        return sorted(path for path in chosen if path.is_file())


def _resolved(config: dict[str, Any]) -> dict[str, Any]:
    """The settings of a configuration with every default filled in; those of a method that is not
    installed here as they are."""
    try:
        task, table = split_table(config, where=CONFIG_FILE)
        settings = from_table(table, where=CONFIG_FILE)
    except InputError:
        return config
    if task is None:
        return to_table(settings)
    with suppress(InputError):
        settings = settings.resolved(task)
    return {**to_table(settings), "task": to_json(task)}


def read_runs(paths: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """All runs in the folders, and one line about each thing that is wrong or missing."""
    runs: list[Run] = []
    warnings: list[str] = []
    seen: set[Path] = set()
    for path in paths:
        if not path.is_dir():
            warnings.append(f"{path}: {'not a folder' if path.exists() else 'does not exist'}")
            continue
        known = len(warnings)
        folders = list(_run_folders(path, MAX_DEPTH, warnings))
        if not folders and len(warnings) == known:
            warnings.append(f"{path}: holds no run")
        for folder in folders:
            if folder.resolve() in seen:
                continue
            seen.add(folder.resolve())
            try:
                runs.append(_read_run(folder, warnings))
            except InputError as error:
                warnings.append(f"{folder}: left out: {error}")
    runs = _without_repeated_seeds(runs, warnings)
    warnings.extend(_mixtures(runs))
    warnings.extend(_other_levels(runs))
    return runs, warnings


def _run_folders(path: Path, depth: int, warnings: list[str]) -> Iterator[Path]:
    """Folders with a run's files, and empty ones; nothing is looked for inside a run."""
    try:
        children = sorted(path.iterdir())
    except OSError as error:
        warnings.append(f"{path}: cannot be read ({error.strerror})")
        return
    if not children or any((path / name).exists() for name in RUN_FILES):
        yield path
    elif depth > 0:
        for child in children:
            if child.is_dir() and not child.is_symlink():
                yield from _run_folders(child, depth - 1, warnings)


def _read_run(folder: Path, warnings: list[str]) -> Run:
    if not any(folder.iterdir()):
        raise InputError("the folder is empty")
    config = read_table(folder / CONFIG_FILE)
    check_format(config, where=CONFIG_FILE)
    task = config.get("task")
    if not isinstance(task, dict) or not isinstance(task.get("name"), str):
        raise InputError(f"{CONFIG_FILE} names no task")
    if not isinstance(config.get("method"), str):
        raise InputError(f"{CONFIG_FILE} names no method")
    try:
        provenance = read_table(folder / PROVENANCE_FILE)
    except InputError as error:
        warnings.append(f"{folder}: {error}, so its command and versions are unknown")
        provenance = {}
    series, damaged = read_series(folder)
    if damaged:
        warnings.append(f"{folder}: {damaged} damaged line(s) of {FILE_NAME} left out")
    run = Run(folder, config, provenance, series)
    warnings.extend(f"{folder}: {text}" for text in _gaps(run))
    return replace(run, evaluations=_evaluations(run, warnings))


def _evaluations(run: Run, warnings: list[str]) -> dict[Backend, RunEvaluation]:
    """What its folder keeps of its final policies."""
    found: dict[Backend, RunEvaluation] = {}
    for backend in BACKENDS:
        try:
            one = read_evaluation(run.path, backend)
        except InputError as error:
            warnings.append(f"{run.path}: {error}")
            continue
        if one is not None and one.frames < run.end:
            warnings.append(
                f"{run.path}: {FILES[backend]} is of {one.frames / 1e6:.3g} million frames and "
                f"left out: trained are {run.end / 1e6:.3g} million"
            )
        elif one is not None:
            found[backend] = one
    return found


def _gaps(run: Run) -> Iterator[str]:
    """What of a run is not there."""
    first, count = run.config.get("seed", 0), run.config.get("seeds", len(run.series))
    if isinstance(first, int) and isinstance(count, int) and count <= MAX_SEEDS:
        missing = [seed for seed in range(first, first + count) if seed not in run.series]
        if missing:
            yield f"no measurements of seed(s) {_listed(missing)} of {count}"
    ends = {seed: series.frames[-1] for seed, series in run.series.items()}
    if short := [seed for seed, end in ends.items() if end < run.end]:
        yield f"seed(s) {_listed(short)} end before the others"
    if run.asked_frames is not None and run.end < run.asked_frames and not run.reached_its_goal:
        yield f"not finished: {run.end / 1e6:.3g} of {run.asked_frames / 1e6:.3g} million frames"
    if not run.has_success:
        yield "no episode's success was measured"


def _success(series: Series) -> np.ndarray:
    return series.values.get(SUCCESS, np.array([np.nan]))


def _without_repeated_seeds(runs: list[Run], warnings: list[str]) -> list[Run]:
    """Drop what two folders both hold, so that no seed counts twice: the copy with most frames
    stays, the first of equal ones."""
    keys = [json.dumps(run.identity, sort_keys=True, default=str) for run in runs]
    owners: dict[tuple[str, int], Run] = {}
    for key, run in zip(keys, runs, strict=True):
        for seed, series in run.series.items():
            owner = owners.setdefault((key, seed), run)
            if series.frames[-1] > owner.series[seed].frames[-1]:
                owners[key, seed] = run
    kept: list[Run] = []
    for key, run in zip(keys, runs, strict=True):
        own: dict[int, Series] = {}
        repeated: dict[Path, list[int]] = defaultdict(list)
        for seed, series in run.series.items():
            owner = owners[key, seed]
            if owner is run:
                own[seed] = series
            else:
                repeated[owner.path].append(seed)
        for path, seeds in repeated.items():
            warnings.append(f"{run.path}: seed(s) {_listed(seeds)} are in {path} too; left out")
        if own:
            kept.append(replace(run, series=own) if repeated else run)
    return kept


def _other_levels(runs: Sequence[Run]) -> Iterator[str]:
    """Final policies of one task that did not play the same levels."""
    for task in sorted({run.task for run in runs}):
        for backend in BACKENDS:
            played = [run.evaluations.get(backend) for run in runs if run.task == task]
            levels = {(one.episodes, one.seed) for one in played if one is not None}
            if len(levels) > 1:
                listed = ", ".join(f"{count} of seed {seed}" for count, seed in sorted(levels))
                yield (
                    f"{task}: policies played different levels alone ({listed}); ella eval RUN "
                    "--save --episodes N --seed S plays the same with each"
                )


def _mixtures(runs: Sequence[Run]) -> Iterator[str]:
    """Versions and devices in which the runs differ although results are compared."""
    tables: dict[str, Counter[str]] = defaultdict(Counter)
    for run in runs:
        found: dict[str, set[str]] = defaultdict(set)
        for part in _parts(run.provenance):
            versions = part.get("versions")
            for name in ("ella", "jax"):
                if isinstance(versions, dict) and name in versions:
                    found[f"versions of {name}"].add(str(versions[name]))
            if "device" in part:
                found["devices (seconds cannot be compared)"].add(str(part["device"]))
        for what, values in found.items():
            tables[what].update(values)
    for what, counts in tables.items():
        if len(counts) > 1:
            listed = ", ".join(f"{value} ({count} runs)" for value, count in counts.most_common())
            yield f"the runs mix {what}: {listed}".replace("(1 runs)", "(1 run)")


def _parts(provenance: dict[str, Any]) -> list[dict[str, Any]]:
    """Of a run's start, and of every time it was resumed."""
    resumed = provenance.get("resumed")
    later = resumed if isinstance(resumed, list) else []
    return [provenance, *(part for part in later if isinstance(part, dict))]


def _listed(seeds: Sequence[int]) -> str:
    more = ", ..." if len(seeds) > MAX_LISTED else ""
    return ", ".join(map(str, seeds[:MAX_LISTED])) + more
