"""Tasks of installed packages, and of the run's own file."""

import importlib
import json
from dataclasses import replace

import pytest
from tiny_runs import TINY

from ella.cli import main
from ella.runs.config_file import CONFIG_FILE, read_run, write_config
from ella.training.settings import with_method
from ella.world import tasks

PACKAGE = """
from ella.world.tasks import TaskSpec

CORRIDOR = TaskSpec("corridor", ("goto",), room_size=5, distractors=2, low_level="corridor-low")
LOW = TaskSpec("corridor-low", ("goto",), room_size=5, distractors=2)
NUMBER = 7
"""


@pytest.fixture
def fresh_tasks(monkeypatch):
    """Tasks that a test makes known are forgotten afterwards."""
    monkeypatch.setattr(tasks, "TASKS", dict(tasks.TASKS))
    tasks._load_plugins.cache_clear()
    yield
    tasks._load_plugins.cache_clear()


@pytest.fixture
def install(tmp_path, monkeypatch, fresh_tasks):
    """Installs a package with these lines of entry points."""

    def put(*lines: str) -> None:
        information = tmp_path / "ella_corridors-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text("Name: ella-corridors\nVersion: 1.0\n")
        points = "\n".join(["[ella.tasks]", *lines, ""])
        (information / "entry_points.txt").write_text(points)
        (tmp_path / "corridors.py").write_text(PACKAGE)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(importlib.import_module("sys").modules, "corridors", raising=False)
        importlib.invalidate_caches()

    return put


def test_tasks_of_an_installed_package_are_known_by_name(install, capsys):
    install("corridor = corridors:CORRIDOR", "corridor-low = corridors:LOW")
    assert tasks.find("corridor").room_size == 5
    assert main(["tasks", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["corridor"]["low_level"] == "corridor-low"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("corridor = corridors:NUMBER", "must name an ella.TaskSpec, got corridors:NUMBER"),
        ("hall = corridors:CORRIDOR", "names a task called 'corridor'; use one name"),
    ],
)
def test_wrong_entry_points_are_one_line(install, line, message, capsys):
    install(line)
    assert main(["bound", "nowhere"]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert message in said


def test_a_runs_own_file_suffices_to_read_it(fresh_tasks, tmp_path):
    """As a task registered from Python, which a later process does not know."""
    low = tasks.register(replace(tasks.find("goto-maze"), name="my-low", room_size=6))
    spec = replace(tasks.find("putnext-maze"), name="mine", room_size=6, low_level="my-low")
    settings = with_method(TINY, "ella").resolved(spec)
    write_config(tmp_path, spec, settings)
    del tasks.TASKS["my-low"]
    found, read = read_run(tmp_path)
    assert (replace(found, brought=()), read) == (spec, settings)
    assert found.find("my-low") == low
    assert "my-low" not in tasks.TASKS

    tasks.TASKS["my-low"] = replace(low, room_size=7)
    assert read_run(tmp_path)[0].find("my-low") == low

    # Files of earlier versions have no such row.
    table = json.loads((tmp_path / CONFIG_FILE).read_text())
    del table["low_level_task"]
    (tmp_path / CONFIG_FILE).write_text(json.dumps(table))
    tasks.TASKS["my-low"] = low
    assert read_run(tmp_path) == (spec, settings)
