"""A run's directory: held by one process, and telling the truth about how the run was made."""

import json

import pytest

from ella.errors import InputError
from ella.runs.config_file import CONFIG_FILE
from ella.runs.directory import CIRCUMSTANCES_FILE, claimed
from ella.training.settings import TrainingSettings
from ella.world.tasks import find


def claim(directory, *command: str, resume: bool = True):
    return claimed(
        directory, find("goto-small"), TrainingSettings(), resume=resume, command=command
    )


def circumstances(directory) -> dict:
    return json.loads((directory / CIRCUMSTANCES_FILE).read_text())


def test_who_is_refused_changes_nothing_of_a_run_that_is_being_trained(tmp_path):
    run = tmp_path / "run"
    with claim(run, "first"):
        files = {path.name: path.read_bytes() for path in run.iterdir()}
        for resume in (True, False):
            with pytest.raises(InputError), claim(run, "second", resume=resume):
                pass
        assert {path.name: path.read_bytes() for path in run.iterdir()} == files
    with claim(run, "third"):
        pass
    assert circumstances(run)["command"] == ["first"]


def test_every_time_a_run_went_on_is_told(tmp_path):
    run = tmp_path / "run"
    for word in ("begin", "go on", "end"):
        with claim(run, word):
            pass
    told = circumstances(run)
    assert told["command"] == ["begin"]
    assert [part["command"] for part in told["resumed"]] == [["go on"], ["end"]]
    assert told["resumed"][1].keys() == told.keys() - {"resumed"}


@pytest.mark.parametrize("error", [InputError("no"), OSError(28, "No space left on device")])
def test_a_new_run_that_is_refused_leaves_nothing_and_an_older_one_everything(tmp_path, error):
    def fail(run):
        with claim(run, "word"):
            assert (run / CONFIG_FILE).exists()
            raise error

    with pytest.raises(type(error)):
        fail(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with claim(tmp_path / "old", "word"):
        pass
    with pytest.raises(type(error)):
        fail(tmp_path / "old")
    assert (tmp_path / "old" / CONFIG_FILE).exists()


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    for resume in (True, False):
        with pytest.raises(InputError), claim(tmp_path, resume=resume):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
