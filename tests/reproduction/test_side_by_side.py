"""Several programs at a time on this machine, one of them killed, all of them interrupted."""

import logging
import os
import signal
import subprocess
import threading
import time

import numpy as np
import pytest
from killed_processes import kill_once_saved, trainer
from tiny_runs import command, tiny_run, values

from ella.cli import main
from ella.errors import InputError
from ella.reproduction.figures import planned_runs
from ella.reproduction.local_launcher import unfinished
from ella.reproduction.side_by_side import train_side_by_side
from ella.runs.directory import LOCK_FILE
from ella.runs.run_result import Outcome

ITERATIONS = 120
"""So many that a program is killed long before it is done."""


@pytest.mark.thorough
def test_a_program_that_dies_does_not_end_the_others_and_is_resumed(tmp_path, caplog):
    whole, victim = (tiny_run(tmp_path / name, iterations=ITERATIONS) for name in "ab")
    groups = [[whole], [victim]]
    caplog.set_level(logging.INFO, "ella")
    killed: list[int] = []
    threading.Thread(target=kill_once_saved, args=(victim.directory, killed), daemon=True).start()
    with pytest.raises(InputError, match=r"program . of 2: ended .*killed by signal 9.*resumes"):
        train_side_by_side(groups, at_most=2, command=["ella", "reproduce"])
    assert killed
    assert unfinished([whole, victim]) == [victim]
    assert trainer(whole.directory) not in (killed[0], os.getpid())
    assert {"program 1 of 2: compiling", "program 2 of 2: compiling"} <= set(caplog.messages)
    (result,) = train_side_by_side([[victim]], at_most=2, command=["ella", "reproduce"])
    assert result.outcome == Outcome.FINISHED
    expected, found = values(whole.directory), values(victim.directory)
    assert found.keys() == expected.keys()
    for name, column in expected.items():
        np.testing.assert_array_equal(found[name], column)


@pytest.mark.thorough
def test_ctrl_c_saves_and_ends_all(tmp_path):
    tasks = ["putnext-room", "unlock-maze"]
    words = ["reproduce", "oracle", "--scale", "smoke", "--methods", "ppo", "--tasks", *tasks]
    words += ["--side-by-side", "2", "--out", str(tmp_path)]
    runs = planned_runs(
        "oracle", "smoke", tmp_path / "smoke", only_methods=["ppo"], only_tasks=tasks
    )
    process = subprocess.Popen(command(*words), stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 300
    while not any((run.directory / "metrics.csv").exists() for run in runs):
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "interrupted; the same command resumes" in said
    for run in runs:
        if (run.directory / LOCK_FILE).exists():
            with pytest.raises(ProcessLookupError):
                os.kill(trainer(run.directory), 0)
    assert not (tmp_path / "smoke" / "figures").exists()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--side-by-side", "0"], "--side-by-side must be >= 1"),
        (["--side-by-side", "2", "--launcher", "ray"], "--side-by-side is for training here"),
    ],
)
def test_impossible_numbers_of_programs_are_one_line(words, complaint, tmp_path, capsys):
    assert main(["reproduce", "main", *words, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert len(error.splitlines()) == 1
