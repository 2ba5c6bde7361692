"""A real Ray on this machine: two workers, one of them killed in the middle of a run."""

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tiny_runs import tiny_run, values

from ella.errors import InputError
from ella.experiment.launch import standing
from ella.experiment.ray_launcher import train_on_ray
from ella.experiment.run import Outcome, train_together
from ella.experiment.run_directory import LOCK_FILE

ITERATIONS = 30


def kill_once_saved(directory: Path, killed: list[int]) -> None:
    """Kill the process that trains in `directory` as soon as it has a checkpoint to go on from."""
    while not list((directory / "checkpoints").glob("0*")):
        time.sleep(0.01)
    number = int((directory / LOCK_FILE).read_text().split()[1])
    os.kill(number, signal.SIGKILL)
    killed.append(number)


@pytest.mark.slow
def test_a_killed_worker_changes_nothing(tmp_path):
    pytest.importorskip("ray")
    groups = [
        [tiny_run(tmp_path / "ray" / name, iterations=ITERATIONS, seed=seed)]
        for name, seed in (("first", 0), ("second", 4))
    ]
    victim, killed = groups[1][0].directory, list[int]()
    threading.Thread(target=kill_once_saved, args=(victim, killed), daemon=True).start()
    said: list[str] = []
    results = train_on_ray(
        groups, address=None, gpus=0.0, cpus=1.0, say=said.append, command=["ella", "reproduce"]
    )
    assert killed
    assert {result.outcome for result in results} == {Outcome.FINISHED}
    holder = int((victim / LOCK_FILE).read_text().split()[1])
    assert holder != killed[0]
    assert any(line.startswith("done: ") for line in said)
    for group in groups:
        assert standing(group[0]).finished
        undisturbed = tiny_run(
            tmp_path / "here" / group[0].directory.name,
            iterations=ITERATIONS,
            seed=group[0].settings.seed,
        )
        train_together([undisturbed])
        found, expected = values(group[0].directory), values(undisturbed.directory)
        assert found.keys() == expected.keys()
        for name, column in expected.items():
            np.testing.assert_array_equal(found[name], column)


def test_no_cluster_at_an_address_is_one_line():
    pytest.importorskip("ray")
    with pytest.raises(InputError, match="no Ray cluster"):
        train_on_ray(
            [], address="127.0.0.1:1", gpus=0.0, cpus=1.0, say=lambda line: None, command=[]
        )
