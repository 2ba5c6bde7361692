"""ELLA as a user runs it: the offline stage, training with it, and explaining."""

import json
import logging
import os
import shutil
import time
from dataclasses import replace

import pytest

from ella.cli import main
from ella.episodes import run_artefacts
from ella.offline.settings import TerminationTrainingSettings
from ella.offline.termination import find_termination
from ella.runs.config_file import read_run
from ella.runs.metrics import read_rows
from ella.settings_table import updated
from ella.shaping.low_level import low_level_tasks
from ella.training.assembly import build_shaper
from ella.world.tasks import find

CLASSIFIER = {
    "episodes": 64,
    "validation_episodes": 64,
    "batch": 32,
    "max_steps": 20,
    "evaluate_every": 10,
    "network": {
        "variant": "onehot", "width": 8, "instruction_width": 8, "head_width": 8, "blocks": 1,
    },
}  # fmt: skip
SETTINGS = {
    "seeds": 2,
    "frames": 4 * 80,
    "ppo": {
        "network": {
            "variant": "onehot", "width": 8, "instruction_width": 8, "memory_width": 8,
            "head_width": 8, "blocks": 1,
        },
        "num_envs": 8, "rollout_length": 10, "bptt_length": 5, "minibatch_frames": 40,
        "epochs": 1, "pool_size": 16, "unroll": 1,
    },
    "ella": {
        "bonus": 0.1,
        "termination": CLASSIFIER,
        "relevance": {
            "update_every": 2 * 80, "initial_instructions": 12, "max_initial_rounds": 40,
            "network": {"hidden_size": 16, "output_size": 8},
            "training": {
                "learning_rate": 3e-3, "max_learning_rate": 1e-2, "max_initial_steps": 100,
                "max_steps": 20,
            },
        },
    },
    "learn": {
        "training": {
            "episodes": 64, "validation_episodes": 64, "epochs": 1, "batch": 32,
            "network": {"width": 8},
        }
    },
    "log": {"every": 2 * 80, "tensorboard": False},
}  # fmt: skip

CLASSIFIER_WORDS = [
    *("--episodes", "64", "--validation-episodes", "64", "--batch", "32"),
    *("--max-steps", "20", "--evaluate-every", "10", "--network.variant", "onehot"),
    *("--network.width", "8", "--network.instruction-width", "8", "--network.head-width", "8"),
    *("--network.blocks", "1"),
]
PUT = "put the red key next to the blue ball"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ella")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, folder):
    monkeypatch.setenv("ELLA_CACHE", str(folder / "cache"))


@pytest.fixture(scope="module")
def trained(folder):
    """A run of ELLA, its classifier trained on the way."""
    (folder / "settings.json").write_text(json.dumps(SETTINGS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ELLA_CACHE", str(folder / "cache"))
        status = main(
            [
                *("train", "putnext-room", "--method", "ella"),
                *("--config", str(folder / "settings.json"), "--out", str(folder / "run")),
            ]
        )
    assert status == 0
    return folder / "run"


@pytest.mark.slow
def test_a_run_measures_what_it_pays_for(trained):
    rows = read_rows(trained)
    names = {"bonus_per_episode", "low_level_completions", "decomposition_size"}
    assert names | {"instructions_seen", "relevance_accuracy"} <= rows[0].keys()
    assert any(float(row["bonus"]) for row in rows)


@pytest.mark.slow
def test_the_offline_stage_is_recalled_by_name_of_either_task(trained, folder, capsys):
    files = sorted((folder / "cache").iterdir())
    for task in ("putnext-room", "goto-room"):
        assert main(["offline", task, *CLASSIFIER_WORDS, "--json"]) == 0
        said = capsys.readouterr()
        record = json.loads(said.out)
        assert record["task"] == "goto-room"
        assert record["kinds"].keys() == {"goto"}
        assert "training the termination classifier" not in said.err
    assert sorted((folder / "cache").iterdir()) == files


@pytest.mark.thorough
def test_the_offline_stage_of_several_tiers_is_the_one_that_training_finds(folder, capsys):
    names = ("goto-room", "pick-maze")
    words = ["offline", "putnext-room", "--low-level", *names, *CLASSIFIER_WORDS, "--json"]
    assert main(words) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["task"] == "goto-room+pick-maze"
    assert record["kinds"].keys() == {"goto", "pickup"}
    settings = updated(TerminationTrainingSettings(), CLASSIFIER, where="settings")
    found = find_termination(low_level_tasks(find("putnext-room"), names), settings)
    assert "training" not in capsys.readouterr().err
    assert found.record["accuracy"] == record["accuracy"]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("goto-room", "goto-room"), "one is named twice"),
        (("goto-roo",), "did you mean goto-room"),
        (("sequence-maze",), "must have sentences of one clause"),
    ],
)
def test_tiers_that_cannot_be_are_one_line(names, said, capsys):
    assert main(["offline", "putnext-room", "--low-level", *names]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


@pytest.mark.thorough
def test_a_run_explains_itself(trained, tmp_path, capsys, monkeypatch):
    # As on another machine: the run brings its classifiers along.
    monkeypatch.setenv("ELLA_CACHE", str(tmp_path / "empty"))
    picture = tmp_path / "map.png"
    words = ["explain", str(trained), PUT]
    assert main([*words, "--json", "--heatmap", str(picture)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["instruction"] == PUT
    judged = {judgement["text"]: judgement for judgement in found["judgements"]}
    assert len(judged) == 36
    assert judged["go to the red key"]["oracle"]
    assert not judged["go to the blue ball"]["oracle"]
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert main(words) == 0
    assert "go to" in capsys.readouterr().out
    assert not (tmp_path / "empty").exists()
    assert main(["explain", str(trained), "go to the moon"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.slow
def test_a_run_without_its_offline_networks_is_not_explained(
    trained, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("ELLA_CACHE", str(tmp_path / "empty"))
    run = tmp_path / "run"
    shutil.copytree(trained, run, ignore=shutil.ignore_patterns("shaper"))
    assert main(["explain", str(run), PUT]) == 2
    place = run / "shaper"
    said = f"ella: {place} is missing: the run's offline networks cannot be read\n"
    assert capsys.readouterr().err == said
    assert not place.exists()
    assert not (tmp_path / "empty").exists()


@pytest.mark.thorough
def test_artefacts_are_made_once_and_again_for_newer_policies(trained, caplog):
    caplog.set_level("INFO", logger="ella")
    for recorded in (1, 1, 2):
        if recorded == 2:
            later = time.time() + 60
            for policy in (trained / "policies").iterdir():
                os.utime(policy, (later, later))
        run_artefacts.add(trained)
        assert caplog.messages == [f"recording {trained.name}"] * recorded
    folder = trained / run_artefacts.FOLDER
    assert [path.suffix for path in sorted(folder.glob("putnext-room-trained-0-0*"))] == [
        ".gif",
        ".png",
    ]
    found = json.loads((folder / "relevance.json").read_text())
    assert found["instruction"].startswith("put ")
    assert len(found["judgements"]) == 36
    assert (folder / "relevance.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_bonus_beyond_the_bound_is_warned_of(trained, caplog):
    caplog.set_level(logging.INFO, "ella")
    spec, settings = read_run(trained)
    ella = settings.method.parts[0]
    build_shaper(spec, replace(settings, method=replace(ella, bonus=0.3)))
    assert any("the bonus 0.3 exceeds" in line for line in caplog.messages)
    assert caplog.messages[-1].startswith("termination classifier of goto-room: ")
    caplog.clear()
    build_shaper(spec, replace(settings, method=ella))
    assert not any("exceeds" in line for line in caplog.messages)


@pytest.mark.thorough
def test_an_exported_agent_is_explained_and_evaluated_like_its_run(trained, folder, capsys):
    agent = folder / "agent"
    assert main(["export", str(trained), "--out", str(agent), "--episodes", "8"]) == 0
    assert not (agent / "checkpoints").exists()
    capsys.readouterr()

    def explained(place):
        assert main(["explain", str(place), PUT, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    of_run, of_agent = explained(trained), explained(agent)
    assert of_agent["seen"] == of_run["seen"]
    relevance = {one["text"]: one["probability"] for one in of_run["judgements"]}
    for one in of_agent["judgements"]:
        assert one["probability"] == pytest.approx(relevance[one["text"]], abs=0.01)
    card = json.loads((agent / "card.json").read_text())
    assert main(["eval", str(agent), "--episodes", "8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["results"]
    assert {one["mode"]: one["success"] for one in found} == card["success"]["ella"]
    assert main(["export", str(trained), "--out", str(agent)]) == 2
    assert capsys.readouterr().err == f"ella: {agent} exists; choose another folder\n"

    damaged = shutil.copytree(trained, folder / "damaged")
    for checkpoint in (damaged / "checkpoints").iterdir():
        checkpoint.write_bytes(b"")
    assert main(["export", str(damaged), "--out", str(folder / "no-agent")]) == 2
    assert "playing" not in capsys.readouterr().err, "what cannot be written is not measured"
    assert not (folder / "no-agent").exists()
