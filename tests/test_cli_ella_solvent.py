"""The solvent ELLA with every part on, as a user runs it."""

import json
import shutil

import numpy as np
import pytest
from test_cli_ella import CLASSIFIER, SETTINGS
from tiny_runs import values

from ella.cli import main

EVERYTHING = {
    **{name: SETTINGS[name] for name in ("seeds", "ppo")},
    "frames": 640,
    "log": {**SETTINGS["log"], "checkpoint_every": 320},
    "ella-solvent": {
        "in_order": True,
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
    "rnd": {},
}  # fmt: skip


@pytest.mark.thorough
def test_everything_on_in_a_sum_resumes_bit_identically(tmp_path, monkeypatch, capsys):
    """Two seeds in one program."""
    monkeypatch.setenv("ELLA_CACHE", str(tmp_path / "cache"))
    config = tmp_path / "settings.json"
    config.write_text(json.dumps(EVERYTHING))
    words = ["train", "unlock-maze", "--method", "ella-solvent+rnd", "--config", str(config)]
    assert main([*words, "--out", str(tmp_path / "whole")]) == 0
    shutil.copytree(tmp_path / "whole", tmp_path / "half")
    half, newest = sorted((tmp_path / "half" / "checkpoints").iterdir())
    assert half.stem == "000000004"
    newest.unlink()
    assert main(["train", "--resume", "--out", str(tmp_path / "half")]) == 0
    assert newest.exists()
    whole, resumed = values(tmp_path / "whole"), values(tmp_path / "half")
    assert {"relevance_accuracy_unsolved", "insolvent_successes", "rnd_bonus"} <= whole.keys()
    assert not np.isnan(whole["relevance_accuracy"]).all()
    for name, column in whole.items():
        np.testing.assert_array_equal(column, resumed[name], err_msg=name)

    capsys.readouterr()
    assert main(["explain", str(tmp_path / "whole"), "open the red door", "--json"]) == 0
    judged = json.loads(capsys.readouterr().out)["judgements"]
    assert len(judged) == 18
    assert [one["text"] for one in judged if one["oracle"]] == ["pick up the red key"]
