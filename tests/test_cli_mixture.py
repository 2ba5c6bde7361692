"""A mixture from the command line: every method trains on it, the solvent ELLA with every part on,
it resumes bit-identically, and its target is evaluated and explained."""

import json
import shutil

import numpy as np
import pytest
from test_cli_ella import CLASSIFIER, SETTINGS
from tiny_runs import values

from ella.cli import main
from ella.runs.config_file import read_run
from ella.runs.metrics import read_rows

MIXED = {
    **{name: SETTINGS[name] for name in ("seeds", "learn")},
    "frames": 640,
    "ppo": {**SETTINGS["ppo"], "pool_size": 0},
    "ella-solvent": {
        "termination": {
            **CLASSIFIER, "min_steps": 20, "max_steps": 0, "one_article": True,
            "ordinary_views": 64, "false_alarms": 0.01,
        },
        "relevance": {
            "update_every": 2, "recent_successes": 64, "fewest_successes": 2,
            "network": {"hidden_size": 16, "output_size": 8},
            "training": {"max_steps": 20},
        },
    },
    "noveld": {"channels": [4, 4, 4], "width": 8, "features": 8},
    "rnd": {"features": 8, "epochs": 1, "minibatches": 2},
    "curriculum": {"recent_frames": 100, "earlier_frames": 1000},
    "log": {**SETTINGS["log"], "checkpoint_every": 320},
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of all methods at once, two seeds in one program."""
    folder = tmp_path_factory.mktemp("mixture")
    (folder / "settings.json").write_text(json.dumps(MIXED))
    run = folder / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ELLA_CACHE", str(folder / "cache"))
        words = ["train", "unlock-maze", "--also", "goto-room:2", "openpick-maze"]
        words += ["--method", "ella-solvent+learn+ride+rnd+noveld", "--out", str(run)]
        assert main([*words, "--config", str(folder / "settings.json")]) == 0
    return run


@pytest.mark.nightly
def test_success_and_share_of_every_part_are_logged(trained):
    assert read_run(trained)[1].also == ("goto-room:2", "openpick-maze")
    rows = read_rows(trained)
    assert [row["frames"] for row in rows[::2]] == ["160", "320", "480", "640"]
    bonuses = {f"{name}_bonus" for name in ("learn", "ride", "rnd", "noveld")}
    ella = {"low_level_completions", "relevance_accuracy_unsolved", "insolvent_successes"}
    assert bonuses | ella <= rows[0].keys()
    assert any(row["relevance_accuracy"] for row in rows)
    assert float(rows[-1]["learn_bonus"]) != 0
    for row in rows:
        tasks = ("unlock-maze", "goto-room", "openpick-maze")
        shares = [float(row[f"level_share_{task}"]) for task in tasks]
        assert sum(shares) == pytest.approx(1, abs=1e-5)
        assert min(shares) > 0.01
        assert row["success_rate"] == row["success_rate_unlock-maze"]
        assert all(f"success_rate_{task}" in row for task in tasks)
        assert float(row["levels_reused"]) == 0


@pytest.mark.nightly
def test_the_second_half_is_trained_again_bit_identically(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "half")
    half, newest = sorted((tmp_path / "half" / "checkpoints").iterdir())
    assert half.stem == "000000004"
    newest.unlink()
    assert main(["train", "--resume", "--out", str(tmp_path / "half")]) == 0
    assert newest.exists()
    whole, resumed = values(trained), values(tmp_path / "half")
    assert whole.keys() == resumed.keys()
    for name, column in whole.items():
        np.testing.assert_array_equal(column, resumed[name], err_msg=name)


@pytest.mark.nightly
def test_evaluation_and_explanation_are_of_the_target(trained, capsys):
    assert main(["eval", str(trained), "--episodes", "4", "--json"]) == 0
    assert {row["task"] for row in json.loads(capsys.readouterr().out)["results"]} == {
        "unlock-maze"
    }
    assert main(["explain", str(trained), "open the red door", "--json"]) == 0
    judged = json.loads(capsys.readouterr().out)["judgements"]
    assert len(judged) == 18
    assert [one["text"] for one in judged if one["oracle"]] == ["pick up the red key"]


def test_wrong_mixtures_are_refused_in_one_line(tmp_path, capsys):
    words = ["train", "unlock-maze", "--out", str(tmp_path / "run"), "--also"]
    for also, said in (("goto-rom", "goto-room"), ("goto-room:none", "not a number")):
        assert main([*words, also]) == 2
        error = capsys.readouterr().err
        assert len(error.splitlines()) == 1
        assert said in error
    assert not (tmp_path / "run").exists()
