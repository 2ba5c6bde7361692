"""A real Ray on this machine: two workers, one of them killed in the middle of a run."""

import logging
import threading

import numpy as np
import pytest
from killed_processes import kill_once_saved, trainer
from tiny_runs import tiny_run, values

from ella.errors import InputError
from ella.reproduction.ray_launcher import train_on_ray
from ella.runs.run_result import Outcome

pytestmark = pytest.mark.thorough
ITERATIONS = 120
"""So many that a worker is killed long before it is done."""


def test_a_killed_worker_changes_nothing(tmp_path, monkeypatch, caplog):
    """The same run twice, each in a worker of its own, one of which is killed."""
    # Another cluster that the surroundings name is not meant.
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    whole, victim = (tiny_run(tmp_path / name, iterations=ITERATIONS) for name in ("a", "b"))
    killed: list[int] = []
    threading.Thread(target=kill_once_saved, args=(victim.directory, killed), daemon=True).start()
    caplog.set_level(logging.INFO, "ella")
    results = train_on_ray(
        [[whole], [victim]],
        address=None,
        gpus=0.0,
        cpus=1.0,
        command=["ella", "reproduce"],
    )
    assert {result.outcome for result in results} == {Outcome.FINISHED}
    assert killed
    holders = {trainer(run.directory) for run in (whole, victim)}
    assert len(holders) == 2
    assert killed[0] not in holders
    # What the workers log is logged here too.
    said = caplog.messages
    assert {"a: compiling", "b: compiling", "done: a", "done: b"} <= set(said)
    assert said.index("a: compiling") < said.index("done: a")
    found, expected = values(victim.directory), values(whole.directory)
    assert found.keys() == expected.keys()
    assert len(expected["seed"]) == 2 * ITERATIONS / 3
    for name, column in expected.items():
        np.testing.assert_array_equal(found[name], column)


def test_no_cluster_at_an_address_is_one_line():
    with pytest.raises(InputError, match="no Ray cluster"):
        train_on_ray([], address="127.0.0.1:1", gpus=0.0, cpus=1.0, command=[])
