"""A run's directory: locked by one process, and with a true provenance."""

import errno
import fcntl
import json
import os
import subprocess
import sys

import pytest

from ella.errors import InputError, OutOfMemoryError
from ella.runs.config_file import CONFIG_FILE
from ella.runs.directory import PROVENANCE_FILE, locked_run
from ella.training.settings import TrainingSettings
from ella.world.tasks import find


def lock(directory, *command: str, resume: bool = True):
    task, settings = find("goto-small"), TrainingSettings()
    return locked_run(directory, task, settings, resume=resume, command=command)


def provenance(directory) -> dict:
    return json.loads((directory / PROVENANCE_FILE).read_text())


def test_a_locked_run_stays_unchanged_by_those_it_is_refused_to(tmp_path):
    run = tmp_path / "run"
    with lock(run, "first"):
        files = {path.name: path.read_bytes() for path in run.iterdir()}
        for resume in (True, False):
            with pytest.raises(InputError), lock(run, "second", resume=resume):
                pass
        assert {path.name: path.read_bytes() for path in run.iterdir()} == files
    with lock(run, "third"):
        pass
    assert provenance(run)["command"] == ["first"]


def test_every_resume_is_recorded(tmp_path):
    run = tmp_path / "run"
    for word in ("begin", "resume", "end"):
        with lock(run, word):
            pass
    told = provenance(run)
    assert told["command"] == ["begin"]
    assert [part["command"] for part in told["resumed"]] == [["resume"], ["end"]]
    assert told["resumed"][1].keys() == told.keys() - {"resumed"}


@pytest.mark.parametrize("error", [InputError("no"), OSError(28, "No space left on device")])
def test_a_new_run_that_is_refused_leaves_nothing_and_an_older_one_everything(tmp_path, error):
    def fail(run):
        with lock(run, "word"):
            assert (run / CONFIG_FILE).exists()
            raise error

    with pytest.raises(type(error)):
        fail(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with lock(tmp_path / "old", "word"):
        pass
    with pytest.raises(type(error)):
        fail(tmp_path / "old")
    assert (tmp_path / "old" / CONFIG_FILE).exists()


def test_too_little_memory_leaves_a_new_run_only_if_it_has_trained(tmp_path):
    def fail(run, rows=""):
        with lock(run, "word"):
            (run / "shaper").mkdir()
            (run / "metrics.csv").write_text(f"seed,iteration,frames\n{rows}")
            raise OutOfMemoryError("out of memory")

    with pytest.raises(OutOfMemoryError):
        fail(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with pytest.raises(OutOfMemoryError):
        fail(tmp_path / "trained", "0,1,640\n")
    assert (tmp_path / "trained" / CONFIG_FILE).exists()


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    for resume in (True, False):
        with pytest.raises(InputError), lock(tmp_path, resume=resume):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


HOLDER = """
import sys
from pathlib import Path
from ella.runs.directory import lock

with lock(Path(sys.argv[1])):
    print("locked", flush=True)
    input()
"""


@pytest.mark.thorough
def test_the_process_that_has_the_lock_is_named_and_its_death_releases_it(tmp_path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "locked\n"
    locked_by = f"is locked by process {holder.pid} on {os.uname().nodename}"
    with pytest.raises(InputError, match=locked_by), lock(tmp_path):
        pass
    holder.kill()
    holder.communicate()
    with lock(tmp_path):
        pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EIO])
def test_a_file_system_without_locks_is_one_line_and_leaves_nothing(tmp_path, monkeypatch, number):
    def refuse(file, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(InputError) as refused, lock(tmp_path / "run"):
        pass
    assert "cannot lock files" in str(refused.value)
    assert os.strerror(number) in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
    assert not (tmp_path / "run").exists()
