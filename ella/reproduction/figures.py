"""The paper's figures as data: which runs each one is made of, and at which scale."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ella.errors import InputError, unknown_name
from ella.methods.ella import ELLA
from ella.methods.ella_solvent import PUBLISHED, ELLASolvent
from ella.runs.planned_run import PlannedRun
from ella.settings_table import merged, to_json
from ella.shaping.settings import (
    PRINTED_TRAINING,
    RELEASED_NETWORK,
    RELEASED_TRAINING,
    RelevanceTrainingSettings,
)
from ella.training import presets
from ella.training.settings import TrainingSettings, from_table
from ella.world import tasks

HIGH_LEVEL = (
    "putnext-room",
    "putnext-maze",
    "unlock-maze",
    "openpick-maze",
    "combo-maze",
    "sequence-maze",
)
"""The paper's high-level tasks, in its order."""

Changes = Mapping[str, Any]
"""A table of settings, nested as in a configuration file."""


@dataclass(frozen=True)
class Row:
    """One run of a figure: a method on a task, and what it changes in the scale's settings."""

    task: str
    method: str
    variant: str = ""
    """Tells apart rows of the same task and method; part of the run's name."""
    changes: Changes = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Of the run, and of its directory."""
        return "-".join(part for part in (self.task, self.method, self.variant) if part)


@dataclass(frozen=True)
class Figure:
    """A figure of the paper."""

    title: str
    rows: tuple[Row, ...]

    @property
    def baseline(self) -> str | None:
        """The method its report compares the others with: ELLA where nothing is unshaped; None for
        the report's own choice."""
        return None if any(row.method == "ppo" for row in self.rows) else "ella"


def _crossed(task_names: Iterable[str], methods: Sequence[str]) -> tuple[Row, ...]:
    return tuple(Row(task, method) for task in task_names for method in methods)


def _bonus(task: str, bonus: float) -> Row:
    return Row(task, "ella", f"lambda{bonus:g}", {"ella": {"bonus": bonus}})


def _budget(task: str, method: str, episodes: int) -> Row:
    changes = {method: {"termination": {"episodes": episodes}}}
    return Row(task, method, f"episodes{episodes}", changes)


def _classifier(task: str, seed: int) -> Row:
    return Row(task, "ella", f"classifier{seed}", {"ella": {"termination": {"seed": seed}}})


def _own_classifier(task: str, seed: int) -> Row:
    """One seed of several, each with its own termination classifier."""
    changes = {"seeds": 1, "seed": seed, "ella": {"own_classifier": True}}
    return Row(task, "ella", f"own-classifier{seed}", changes)


def _raw_cells(task: str, method: str) -> Row:
    return Row(task, method, "raw-cells", {"ppo": {"network": {"variant": "paper"}}})


def _trainer(task: str, variant: str, training: RelevanceTrainingSettings) -> Row:
    relevance = {"network": to_json(RELEASED_NETWORK), "training": to_json(training)}
    return Row(task, "ella", variant, {"ella": {"relevance": relevance}})


PARTS = (*PUBLISHED, "bonus")
"""Of the solvent method; the last is its larger lambda."""


def _with_parts(task: str, variant: str, parts: Collection[str], *changes: Changes) -> Row:
    """The solvent method with some of its parts, the others as published, and further changes."""
    published = (table for part, table in PUBLISHED.items() if part not in parts)
    # Named, since what it would be otherwise depends on other parts.
    bonus = (ELLASolvent() if "bonus" in parts else ELLA()).resolved(tasks.find(task)).bonus
    table = merged({"bonus": bonus}, *published, *changes)
    return Row(task, ELLASolvent.name, variant, {ELLASolvent.name: table})


def _ablation(task: str) -> tuple[Row, ...]:
    return (
        Row(task, "ella"),
        *(_with_parts(task, f"only-{part}", {part}) for part in PARTS),
        *(_with_parts(task, f"without-{part}", set(PARTS) - {part}) for part in PARTS),
        Row(task, ELLASolvent.name),
    )


def _ablation_of_budget(task: str, episodes: int) -> tuple[Row, ...]:
    """All but each part with few expert episodes, for which some of them are made."""
    budget = {"termination": {"episodes": episodes}}
    return (
        _budget(task, "ella", episodes),
        *(
            _with_parts(task, f"episodes{episodes}-without-{part}", set(PARTS) - {part}, budget)
            for part in PARTS
        ),
        _budget(task, ELLASolvent.name, episodes),
    )


RIDE_COEFFICIENTS = (0.1, 0.5, 1.0)
"""The paper's. The first is the default."""
RIDE_THAT_LEARNS = {
    "forward_coefficient": 0.1,
    "inverse_coefficient": 10.0,
    "input_scale": 10.0,
    "episodic_counts": True,
}
"""Weights with which the embedding does not shrink, inputs of unit size, and the original's
episodic counts."""
TUNED_RIDE_COEFFICIENTS = (0.001, 0.003, 0.01)
"""For bonuses of about 3 to 6 times the coefficient a step: with the paper's, those of an episode
exceed the reward of a success, and no agent succeeds. The first was the best over both tasks of the
figure (results/ride)."""


def _ride(task: str, coefficient: float, method: str = "ride") -> Row:
    return Row(task, method, f"coefficient{coefficient:g}", {"ride": {"coefficient": coefficient}})


def _tuned_ride(task: str, coefficient: float) -> Row:
    changes = {"coefficient": coefficient, **RIDE_THAT_LEARNS}
    return Row(task, "ride", f"tuned-coefficient{coefficient:g}", {"ride": changes})


ABLATED_ON = ("unlock-maze", "openpick-maze", "combo-maze")

FIGURES: Mapping[str, Figure] = MappingProxyType(
    {
        "main": Figure(
            "Learning curves of PPO, LEARN and ELLA, and of ELLA's solvent variant",
            _crossed(HIGH_LEVEL, ("ppo", "learn", "ella", "ella-solvent")),
        ),
        "lambda": Figure(
            "The size of the bonus: three tiers of assumptions, and egregious violations",
            (
                Row("putnext-room", "ppo"),
                *(_bonus("putnext-room", bonus) for bonus in (0.015, 0.05)),
                Row("putnext-room", "ella"),
                *(_bonus("putnext-room", bonus) for bonus in (1.0, 5.0)),
            ),
        ),
        "relevance": Figure(
            "Decomposition size and accuracy of the relevance classifier",
            _crossed(("putnext-maze", "sequence-maze"), ("ella",)),
        ),
        "termination-budget": Figure(
            "Expert episodes for the termination classifier",
            (
                Row("openpick-maze", "ppo"),
                Row("openpick-maze", "ella"),
                *(_budget("openpick-maze", "ella", episodes) for episodes in (2000, 500, 100)),
                *(_budget("openpick-maze", ELLASolvent.name, episodes) for episodes in (500, 100)),
            ),
        ),
        "oracle": Figure(
            "An oracle in place of the relevance classifier",
            _crossed(
                ("putnext-room", "unlock-maze", "openpick-maze", "sequence-maze"),
                ("ppo", "ella", "ella-oracle"),
            ),
        ),
        "ride": Figure(
            "Rewards for changing the world, and both together",
            (
                *_crossed(("sequence-maze", "unlock-maze"), ("ppo", "ella", "ride")),
                *(
                    _ride(task, coefficient)
                    for task in ("sequence-maze", "unlock-maze")
                    for coefficient in RIDE_COEFFICIENTS[1:]
                ),
                *(
                    _tuned_ride(task, coefficient)
                    for task in ("sequence-maze", "unlock-maze")
                    for coefficient in TUNED_RIDE_COEFFICIENTS
                ),
                Row("sequence-maze", "ella+ride"),
                _ride("sequence-maze", RIDE_COEFFICIENTS[1], "ella+ride"),
                _bonus("unlock-maze", 0.1),
                Row(
                    "unlock-maze",
                    "ella+ride",
                    changes={"ella": {"bonus": 0.1}, "ride": {"coefficient": 0.05}},
                ),
            ),
        ),
        "baselines": Figure(
            "Every method on one task, and other bonuses for novelty on a second",
            (
                *_crossed(
                    ("putnext-room",),
                    ("ppo", "learn", "ella", "ride", "ella+ride", "rnd", "noveld"),
                ),
                _tuned_ride("putnext-room", TUNED_RIDE_COEFFICIENTS[0]),
                *_crossed(("unlock-maze",), ("ppo", "ella", "rnd", "noveld")),
            ),
        ),
        "classifiers": Figure(
            "Termination classifiers of other random seeds",
            (
                *_crossed(("unlock-maze", "openpick-maze", "putnext-room"), ("ella",)),
                *(
                    _classifier(task, seed)
                    for task in ("unlock-maze", "openpick-maze")
                    for seed in (1, 2, 3)
                ),
                *(_own_classifier("putnext-room", seed) for seed in range(8)),
            ),
        ),
        "cells": Figure(
            "The paper's own cells, raw integers, beside one-hot ones",
            tuple(
                row
                for task in HIGH_LEVEL
                for method in ("ppo", "ella")
                for row in (Row(task, method), _raw_cells(task, method))
            ),
        ),
        "trainers": Figure(
            "ELLA's relevance classifier trained as here, as released, and as the paper prints",
            tuple(
                row
                for task in ("putnext-room", "unlock-maze", "openpick-maze")
                for row in (
                    Row(task, "ella"),
                    _trainer(task, "released-trainer", RELEASED_TRAINING),
                    _trainer(task, "printed-trainer", PRINTED_TRAINING),
                )
            ),
        ),
        "ablation": Figure(
            "The parts of ELLA's solvent variant: each alone, all but each, all",
            tuple(row for task in ABLATED_ON for row in _ablation(task)),
        ),
        "ablation-budget": Figure(
            "The parts of ELLA's solvent variant with 500 expert episodes",
            _ablation_of_budget("openpick-maze", 500),
        ),
    }
)
"""By name. The text of the paper does not say which four tasks its oracle figure shows, apart from
`sequence-maze`, nor the values of its egregious bonuses. `baselines`, `classifiers`, `cells`,
`trainers`, `ablation` and `ablation-budget` are no figures of the paper."""

ALL = "all"
NOT_IN_ALL = ("ablation", "ablation-budget")
"""Figures that have to be named: they say nothing of the paper's method."""


@dataclass(frozen=True)
class Budget:
    """How long, how often and with which settings a task is trained."""

    frames: int
    seeds: int = 3
    preset: str = "paper"
    """Where settings start from."""


@dataclass(frozen=True)
class Scale:
    """How large the runs of a figure are."""

    description: str
    budgets: Mapping[str, Budget]
    """By task."""
    changes: Changes = field(default_factory=dict)
    """To every run's settings, before its row's own."""
    evaluated_levels: int = 1000
    """Fresh levels that each final policy plays, greedily and with sampled actions."""


SCALES: Mapping[str, Scale] = MappingProxyType(
    {
        "smoke": Scale(
            "tiny networks, seconds a run: to see that everything works",
            {task: Budget(6400, seeds=2, preset="smoke") for task in HIGH_LEVEL},
            {"ppo": {"epochs": 1}, "log": {"every": 3_200, "checkpoint_every": 3_200}},
            evaluated_levels=16,
        ),
        "short": Scale(
            "as many frames as show the difference, in bfloat16",
            {
                task: Budget(frames, seeds=8, preset="onehot")
                for task, frames in {
                    "putnext-room": 30_000_000,
                    "putnext-maze": 90_000_000,
                    "unlock-maze": 10_000_000,
                    "openpick-maze": 15_000_000,
                    "combo-maze": 15_000_000,
                    "sequence-maze": 15_000_000,
                }.items()
            },
            {
                "ppo": {"network": {"compute_dtype": "bfloat16"}},
                "log": {"every": 128_000, "checkpoint_every": 2_560_000},
            },
        ),
        "paper": Scale(
            "the paper's network and precision, until the curves are flat or nearly so",
            {
                "putnext-room": Budget(100_000_000),
                "putnext-maze": Budget(150_000_000),
                "unlock-maze": Budget(25_000_000),
                "openpick-maze": Budget(100_000_000),
                "combo-maze": Budget(150_000_000),
                "sequence-maze": Budget(150_000_000),
            },
            {"log": {"every": 128_000, "checkpoint_every": 2_560_000}},
        ),
    }
)
"""By name. The paper's axes are in its pictures only, so the frames are ours."""


def figure_names(figure: str) -> tuple[str, ...]:
    """The figures a name stands for."""
    if figure == ALL:
        return tuple(name for name in FIGURES if name not in NOT_IN_ALL)
    if figure not in FIGURES:
        raise unknown_name("figure", figure, (*FIGURES, ALL))
    return (figure,)


def scale_of(name: str) -> Scale:
    """The scale of that name, or an error with the nearest names."""
    if name not in SCALES:
        raise unknown_name("scale", name, SCALES)
    return SCALES[name]


def planned_runs(
    figure: str,
    scale: str,
    directory: Path,
    *,
    only_tasks: Sequence[str] = (),
    only_methods: Sequence[str] = (),
    only_runs: Sequence[str] = (),
    most_frames: int | None = None,
) -> list[PlannedRun]:
    """The runs of a figure, each once, with their directories inside `directory`.

    `only_tasks`, `only_methods` and `only_runs`, patterns of names, choose among them; nothing
    chosen means all. None is longer than `most_frames`.
    """
    size = scale_of(scale)
    for task in only_tasks:
        if task not in HIGH_LEVEL:
            raise unknown_name("task of the paper's figures", task, HIGH_LEVEL)
    rows = {
        row.name: row
        for name in figure_names(figure)
        for row in FIGURES[name].rows
        if (not only_tasks or row.task in only_tasks)
        and (not only_methods or row.method in only_methods)
        and (not only_runs or any(fnmatchcase(row.name, pattern) for pattern in only_runs))
    }
    if not rows:
        chosen = ", ".join((*only_tasks, *only_methods, *only_runs))
        raise InputError(f"figure '{figure}' has no run of {chosen}; see ella reproduce --list")
    return [
        PlannedRun(tasks.find(row.task), _settings(size, row, most_frames), directory / row.name)
        for row in rows.values()
    ]


def _settings(scale: Scale, row: Row, most_frames: int | None) -> TrainingSettings:
    budget = scale.budgets[row.task]
    frames = budget.frames if most_frames is None else min(budget.frames, most_frames)
    settings = replace(presets.find(budget.preset, row.method), frames=frames, seeds=budget.seeds)
    for changes in (scale.changes, row.changes):
        settings = from_table(changes, settings, where=row.name)
    return settings
