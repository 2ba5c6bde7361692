"""What `ella train` and its neighbours refuse, and what resuming a run says: one line, nothing
half-written."""

import shutil
import signal
import subprocess
from subprocess import PIPE

import pytest
from limited_resources import address_space_of_at_most
from tiny_runs import WHOLE, WHOLE_ITERATIONS, command, settings_file

from ella.cli import main
from ella.runs.config_file import read_run


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return settings_file(tmp_path_factory.mktemp("config") / "tiny.json", WHOLE)


def refusal(capsys, *words: object) -> str:
    """The one line a command that is refused writes."""
    assert main([str(word) for word in words]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    return lines[0]


def test_names_that_are_almost_right(capsys, tmp_path):
    out = ("--out", tmp_path / "run")
    assert "did you mean train?" in refusal(capsys, "trian")
    assert "did you mean goto-room" in refusal(capsys, "train", "goto-rom", *out)
    assert "unknown method 'pp'" in refusal(capsys, "train", "goto-room", *out, "--method", "pp")
    assert "did you mean small?" in refusal(capsys, "train", "goto-room", *out, "--preset", "smal")
    assert not (tmp_path / "run").exists()


def test_sizes_that_do_not_fit_are_one_line(capsys, tmp_path):
    start = ("train", "goto-room", "--out", tmp_path / "run")
    assert "must divide" in refusal(capsys, *start, "--ppo.minibatch-frames", 40 * 27)
    assert "seeds must be >= 1" in refusal(capsys, *start, "--seeds", 0)
    assert "seeds must be <= 65,536, got 1,000,000" in refusal(capsys, *start, "--seeds", 10**6)
    assert "log.every must be" in refusal(capsys, *start, "--log.every", 0)


def test_words_that_are_not_arguments_are_one_line(capsys, tmp_path):
    assert "did you mean --steps?" in refusal(capsys, "bound", "putnext-room", "--stps", 3)
    assert "--steps" in refusal(capsys, "bound", "putnext-room", "--steps", "many")
    assert "TASK" in refusal(capsys, "bound")
    assert "float8" in refusal(
        capsys, "train", "goto-room", "--ppo.network.compute-dtype", "float8", "--out", tmp_path
    )


def test_a_run_that_is_refused_leaves_nothing_behind(capsys, tmp_path):
    start = ("train", "goto-room", "--out", tmp_path / "run")
    assert "has no low-level task" in refusal(capsys, *start, "--method", "ella")
    assert "devices is 99" in refusal(capsys, *start, "--devices", 99)
    assert not (tmp_path / "run").exists()


@pytest.mark.thorough
def test_too_little_memory_is_one_line_and_leaves_nothing_behind(capsys, config, tmp_path):
    out = tmp_path / "run"
    start = ("train", "goto-small", "--config", config, "--out", out)
    words = [*start, "--ppo.num-envs", 10**9]
    # The views of all environments alone are 294 GB.
    with address_space_of_at_most(128 << 30):
        assert main([str(word) for word in words]) == 2
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith("ella: out of memory with 2 x 1,000,000,000 environments")
    assert "lower --ppo.num-envs" in line
    assert not out.exists()


@pytest.mark.thorough
def test_a_resume_without_a_checkpoint_warns_that_it_restarts(whole, tmp_path, capsys):
    out = tmp_path / "run"
    out.mkdir()
    shutil.copy(whole.directory / "config.json", out)
    words = ("train", "--resume", "--out", out, "--frames", 96)
    assert main([str(word) for word in words]) == 0
    said = capsys.readouterr().err
    assert f"warning: {out} has no checkpoint: training restarts from frame 0\n" in said
    assert said.splitlines()[0].startswith("training PPO on goto-small")


def test_a_resume_does_not_train_over_policies_without_a_checkpoint(whole, tmp_path, capsys):
    out = tmp_path / "run"
    shutil.copytree(whole.directory, out)
    shutil.rmtree(out / "checkpoints")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    line = refusal(capsys, "train", "--resume", "--out", out, "--frames", 96)
    assert "trained policies but no checkpoint to resume from" in line
    assert f"--start-from {out}" in line
    assert {path: path.read_bytes() for path in before} == before


def test_names_that_are_empty_are_refused(capsys, config, tmp_path):
    start = ("train", "goto-small", "--out", tmp_path / "run")
    assert "unknown method ''" in refusal(capsys, *start, "--config", config, "--method", "")
    assert "unknown preset ''" in refusal(capsys, *start, "--preset", "")
    assert "--out: '' is not a path" in refusal(capsys, *start[:-1], "")


def test_processes_need_a_coordinator(capsys, config, tmp_path):
    start = ("train", "goto-small", "--config", config, "--out", tmp_path / "run")
    line = refusal(capsys, *start, "--processes", 2)
    assert "--processes and --process need --coordinator" in line


@pytest.mark.thorough
def test_the_first_ctrl_c_in_the_offline_stage_stops_and_can_be_resumed(tmp_path, monkeypatch):
    monkeypatch.setenv("ELLA_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "run"
    process = subprocess.Popen(
        command("train", "unlock-maze", "--method", "ella", "--preset", "small", "--out", out),
        stderr=PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    line = ""
    while not line.startswith("collecting"):
        line = process.stderr.readline()
        assert line, f"ended with {process.wait()} before it collected episodes"
    process.send_signal(signal.SIGINT)
    said = process.stderr.read()
    assert process.wait() == 130, said
    assert said.splitlines()[-1] == (
        f"interrupted at 0 frames a seed in {out}; resume with: ella train --resume --out {out}"
    )
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]
    assert read_run(out)[1].method.name == "ella"


def test_no_policy_where_one_is_asked_for(capsys, tmp_path):
    missing = tmp_path / "nowhere"
    assert refusal(capsys, "eval", missing).startswith(f"ella: {missing} is neither the directory")


def test_refusals_name_what_was_typed(capsys, tmp_path):
    out = ("--out", tmp_path / "run")
    assert "'ella+' lacks a name" in refusal(
        capsys, "train", "unlock-maze", *out, "--method", "ella+"
    )
    assert "--steps must be >= 1" in refusal(capsys, "bound", "unlock-maze", "--steps", 0)
    assert "--completions must be" in refusal(capsys, "bound", "unlock-maze", "--completions", 0)
    assert "--top must be" in refusal(capsys, "explain", tmp_path, "open a door", "--top", 0)


def test_directories_that_cannot_be_used(capsys, tmp_path):
    used = tmp_path / "used"
    used.mkdir()
    (used / "file").write_text("x")
    start = ("train", "goto-room", "--out")
    assert "is not empty" in refusal(capsys, *start, used)
    assert "is not a run" in refusal(capsys, *start, used, "--resume")
    assert "is a file" in refusal(capsys, *start, used / "file")
    assert "cannot write" in refusal(capsys, *start, used / "file" / "run")
    assert "cannot write" in refusal(capsys, *start, "/proc/run")


@pytest.mark.slow
def test_a_run_is_not_resumed_with_other_settings(capsys, whole):
    line = refusal(capsys, "train", "--resume", "--out", whole.directory, "--ppo.discount", 0.9)
    assert "ppo.discount was 0.99 and is now 0.9" in line


@pytest.mark.thorough
def test_a_resume_of_a_longer_run_says_that_nothing_is_trained(whole, tmp_path, capsys):
    out = tmp_path / "run"
    shutil.copytree(whole.directory, out)
    before = (out / "metrics.csv").read_bytes()
    assert main(["train", "--resume", "--out", str(out), "--frames", "32"]) == 0
    assert f"nothing to train: {32 * WHOLE_ITERATIONS:,} frames" in capsys.readouterr().err
    assert (out / "metrics.csv").read_bytes() == before


def test_weights_and_biases_without_the_package(capsys, tmp_path):
    line = refusal(
        capsys, "train", "goto-room", "--out", tmp_path / "run", "--log.wandb", "project"
    )
    assert "pip install wandb" in line
    assert not (tmp_path / "run").exists()
