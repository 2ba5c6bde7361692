"""What makes a run the run it is: the settings that decide how training goes on."""

from dataclasses import MISSING, fields
from functools import cache
from typing import Any

from ella.errors import InputError
from ella.runs import directory as run_directory
from ella.runs.planned_run import PlannedRun
from ella.settings_table import flat, to_json
from ella.training.settings import Settings
from ella.world.tasks import TaskSpec


def identity(spec: TaskSpec, settings: Settings) -> dict[str, Any]:
    """What a checkpoint must agree on: everything that decides how training goes on."""
    table = to_json(settings)
    for name in ("frames", "devices", "log"):
        del table[name]
    # Assumptions are only compared with the bonus.
    for name in ("optimal_steps", "max_completions"):
        del table["ella"][name]
    return {**table, "task": to_json(spec), "log": {"every": settings.log.every}}


def what_differs(spec: TaskSpec, settings: Settings) -> dict[str, Any]:
    """The part of the identity that is not as by default, names joined by dots: an option that is
    added later, and left alone, makes no other run of it."""
    default, told = defaults(), flat(identity(spec, settings))
    return {
        name: value for name, value in told.items() if name not in default or value != default[name]
    }


@cache
def defaults() -> dict[str, Any]:
    """What settings, and a task, are where nothing is told of them, names joined by dots."""
    task = {one.name: one.default for one in fields(TaskSpec) if one.default is not MISSING}
    return flat({**to_json(Settings()), "task": to_json(task)})


def check_same_run(planned: PlannedRun) -> None:
    """Refuse to resume a run with settings that would have made another run."""
    directory = planned.directory
    if not (directory / run_directory.CONFIG_FILE).exists():
        return
    before = flat(identity(*run_directory.read_run(directory)))
    now = flat(identity(planned.spec, planned.settings))
    for name in now:
        if now[name] != before.get(name):
            raise InputError(
                f"cannot resume {directory} with other settings: {name} was "
                f"{before.get(name)} and is now {now[name]}; start a new run"
            )
