"""Places and numbers a new user gets wrong: one line, and nothing trained first."""

from pathlib import Path

import pytest

from ella.cli import main
from ella.errors import InputError, writing_to


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["show", "runs/nowhere"], "runs/nowhere is not the directory of a run"),
        (["studio", "xyzzy", "--no-browser"], "'xyzzy', and there is no run directory"),
        (["show", "."], "is not a run: it has no config.json"),
        (["eval", "."], "is not a run: it has no config.json"),
        (["demo", "--seeds", "0"], "seeds must be >= 1"),
    ],
)
def test_one_line_and_no_work(words, complaint, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    said = capsys.readouterr()
    assert complaint in said.err
    assert len(said.err.splitlines()) == 1
    assert not said.out
    assert not list(tmp_path.iterdir())


def test_a_video_that_cannot_be_written_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    assert main(["show", "goto-small", "--out", "file/x"]) == 2
    assert capsys.readouterr().err == "ella: cannot write to file/x: Not a directory\n"


def test_only_what_the_file_system_refuses_is_about_the_place(tmp_path):
    said = r"^cannot write to videos: No such file or directory$"
    with pytest.raises(InputError, match=said), writing_to(Path("videos")):
        (tmp_path / "missing" / "file").write_text("")
    with pytest.raises(OSError, match=r"^encoder error$"), writing_to(Path("videos")):
        raise OSError("encoder error")
