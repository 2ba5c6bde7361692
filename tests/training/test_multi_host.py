"""One run in two processes, as on two machines."""

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from narrow_pipes import narrow_pipe
from tiny_runs import WHOLE, WHOLE_ITERATIONS, WholeRun, command, settings_file, values

from ella.cli import main


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def two_processes(*words: object, stdout: int = subprocess.DEVNULL) -> list[subprocess.Popen]:
    """Two parts of one run; `stdout` is the first one's, which alone writes progress."""
    port = free_port()
    return [
        subprocess.Popen(
            [
                *command("train", *words),
                *("--coordinator", f"127.0.0.1:{port}", "--processes", "2"),
                *("--process", str(process)),
            ],
            stdout=subprocess.DEVNULL if process else stdout,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ,
        )
        for process in range(2)
    ]


def ended(processes: list[subprocess.Popen]) -> list[str]:
    """What the processes said; their statuses are left in them."""
    return [process.communicate(timeout=300)[1] for process in processes]


@pytest.mark.thorough
def test_two_processes_train_stop_together_and_go_on(tmp_path: Path, whole: WholeRun) -> None:
    config, out = settings_file(tmp_path / "tiny.json", WHOLE), tmp_path / "both"

    # The first process waits before its sixth line, and with it the second.
    reader, writer = narrow_pipe(lines=5)
    begun = two_processes("goto-small", "--config", config, "--out", out, stdout=writer)
    os.close(writer)
    while begun[1].poll() is None and not list((out / "checkpoints").glob("0*")):
        time.sleep(0.01)
    begun[1].send_signal(signal.SIGINT)
    with os.fdopen(reader, "rb") as lines:
        lines.read()
    said = ended(begun)
    assert [process.returncode for process in begun] == [130, 130], said
    assert "interrupted" in said[0]
    assert len(values(out)["seed"]) < 2 * WHOLE_ITERATIONS / 3

    resumed = two_processes("--resume", "--out", out)
    said = ended(resumed)
    assert [process.returncode for process in resumed] == [0, 0], said
    assert sorted(path.name for path in (out / "policies").glob("*.safetensors")) == [
        "seed-0.safetensors",
        "seed-1.safetensors",
    ]

    # What the first process is refused, the other does not wait for.
    refused = two_processes("goto-small", "--config", config, "--out", out)
    said = ended(refused)
    assert [process.returncode for process in refused] == [2, 2], said
    assert "is not empty" in said[0]
    assert "process 0 refused to start" in said[1]

    together, alone = values(out), values(whole.directory)
    for name in ("seed", "iteration", "frames"):
        np.testing.assert_array_equal(together[name], alone[name])
    # Rounding may differ, so compare before one differing action could grow into many.
    for name in ("loss", "entropy", "success_rate"):
        np.testing.assert_allclose(together[name][:2], alone[name][:2], rtol=1e-3)


def test_an_address_without_numbers_is_one_line(tmp_path: Path, capsys) -> None:
    words = ["train", "goto-small", "--out", str(tmp_path / "run"), "--coordinator", "127.0.0.1:1"]
    assert main(words) == 2
    assert "cannot join the processes" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
