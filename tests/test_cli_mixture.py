"""A mixture from the command line: every method trains on it, and its target is evaluated."""

import json

import pytest
from test_cli_ella import SETTINGS

from ella.cli import main
from ella.runs.config_file import read_run
from ella.runs.metrics import read_rows

pytestmark = pytest.mark.thorough

MIXED = {
    **SETTINGS,
    "seeds": 1,
    "ppo": {**SETTINGS["ppo"], "pool_size": 0},
    "noveld": {"channels": [4, 4, 4], "width": 8, "features": 8},
    "rnd": {"features": 8, "epochs": 1, "minibatches": 2},
    "curriculum": {"recent_frames": 100, "earlier_frames": 1000},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of all methods at once, interrupted and resumed."""
    folder = tmp_path_factory.mktemp("mixture")
    (folder / "settings.json").write_text(json.dumps(MIXED))
    run = folder / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ELLA_CACHE", str(folder / "cache"))
        words = ["train", "unlock-maze", "--also", "goto-room:2", "openpick-maze"]
        words += ["--method", "ella+learn+ride+rnd+noveld", "--out", str(run)]
        assert main([*words, "--config", str(folder / "settings.json")]) == 0
        assert main(["train", "--resume", "--out", str(run), "--frames", "480"]) == 0
    return run


def test_success_and_share_of_every_part_are_logged(trained):
    assert read_run(trained)[1].also == ("goto-room:2", "openpick-maze")
    rows = read_rows(trained)
    assert [row["frames"] for row in rows] == ["160", "320", "480"]
    for name in ("ella", "learn", "ride", "rnd", "noveld"):
        column = {"ella": "low_level_completions"}.get(name, f"{name}_bonus")
        assert column in rows[0]
    assert float(rows[-1]["learn_bonus"]) != 0
    for row in rows:
        tasks = ("unlock-maze", "goto-room", "openpick-maze")
        shares = [float(row[f"level_share_{task}"]) for task in tasks]
        assert sum(shares) == pytest.approx(1, abs=1e-5)
        assert min(shares) > 0.01
        assert row["success_rate"] == row["success_rate_unlock-maze"]
        assert all(f"success_rate_{task}" in row for task in tasks)
        assert float(row["levels_reused"]) == 0


def test_evaluation_and_explanation_are_of_the_target(trained, capsys):
    assert main(["eval", str(trained), "--episodes", "4", "--json"]) == 0
    assert {row["task"] for row in json.loads(capsys.readouterr().out)["results"]} == {
        "unlock-maze"
    }
    assert main(["explain", str(trained), "open the red door", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["judgements"]) == 36


def test_wrong_mixtures_are_refused_in_one_line(tmp_path, capsys):
    words = ["train", "unlock-maze", "--out", str(tmp_path / "run"), "--also"]
    for also, said in (("goto-rom", "goto-room"), ("goto-room:none", "not a number")):
        assert main([*words, also]) == 2
        error = capsys.readouterr().err
        assert len(error.splitlines()) == 1
        assert said in error
    assert not (tmp_path / "run").exists()
