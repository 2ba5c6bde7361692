"""What commands write where the locale knows only ASCII."""

import io
import os

import pytest

from ella.cli import main
from ella.commands.plain_output import ERRORS, write_what_can_be_shown
from ella.commands.play import HELP
from ella.world.render import AGENT_GLYPHS, GLYPHS


@pytest.fixture
def output(monkeypatch):
    """Makes standard output one of an encoding, and returns the bytes that reach it."""

    def use(encoding: str, errors: str) -> io.BytesIO:
        received = io.BytesIO()
        stream = io.TextIOWrapper(received, encoding, errors, write_through=True)
        monkeypatch.setattr("sys.stdout", stream)
        return received

    return use


def test_a_table_is_shown(output):
    received = output("ascii", "surrogateescape")
    assert main(["tasks"]) == 0
    assert any(
        b"goto-room " in line and b" - " in line for line in received.getvalue().splitlines()
    )


@pytest.mark.parametrize(
    "text", [*GLYPHS.values(), *AGENT_GLYPHS, *HELP, "━╌"], ids=lambda text: text.strip()
)
def test_every_glyph_of_a_terminal_has_a_substitute_as_wide(text):
    write_what_can_be_shown()
    shown = text.encode("ascii", ERRORS)
    assert len(shown) == len(text)
    assert b"?" not in shown


@pytest.mark.parametrize(
    ("encoding", "errors", "shown"),
    [("ascii", "surrogateescape", b"run-\xff ? *\n"), ("latin-1", "strict", b"run-\xff ? *\n")],
)
def test_names_of_files_and_unknown_characters_are_no_error(output, encoding, errors, shown):
    received = output(encoding, errors)
    write_what_can_be_shown()
    print(os.fsdecode(b"run-\xff"), "λ", "●")  # noqa: T201
    assert received.getvalue() == shown


def test_unicode_is_left_alone(output):
    received = output("utf-8", "surrogateescape")
    write_what_can_be_shown()
    print(os.fsdecode(b"run-\xff"), "λ", "●")  # noqa: T201
    assert received.getvalue() == b"run-\xff " + "λ ●\n".encode()
