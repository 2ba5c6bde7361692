"""Runs are read as they stand, also while they train: nothing is trained, nothing is written."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from tiny_runs import TINY, WHOLE, WholeRun

from ella.cli import main
from ella.errors import InputError
from ella.runs.directory import write_config
from ella.runs.policies import load_policy
from ella.runs.restore import newest_policy
from ella.training.settings import with_method
from ella.world.tasks import find


def files(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


@pytest.fixture
def killed(whole: WholeRun, tmp_path: Path) -> Path:
    """A run that was killed at its last checkpoint."""
    run = tmp_path / "killed"
    return Path(shutil.copytree(whole.directory, run, ignore=shutil.ignore_patterns("policies")))


def assert_same_policy(one, other):
    for left, right in zip(
        jax.tree.leaves((one.network, one.statistics)),
        jax.tree.leaves((other.network, other.statistics)),
        strict=True,
    ):
        np.testing.assert_array_equal(left, right)
    assert (one.spec, one.seed, one.frames) == (other.spec, other.seed, other.frames)


@pytest.mark.slow
@pytest.mark.parametrize("seed_index", [0, 1])
def test_the_newest_checkpoint_holds_the_policy_of_a_killed_run(whole, killed, seed_index, caplog):
    caplog.set_level("INFO", "ella")
    found = newest_policy(killed, seed_index)
    assert caplog.messages == [
        f"{killed}: using its newest checkpoint, at {WHOLE.frames:,} frames a seed"
    ]
    assert found.frames == WHOLE.frames
    assert_same_policy(found, load_policy(whole.directory, seed_index))


@pytest.mark.slow
def test_a_checkpoint_that_is_newer_than_the_policies_is_preferred(whole, tmp_path):
    run = Path(shutil.copytree(whole.directory, tmp_path / "run"))
    assert_same_policy(newest_policy(run), load_policy(run))
    replace(load_policy(run), frames=32).save(run / "policies" / "seed-0")
    assert load_policy(run).frames == 32
    assert newest_policy(run).frames == WHOLE.frames


@pytest.mark.slow
def test_a_killed_run_is_shown_and_left_as_it_is(killed, tmp_path, capsys):
    before = files(killed)
    assert main(["show", str(killed), "--out", str(tmp_path / "videos")]) == 0
    assert "goto-small-trained-0-0.gif" in capsys.readouterr().out
    assert files(killed) == before


@pytest.mark.thorough
def test_a_killed_run_is_evaluated_like_a_finished_one(whole, killed, capsys):
    found = []
    for run in (killed, whole.directory):
        assert main(["eval", str(run), "--episodes", "4", "--json"]) == 0
        said = capsys.readouterr()
        found.append(json.loads(said.out))
        assert ("newest checkpoint" in said.err) == (run == killed)
    assert found[0] == found[1]
    assert [row["seed"] for row in found[0]["results"]] == [0, 0, 1, 1]


@pytest.mark.slow
def test_a_seed_the_run_does_not_have_is_one_line(killed):
    with pytest.raises(InputError, match=r"seed index 2 is outside 0\.\.1"):
        newest_policy(killed, 2)


def test_a_run_without_policies_and_checkpoints_is_one_line(tmp_path):
    write_config(tmp_path, find("goto-small"), TINY)
    with pytest.raises(InputError, match="has neither policies nor a checkpoint yet"):
        newest_policy(tmp_path)


@pytest.mark.parametrize(
    ("method", "instruction", "message"),
    [
        ("ella", "open the red door", "{run} has no checkpoint yet"),
        ("ppo", "open the red door", "the run was trained with method 'ppo', without ELLA"),
    ],
)
def test_explaining_never_trains(tmp_path, monkeypatch, capsys, method, instruction, message):
    monkeypatch.setenv("ELLA_CACHE", str(tmp_path / "cache"))
    run = tmp_path / "run"
    run.mkdir()
    write_config(run, find("unlock-maze"), with_method(TINY, method))
    assert main(["explain", str(run), instruction]) == 2
    assert capsys.readouterr().err == f"ella: {message.format(run=run)}\n"
    assert [path.name for path in run.iterdir()] == ["config.json"]
    assert not (tmp_path / "cache").exists()
