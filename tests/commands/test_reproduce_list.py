"""`ella reproduce --list`: at once, whole names, and no time that was not measured."""

import json

import pytest
from begun_runs import begin

from ella.cli import main
from ella.reproduction.figures import PARTS, planned_runs


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("ELLA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_device_that_never_trained_has_no_times_and_measures_none(tmp_path, cache, capsys):
    words = ["reproduce", "all", "--scale", "paper", "--out", str(tmp_path)]
    assert main([*words, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["seconds"] is None
    assert {run["seconds"] for run in listed["runs"]} == {None}
    assert main([*words, "--list"]) == 0
    said = capsys.readouterr()
    assert "--measure" in said.out.splitlines()[-1]
    assert "about" not in said.out
    assert not said.err
    assert not cache.exists()


def test_times_are_told_for_the_programs_whose_rate_is_known(tmp_path, capsys):
    words = ["reproduce", "oracle", "--together", "24", "--out", str(tmp_path)]
    runs = planned_runs("oracle", "short", tmp_path / "short")
    begin(runs[0], 100_000.0)
    assert main([*words, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    # All runs of the figure have the same learner.
    seconds = {run["run"]: run["seconds"] for run in listed["runs"]}
    assert seconds["unlock-maze-ppo"] == pytest.approx(8 * 10_001_920 / 100_000)
    assert listed["seconds"] == pytest.approx(sum(seconds.values()))
    assert main([*words, "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("about 4 h 40 min on this device, without compilation")


@pytest.mark.parametrize(
    "columns", [40, *(pytest.param(n, marks=pytest.mark.thorough) for n in (None, 80, 200))]
)
def test_no_name_is_cut(columns, tmp_path, capsys, monkeypatch):
    if columns is not None:
        # As in a terminal that wide; None is a pipe.
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("COLUMNS", str(columns))
    runs = planned_runs("all", "short", tmp_path / "short")
    begin(runs[0], 1000.0)
    assert main(["reproduce", "all", "--list", "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    table = lines[1 : len(runs) + 1]
    assert [line.split()[0] for line in table] == [run.directory.name for run in runs]
    if columns == 80:
        assert max(map(len, table)) <= 80
    assert ("network" in lines[0]) == (columns in (None, 200))


def test_runs_are_chosen_by_name_and_made_shorter(tmp_path, capsys):
    words = ["reproduce", "ablation", "--out", str(tmp_path), "--json"]
    assert main([*words, "--runs", "unlock-*-only-*", "openpick-*-ella", "--frames", "12e6"]) == 0
    listed = {run["run"]: run["frames"] for run in json.loads(capsys.readouterr().out)["runs"]}
    assert len(listed) == len(PARTS) + 1
    # Whole iterations of 2,560 frames; a run that is shorter stays as it is.
    assert listed["openpick-maze-ella"] == 12_001_280
    assert listed["unlock-maze-ella-solvent-only-windows"] == 10_001_920


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--runs", "unlock-*", "x*"], None),
        (["--runs", "x*"], "has no run of x*"),
        (["--frames", "0"], "--frames must be >= 1, got 0"),
        (["--frames", "nan"], "--frames must be >= 1, got nan"),
    ],
)
def test_what_cannot_be_chosen_is_said_in_one_line(words, expected, tmp_path, capsys):
    status = main(["reproduce", "ablation", "--list", "--out", str(tmp_path), *words])
    said = capsys.readouterr().err
    assert status == (0 if expected is None else 2)
    assert expected is None or (expected in said and said.count("\n") == 1)
