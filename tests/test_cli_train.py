"""`ella train` as a user runs it: real processes, really killed."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
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
from ella.runs.metrics import CLOCK_COLUMNS, read_rows
from ella.runs.policies import load_policy
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
