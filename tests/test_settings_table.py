"""Settings to JSON and back."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import ella
from ella.errors import InputError
from ella.runs.config_file import read_config_table, read_run, write_config
from ella.schedule import whole_iterations
from ella.settings_table import merged
from ella.shaping.low_level import low_level_tasks
from ella.shaping.oracle import low_level_of
from ella.training import presets
from ella.training.settings import LogSettings, TrainingSettings, from_table, to_table
from ella.world import tasks
from ella.world.tasks import find

RESULTS = Path(__file__).resolve().parent.parent / "results"


def test_a_saved_configuration_reads_back_equal(tmp_path):
    settings = TrainingSettings(seeds=3, frames=77, log=LogSettings(keep=5, wandb="p"))
    settings = replace(settings, ppo=replace(settings.ppo, learning_rate=7e-4))
    spec = find("combo-maze")
    write_config(tmp_path, spec, settings)
    assert read_run(tmp_path) == (spec, settings)


def test_a_file_may_name_a_few_settings_only(tmp_path):
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"seeds": 2, "ppo": {"epochs": 1, "learning_rate": 1}}))
    spec, table = read_config_table(file)
    settings = from_table(table, TrainingSettings(frames=5), where="")
    assert spec is None
    assert (settings.seeds, settings.frames, settings.ppo.epochs) == (2, 5, 1)
    assert isinstance(settings.ppo.learning_rate, float)


def test_a_configuration_brings_every_task_that_it_names(tmp_path, monkeypatch):
    """As a later process reads it, which knows none of the tasks that this one registered."""
    before = dict(tasks.TASKS)
    own = [replace(find("goto-room"), name=f"own-{index}", room_size=6) for index in range(4)]
    monkeypatch.setattr(tasks, "TASKS", before | {task.name: task for task in own})
    spec = replace(find("putnext-room"), name="mine", low_level="own-0")
    method = ella.ELLA(low_level=("own-1", "goto-room")) + ella.RIDE()
    settings = TrainingSettings(method=method, also=("own-2:2", "own-1", "goto-maze"))
    settings = settings.resolved(spec)
    write_config(tmp_path, spec, settings)

    # A task of the same name that this process knows does not matter.
    other = {"own-2": replace(own[2], room_size=7)}
    for known in ({}, other):
        monkeypatch.setattr(tasks, "TASKS", before | known)
        found, read = read_run(tmp_path)
        assert before | known == tasks.TASKS
        assert (replace(found, brought=()), read) == (spec, settings)
        assert [found.find(task.name) for task in own[:3]] == own[:3]
        assert read.trained_task(found).parts[1:] == (own[2], own[1], find("goto-maze"))
        assert low_level_tasks(found, ("own-1", "goto-room")) == (own[1], find("goto-room"))
        assert low_level_of(found) == own[0]
        write_config(tmp_path, found, read)
    table = json.loads((tmp_path / "config.json").read_text())
    for rows, message in (({}, "expected a list of tasks"), ([3], "expected a table with a name")):
        (tmp_path / "config.json").write_text(json.dumps({**table, "named_tasks": rows}))
        with pytest.raises(
            InputError, match=f"named_tasks: {message}|named_tasks: task: {message}"
        ):
            read_run(tmp_path)

    # Files of earlier versions have no such rows.
    del table["named_tasks"]
    (tmp_path / "config.json").write_text(json.dumps(table))
    monkeypatch.setattr(tasks, "TASKS", before | {task.name: task for task in own})
    assert read_run(tmp_path) == (spec, settings)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"sedes": 2}, "did you mean seeds"),
        ({"ppo": {"epoch": 2}}, "ppo: unknown setting 'epoch'; did you mean epochs"),
        ({"seeds": "two"}, "'two' is not int"),
        ({"seeds": True}, "True is not int"),
        ({"seeds": 0}, "seeds must be >= 1"),
        ({"ppo": 3}, "expected a table"),
        ({"ppo": {"network": {"variant": "twohot"}}}, "did you mean onehot"),
    ],
)
def test_wrong_settings_are_named(table, message):
    with pytest.raises(InputError, match=message):
        from_table(table, where="file")


def test_not_json_and_not_a_run(tmp_path):
    for text in ("{", "[" * 100_000):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(InputError, match="is not JSON"):
            read_config_table(tmp_path / "x.json")
    with pytest.raises(InputError, match="is not a run"):
        read_run(tmp_path)
    with pytest.raises(InputError, match="cannot read"):
        read_config_table(tmp_path / "absent.json")


def test_every_setting_survives_json():
    table = json.loads(json.dumps(to_table(TrainingSettings())))
    assert from_table(table, TrainingSettings(seeds=9), where="") == TrainingSettings()


def test_every_committed_run_reads_back():
    runs = [path.parent for path in sorted(RESULTS.rglob("config.json"))]
    assert len(runs) >= 25
    for run in runs:
        table = json.loads((run / "config.json").read_text())
        spec, settings = read_run(run)
        assert spec.name == table["task"]["name"]
        assert settings.method.name == table["method"]
        assert (settings.seeds, settings.frames) == (table["seeds"], table["frames"])
        for part in settings.method.parts:
            absent = {name for name, value in part.values().items() if value is None}
            assert absent <= {"examples", "solvency"}, "null stands for none, not for a default"


@pytest.mark.parametrize("version", [1, 2, 4])
def test_another_format_is_refused(tmp_path, version):
    write_config(tmp_path, find("goto-room"), TrainingSettings())
    table = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**table, "format_version": version}))
    message = f"format version {version}, this version of ella reads 3; read it with"
    with pytest.raises(InputError, match=message):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("frames", "iterations"), [(1, 1), (2559, 1), (3839, 1), (3840, 2), (128_000, 50)]
)
def test_frames_of_a_schedule_are_rounded_to_whole_iterations(frames, iterations):
    assert whole_iterations(frames, 2560) == iterations


@pytest.mark.parametrize(("preset", "update"), [("paper", 50), ("onehot", 50), ("small", 50)])
def test_presets_log_and_learn_as_often_as_they_did_when_iterations_were_counted(preset, update):
    settings = presets.find(preset, "ella")
    assert (settings.log_iterations, settings.checkpoint_iterations) == (20, 200)
    frames = settings.method.relevance.update_every
    assert whole_iterations(frames, settings.ppo.frames_per_iteration) == update


@pytest.mark.parametrize(
    ("preset", "frames", "log", "update"), [("wide", 81_920, 5, 2), ("wide-8gb", 20_480, 20, 6)]
)
def test_wide_presets_keep_the_paper_s_schedule_in_frames(preset, frames, log, update):
    settings = presets.find(preset, "ella")
    assert settings.ppo.frames_per_iteration == frames
    assert settings.log_iterations == log
    assert settings.method.relevance == presets.find("paper", "ella").method.relevance
    assert whole_iterations(settings.method.relevance.update_every, frames) == update
    assert settings.ppo.pool_size == 0


def test_merged_tables_keep_what_only_one_of_them_names():
    first = {"a": 1, "inner": {"b": 2, "c": 3}}
    assert merged(first, {"inner": {"c": 4, "deep": {"d": 5}}}, {"a": None}) == {
        "a": None,
        "inner": {"b": 2, "c": 4, "deep": {"d": 5}},
    }
    assert first == {"a": 1, "inner": {"b": 2, "c": 3}}


def test_a_removed_setting_is_read_where_it_is_off_and_refused_where_it_is_on(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    write_config(run, find("unlock-small"), TrainingSettings(method=ella.ELLA()))
    table = json.loads((run / "config.json").read_text())
    for share, complaint in ((0.0, None), (0.25, "unsolved_share")):
        table["ella"]["relevance"]["training"]["unsolved_share"] = share
        (run / "config.json").write_text(json.dumps(table))
        if complaint is None:
            assert read_run(run)[1].method == ella.ELLA().resolved(find("unlock-small"))
        else:
            with pytest.raises(InputError, match=complaint):
                read_run(run)
