"""What `--help` shows of every command, and `help(ella.train)` of presets."""

import re

import pytest

import ella
from ella.cli import COMMANDS, main
from ella.training.presets import PRESETS


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_percent_signs_as_they_are_written(command, capsys):
    assert main([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: ella {command}")
    assert "%%" not in text


@pytest.mark.parametrize("command", ["train", "bench", None])
def test_help_names_every_preset_and_no_other(command, capsys):
    if command is None:
        text = ella.train.__doc__
    else:
        assert main([command, "--help"]) == 0
        text = capsys.readouterr().out
    text = " ".join(text.split()).replace("- ", "-")
    text = re.search(r"Where settings start from: (.*?)\.", text)[1]
    named = [re.match(r"[\w-]+", part)[0] for part in re.sub(r"\(.*?\)", "", text).split(", ")]
    assert named == list(PRESETS)
