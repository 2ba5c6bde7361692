"""Places and numbers a new user gets wrong: one line, and nothing trained first."""

import pytest

from ella.cli import main


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["show", "runs/nowhere"], "runs/nowhere is not the directory of a run"),
        (["show", "gota-room"], "unknown task 'gota-room', and there is no run directory of that "),
        (["studio", "xyzzy", "--no-browser"], "'xyzzy', and there is no run directory of that name; "),
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
