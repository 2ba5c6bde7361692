"""What `--help` shows of every command."""

import pytest

from ella.cli import COMMANDS, main


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_percent_signs_as_they_are_written(command, capsys):
    assert main([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: ella {command}")
    assert "%%" not in text
