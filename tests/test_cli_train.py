"""`ella train` as a user runs it: real processes, really killed."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE
from threading import Event, Thread
from typing import Any

import jax
import numpy as np
import pytest
from narrow_pipes import narrow_pipe
from safetensors.numpy import load_file
from tiny_runs import TINY, WHOLE, WHOLE_ITERATIONS, command, settings_file, typed

from ella.array_file import load_arrays, save_arrays
from ella.cli import main
from ella.episodes.trained import trained_actor
from ella.intervals import Interval
from ella.networks.actor_critic import act
from ella.runs.checkpoint import FORMAT_VERSION, KIND, CheckpointStore
from ella.runs.config_file import read_run
from ella.runs.metrics import CLOCK_COLUMNS, read_rows
from ella.runs.policies import load_policy
from ella.runs.stop_signals import stop_signals
from ella.settings_table import to_json
from ella.world import compiled, make

ITERATIONS = WHOLE_ITERATIONS


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return settings_file(tmp_path_factory.mktemp("config") / "tiny.json", WHOLE)


def ella(*words: object, flags: str = "") -> subprocess.CompletedProcess:
    env = {**os.environ, "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} {flags}"}
    return subprocess.run(command(*words), env=env, capture_output=True, text=True, check=False)


def rows_without_clock(directory: Path) -> list[dict[str, str]]:
    return [
        {name: value for name, value in row.items() if name not in CLOCK_COLUMNS}
        for row in read_rows(directory)
    ]


def assert_same_run(left: Path, right: Path) -> None:
    assert rows_without_clock(left) == rows_without_clock(right)
    for seed in (0, 1):
        a, b = (load_file(run / "policies" / f"seed-{seed}.safetensors") for run in (left, right))
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])


def answer(capsys, *words: object) -> Any:
    """What a command without complaints prints as JSON."""
    assert main([str(word) for word in words]) == 0
    said = capsys.readouterr()
    assert said.err, "a long job says what it is doing"
    return json.loads(said.out)


@pytest.mark.slow
def test_a_run_leaves_metrics_events_configuration_checkpoints_and_policies(whole):
    out = whole.directory
    rows = read_rows(out)
    assert len(rows) == 2 * ITERATIONS / 3
    assert [int(row["frames"]) for row in rows[::2]] == list(range(96, 32 * ITERATIONS + 1, 96))
    assert {row["seed"] for row in rows} == {"0", "1"}
    assert rows[0]["entropy"] != rows[1]["entropy"]
    saved = json.loads((out / "config.json").read_text())
    assert saved["ppo"]["num_envs"] == 4
    assert saved["ppo"]["discount"] == 0.99
    assert saved["task"]["name"] == "goto-small"
    provenance = json.loads((out / "run.json").read_text())
    assert "train" in provenance["command"]
    assert "jax" in provenance["versions"]
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == [
        "000000054.safetensors",
        "000000060.safetensors",
    ]
    assert len(whole.stdout.splitlines()) == ITERATIONS / 3
    assert "frames a seed" in whole.stdout
    assert "success" in whole.stderr.splitlines()[-1]


@pytest.mark.slow
def test_tensorboard_events_hold_the_numbers_of_the_csv_file(whole):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = whole.directory
    events = EventAccumulator(str(out / "tensorboard" / "seed-1"))
    events.Reload()
    written = [(event.step, event.value) for event in events.Scalars("entropy")]
    rows = [row for row in read_rows(out) if row["seed"] == "1"]
    assert [step for step, _ in written] == [int(row["frames"]) for row in rows]
    np.testing.assert_allclose(
        [value for _, value in written], [float(row["entropy"]) for row in rows], rtol=1e-6
    )


@pytest.mark.thorough
def test_killed_damaged_stopped_and_resumed_ends_as_if_nothing_had_happened(
    whole, config, tmp_path, monkeypatch, capfd
):
    out = tmp_path / "run"
    store = CheckpointStore(out / "checkpoints", "")

    # The run waits before its sixth line, which is after the second checkpoint.
    reader, writer = narrow_pipe(lines=5)
    with os.fdopen(reader), os.fdopen(writer) as lines:
        process = subprocess.Popen(
            command("train", "goto-small", "--config", config, "--out", out), stdout=lines
        )
        while process.poll() is None and len(store.paths()) < 2:
            time.sleep(0.005)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    assert not (out / "policies").exists()
    newest = store.paths()[-1]
    newest.write_bytes(newest.read_bytes()[:-7])
    before = int(store.paths()[-2].stem)

    # Whoever read the lines leaves, as after `| head`: the run stops as with Ctrl-C.
    reader, writer = narrow_pipe(lines=5)
    ended = Event()

    def leave() -> None:
        while not ended.is_set() and int(store.paths()[-1].stem) <= before + 6:
            time.sleep(0.005)
        os.close(reader)

    leaving = Thread(target=leave)
    with os.fdopen(writer, "w") as lines, monkeypatch.context() as patch:
        patch.setattr("sys.stdout", lines)
        leaving.start()
        status = typed("train", "--resume", "--out", out)
    ended.set()
    leaving.join()
    said = capfd.readouterr().err
    assert status == 130, said
    assert f"checkpoint {newest.name} is damaged" in said
    assert f"resuming at {32 * before:,} frames" in said
    assert "Traceback" not in said
    assert "Broken pipe" not in said
    assert "--resume" in said.splitlines()[-1]
    assert (out / "policies" / "seed-1.safetensors").exists()

    assert typed("train", "--resume", "--out", out) == 0
    assert_same_run(out, whole.directory)
    provenance = json.loads((out / "run.json").read_text())
    assert "goto-small" in provenance["command"]
    assert ["--resume" in part["command"] for part in provenance["resumed"]] == [True, True]


@pytest.mark.slow
def test_a_resumed_run_is_bit_identical(whole, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(whole.directory, out, ignore=shutil.ignore_patterns("policies"))
    (out / "checkpoints" / f"{ITERATIONS:09d}.safetensors").unlink()
    assert typed("train", "--resume", "--out", out) == 0
    assert_same_run(out, whole.directory)


@pytest.mark.thorough
def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_checkpoint(whole, tmp_path, capsys):
    out = tmp_path / "run"
    shutil.copytree(whole.directory, out)
    newest = out / "checkpoints" / f"{ITERATIONS:09d}.safetensors"
    saved = load_arrays(newest, kind=KIND, version=FORMAT_VERSION)
    saved.arrays["network.critic.output.bias"][:] = np.nan
    save_arrays(newest, saved.arrays, kind=KIND, version=FORMAT_VERSION, table=saved.table)

    words = ("train", "--resume", "--out", out, "--frames", 32 * ITERATIONS + 320)
    assert main([str(word) for word in words]) == 3
    said = capsys.readouterr().err
    assert "not finite" in said
    assert f"the checkpoint at {32 * ITERATIONS:,} frames a seed is kept" in said
    assert len(read_rows(out)) == 2 * ITERATIONS / 3
    assert newest.exists()


@pytest.mark.thorough
def test_a_disk_that_takes_no_more_is_one_line(config, tmp_path):
    words = command(
        "train", "goto-small", "--config", config, "--out", tmp_path / "run", "--log.no-tensorboard"
    )  # fmt: skip
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 12; exec "$@"', "bash", *words],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("ella: cannot write a checkpoint")


@pytest.mark.thorough
def test_two_of_four_devices_train_two_seeds_as_one_device_does(whole, config, tmp_path):
    done = ella(
        "train", "goto-small", "--config", config, "--out", tmp_path / "run", "--frames", 192,
        flags="--xla_force_host_platform_device_count=4",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "2 seeds do not divide over 4 devices: using 2" in done.stderr
    for spread, alone in zip(
        read_rows(tmp_path / "run"), read_rows(whole.directory)[:4], strict=True
    ):
        assert spread["episodes"] == alone["episodes"]
        np.testing.assert_allclose(float(spread["loss"]), float(alone["loss"]), rtol=1e-3)


@pytest.mark.thorough
def test_a_trained_policy_does_as_well_in_minigrid(whole, capsys):
    words = ["eval", str(whole.directory), "--episodes", "40", "--seed-index", "1", "--json"]
    here, there = (
        answer(capsys, *words, "--backend", backend)["results"] for backend in ("ella", "minigrid")
    )
    assert [row["mode"] for row in here] == ["greedy", "sampled"]
    for a, b in zip(here, there, strict=True):
        assert a["seed"] == b["seed"] == 1
        for name in ("success", "return"):
            left, right = Interval(**a[name]), Interval(**b[name])
            assert left.low <= left.value <= left.high
            assert left.overlaps(right)
    sampled = Interval(**here[1]["success"])
    assert 0 < sampled.value < 1


@pytest.mark.thorough
def test_a_video_of_the_trained_agent_is_recorded(whole, tmp_path):
    assert main(["show", str(whole.directory), "--out", str(tmp_path)]) == 0
    assert (tmp_path / "goto-small-trained-0-0.gif").stat().st_size > 1000


@pytest.mark.thorough
def test_a_recorded_agent_samples_as_in_training_or_is_greedy(whole):
    policy, world = load_policy(whole.directory), make("goto-small")
    start = compiled.reset(world, jax.random.key(0))

    def actions(key: jax.Array | None) -> list[int]:
        agent, timestep, chosen = trained_actor(policy, key), start, []
        for _ in range(20):
            chosen.append(agent(timestep))
            timestep = compiled.step(world, timestep.state, np.int32(chosen[-1]))
        return chosen

    sampled, again, other = (actions(jax.random.key(seed)) for seed in (0, 0, 1))
    assert sampled == again != other
    memory = policy.network.initial_memory()
    decision = act(policy.network, policy.statistics, start.observation, memory)
    assert actions(None)[0] == int(decision.action)


def flags(table: dict[str, Any], prefix: str) -> Iterator[str]:
    """Settings as they are typed."""
    for name, value in table.items():
        flag = f"{prefix}.{name.replace('_', '-')}"
        if isinstance(value, dict):
            yield from flags(value, flag)
        elif isinstance(value, bool):
            yield flag if value else f"{prefix}.no-{name.replace('_', '-')}"
        else:
            yield from (flag, str(value))


@pytest.mark.thorough
def test_bench_measures_the_world_inference_and_each_method(capsys):
    report = answer(
        capsys, "bench", "goto-small", "--seeds", 2, "--method", "ppo", "ride",
        "--iterations", 1, "--repeats", 1, "--json", *flags(to_json(TINY.ppo), "--ppo"),
    )  # fmt: skip
    assert (report["seeds"], report["environments"]) == (2, 4)
    assert "one frame = one step" in report["counting"]
    rates = {rate["what"]: rate for rate in report["rates"]}
    assert list(rates) == ["environment", "environment+inference", "training ppo", "training ride"]
    assert all(rate["frames"] == 2 * 4 * 8 for rate in rates.values())
    assert rates["environment"]["memory_bytes"] is None
    one_seed = report["environments"] * 8 * 7 * 7 * 3
    for name in ("training ppo", "training ride"):
        assert rates[name]["memory_bytes"] > 2 * one_seed
        assert rates[name]["compile_seconds"] > 0
    assert rates["training ppo"]["ratio"] == 1
    expected = (
        rates["training ride"]["frames_per_second"] / rates["training ppo"]["frames_per_second"]
    )
    assert rates["training ride"]["ratio"] == pytest.approx(expected)


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["train", "--help"], ["tasks"]])
def test_a_reader_who_has_gone_is_no_error(words, monkeypatch, capfd):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as gone:
        monkeypatch.setattr("sys.stdout", gone)
        assert main(words) == 128 + signal.SIGPIPE
    assert capfd.readouterr().err == ""


def test_the_loss_of_the_terminal_asks_a_run_to_stop_unless_it_is_ignored(capfd):
    before = signal.getsignal(signal.SIGHUP)
    try:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with stop_signals() as stop:
            assert not stop()
            signal.raise_signal(signal.SIGHUP)
            assert stop()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with stop_signals() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert "stopping" in capfd.readouterr().err


def test_a_stop_at_once_is_an_interrupt_whatever_a_library_makes_of_it():
    def library(error: Exception) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise error from None

    with pytest.raises(KeyboardInterrupt), stop_signals(at_once=True):
        library(RuntimeError("INTERNAL: callback failed"))
    with pytest.raises(ValueError, match="its own"), stop_signals(at_once=True):
        raise ValueError("its own")


def test_the_bound_of_the_paper(capsys):
    found = []
    for steps in (("--steps", "128"), ("--steps", "100"), ()):
        assert main(["bound", "putnext-room", *steps]) == 0
        first, *others = capsys.readouterr().out.splitlines()
        assert any(line.endswith(f"a warning beyond {first}") for line in others)
        found.append(first)
    assert found == ["0.0153", "0.0604", "0.267"]


def test_the_bound_is_that_of_the_horizon_that_binds(capsys):
    # combo-maze has 42 low-level instructions and horizons of 128 and 256.
    for words, horizon, steps in ((("--steps", "256"), 256, 256), ((), 128, 40)):
        assert main(["bound", "combo-maze", *words]) == 0
        said = capsys.readouterr().out
        by_hand = 0.99**steps * 20 * (1 - 0.9 * steps / horizon) / 42
        assert said.splitlines()[0] == f"{by_hand:.3g}"
        assert "horizon 128, 256" in said


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
    assert f"nothing to train: {32 * ITERATIONS:,} frames" in capsys.readouterr().err
    assert (out / "metrics.csv").read_bytes() == before


def test_weights_and_biases_without_the_package(capsys, tmp_path):
    line = refusal(
        capsys, "train", "goto-room", "--out", tmp_path / "run", "--log.wandb", "project"
    )
    assert "pip install wandb" in line
    assert not (tmp_path / "run").exists()
