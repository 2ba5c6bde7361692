"""What makes a run the run it is: the settings that training depends on."""

from typing import Any

from ella.errors import InputError
from ella.runs.config_file import CONFIG_FILE, read_run
from ella.runs.planned_run import PlannedRun
from ella.settings_table import flat, to_json
from ella.training.settings import TrainingSettings, to_table
from ella.world.tasks import TaskSpec

NOT_IDENTITY = ("frames", "until", "devices", "log")
"""Settings that may change when a run is resumed, apart from `log.every`."""


def identity(spec: TaskSpec, settings: TrainingSettings) -> dict[str, Any]:
    """What a checkpoint must agree on: everything that training depends on."""
    settings = settings.resolved(spec)
    table = to_table(settings)
    for name in NOT_IDENTITY:
        del table[name]
    for part in settings.method.parts:
        for name in part.not_identity:
            del table[part.name][name]
    return {**table, "task": to_json(spec), "log": {"every": settings.log.every}}


def check_same_run(planned: PlannedRun) -> None:
    """Refuse to resume a run with settings that would have made another run."""
    directory = planned.directory
    if not (directory / CONFIG_FILE).exists():
        return
    before = flat(identity(*read_run(directory)))
    now = flat(identity(planned.spec, planned.settings))
    for name in now:
        if now[name] != before.get(name):
            raise InputError(
                f"cannot resume {directory} with other settings: {name} was "
                f"{before.get(name)} and is now {now[name]}; start a new run"
            )
