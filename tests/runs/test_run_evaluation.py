"""What a run's folder keeps of its final policies, and when it is made again."""

import json
import shutil

import pytest
from tiny_runs import TINY, WHOLE

from ella import agents
from ella.cli import main
from ella.errors import InputError
from ella.runs.config_file import write_config
from ella.runs.policies import policy_files
from ella.runs.run_evaluation import add_evaluation, keep_evaluation, read_evaluation
from ella.world.tasks import find


@pytest.fixture
def run(whole, tmp_path):
    """A trained run of its own, without what others may have kept."""
    return shutil.copytree(
        whole.directory, tmp_path / "run", ignore=shutil.ignore_patterns("evaluation*")
    )


def row(mode="sampled", seed=0, value=0.5, frames=64):
    success = {"value": value, "low": 0.0, "high": 1.0}
    return {"mode": mode, "seed": seed, "frames": frames, "success": success}


def kept(folder, rows, episodes=8):
    write_config(folder, find("goto-small"), TINY)
    table = {"episodes": episodes, "backend": "ella", "seed": 3, "results": rows}
    keep_evaluation(folder, table)
    return folder


def test_what_was_kept_is_read(tmp_path):
    rows = [row(m, s, v) for m, s, v in (("greedy", 0, 0.25), ("sampled", 0, 0.5))]
    found = read_evaluation(kept(tmp_path, rows), "ella")
    assert (found.episodes, found.seed, found.frames) == (8, 3, 64)
    assert found.success == {"greedy": {0: 0.25}, "sampled": {0: 0.5}}
    assert read_evaluation(tmp_path, "minigrid") is None


@pytest.mark.parametrize(
    "rows",
    [
        [{"mode": "sampled"}],
        [row("greedy"), row("sampled", value=1.5)],
        [row("asleep")],
        [row("sampled")],
        [row("greedy"), row("sampled", frames=32)],
        [row("greedy"), row("sampled", frames=float("inf"))],
        [row("greedy", seed=None)],
        [],
        3,
    ],
)
def test_what_is_damaged_is_one_line(tmp_path, rows):
    with pytest.raises(InputError, match="ella eval --save writes it again"):
        read_evaluation(kept(tmp_path, rows), "ella")


def test_an_evaluation_of_no_episodes_is_damaged(tmp_path):
    with pytest.raises(InputError, match="ella eval --save writes it again"):
        read_evaluation(kept(tmp_path, [row("greedy"), row("sampled")], episodes=0), "ella")


def test_it_is_kept_in_runs_alone(tmp_path, capsys):
    with pytest.raises(InputError, match="is not a run"):
        keep_evaluation(tmp_path, {"episodes": 8, "backend": "ella", "results": []})
    assert main(["eval", "agent:unlock-maze", "--save"]) == 2
    assert "not in agent:unlock-maze" in capsys.readouterr().err
    assert main(["eval", str(tmp_path), "--save"]) == 2
    assert f"not in {tmp_path}" in capsys.readouterr().err
    write_config(tmp_path, find("goto-small"), TINY)
    assert main(["eval", str(tmp_path), "--save", "--seed-index", "0"]) == 2
    assert "leave out --seed-index" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--episodes", "0"], "episodes must be >= 1, got 0"),
        (["--seed", "-1"], "a seed lies between 0 and 4294967295, got -1"),
        (["--seed-index", "1"], "seed index 1 is outside 0..0"),
    ],
)
def test_impossible_evaluations_are_one_line(words, message, capsys):
    assert main(["eval", "agent:unlock-maze", *words]) == 2
    assert capsys.readouterr().err == f"ella: {message}\n"


def test_a_policy_file_has_no_seed_to_choose(capsys):
    (file,) = policy_files(agents.located("agent:unlock-maze"))
    assert main(["eval", str(file), "--seed-index", "4"]) == 2
    assert capsys.readouterr().err.endswith(
        "is no run to choose a seed of; leave out --seed-index\n"
    )


@pytest.mark.thorough
def test_it_is_made_once_and_again_for_other_policies(run, capsys):
    assert main(["eval", str(run), "--episodes", "4", "--save", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert json.loads((run / "evaluation.json").read_text()) == printed
    found = read_evaluation(run, "ella")
    assert (found.episodes, found.frames) == (4, WHOLE.frames)
    assert found.success["greedy"].keys() == found.success["sampled"].keys() == {0, 1}

    def playing(episodes):
        add_evaluation(run, episodes)
        return f"playing {episodes} fresh levels" in capsys.readouterr().err

    assert not playing(4)
    assert not playing(3)
    assert playing(5)
    (run / "evaluation.json").write_text("[")
    assert playing(5)
    now = (run / "evaluation.json").read_text()
    for text in (
        now.replace(f'"frames": {WHOLE.frames}', '"frames": 32'),
        now.replace('"seed": 0,\n  "res', '"seed": 1,\n  "res'),
    ):
        assert text != now
        (run / "evaluation.json").write_text(text)
        assert playing(5)
    assert not playing(5)
    shutil.rmtree(run / "policies")
    shutil.rmtree(run / "checkpoints")
    add_evaluation(run, 6)
    assert "warning: no evaluation of run: " in capsys.readouterr().err
