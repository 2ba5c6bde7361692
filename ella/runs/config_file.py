"""config.json: the task and the resolved settings of a run; users write such files too."""

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ella.durable_files import write_durably
from ella.errors import InputError
from ella.settings_table import read_table, to_json
from ella.training.settings import TrainingSettings, from_table, to_table
from ella.world.tasks import TaskSpec, find, task_of

CONFIG_FILE = "config.json"
FORMAT_VERSION = 3
LOW_LEVEL = "low_level_task"
"""The row of the task that the run's task names as its low level, so that the file needs no other
source; files without it rest on the tasks known by name."""
REMOVED = {"in_order": False, "unsolved_share": 0.0}
"""Settings that are no more, with the value that left them off: files may still name them so."""
NAMED = "named_tasks"
"""The rows of the tasks that the settings name, for the same reason; absent where they name no
task."""


def write_config(directory: Path, spec: TaskSpec, settings: TrainingSettings) -> None:
    """Save the resolved configuration, with the row of every task that it names."""
    table = {"format_version": FORMAT_VERSION, "task": to_json(spec)}
    # Only methods with an offline stage need the low level to be known.
    if spec.low_level is not None and (low := _rows(spec, [spec.low_level])):
        table[LOW_LEVEL] = low[0]
    if named := _rows(spec, _named_tasks(settings)):
        table[NAMED] = named
    table |= to_table(settings.resolved(spec))
    write_durably(directory / CONFIG_FILE, json.dumps(table, indent=2) + "\n")


def _named_tasks(settings: TrainingSettings) -> list[str]:
    """Tasks that are trained on as well, and those that methods take low-level instructions from,
    each once."""
    names = [word.partition(":")[0] for word in settings.also]
    for part in settings.method.parts:
        low_level = part.values().get("low_level")
        names += low_level if isinstance(low_level, tuple) else ()
    return list(dict.fromkeys(names))


def _rows(spec: TaskSpec, names: Iterable[str]) -> list[dict[str, Any]]:
    """The rows of the tasks that are known."""
    rows = []
    for name in names:
        with suppress(InputError):
            rows.append(to_json(spec.find(name)))
    return rows


def read_config_table(path: Path) -> tuple[TaskSpec | None, dict[str, Any]]:
    """The task (where the file has one) and the table of settings in a file."""
    return split_table(read_table(path), where=str(path))


def check_format(table: dict[str, Any], *, where: str) -> None:
    """Refuse a table of another format version; `where` is for errors."""
    version = table.get("format_version", FORMAT_VERSION)
    if version != FORMAT_VERSION:
        raise InputError(
            f"{where} has format version {version}, this version of ella reads {FORMAT_VERSION}; "
            "read it with the version that wrote it"
        )


def split_table(table: dict[str, Any], *, where: str) -> tuple[TaskSpec | None, dict[str, Any]]:
    """The task and the settings of a table; `where` is for errors."""
    check_format(table, where=where)
    brought = [task_of(row, where=f"{where}: {NAMED}") for row in _listed(table, where)]
    if LOW_LEVEL in table:
        brought.append(task_of(table[LOW_LEVEL], where=f"{where}: {LOW_LEVEL}"))
    other = ("format_version", "task", LOW_LEVEL, NAMED)
    settings = {key: _of_today(part) for key, part in table.items() if key not in other}
    if table.get("task") is None:
        return None, settings
    unknown = tuple(dict.fromkeys(spec for spec in brought if not _is_known(spec)))
    return replace(task_of(table["task"], where=where), brought=unknown), settings


def _of_today(part: Any) -> Any:
    """Settings without those of `REMOVED` that are off."""
    if not isinstance(part, dict):
        return part
    return {
        name: _of_today(value)
        for name, value in part.items()
        if name not in REMOVED or value != REMOVED[name]
    }


def _listed(table: dict[str, Any], where: str) -> list[Any]:
    rows = table.get(NAMED, [])
    if not isinstance(rows, list):
        raise InputError(f"{where}: {NAMED}: expected a list of tasks, found {rows!r}")
    return rows


def _is_known(spec: TaskSpec) -> bool:
    with suppress(InputError):
        return find(spec.name) == spec
    return False


def read_run(directory: Path) -> tuple[TaskSpec, TrainingSettings]:
    """The task and the resolved settings of a run."""
    path = directory / CONFIG_FILE
    if not path.is_file():
        raise InputError(f"{directory} is not a run: it has no {CONFIG_FILE}")
    spec, table = read_config_table(path)
    if spec is None:
        raise InputError(f"{path} names no task")
    return spec, from_table(table, where=str(path)).resolved(spec)
