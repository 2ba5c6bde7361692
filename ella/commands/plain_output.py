"""Output for terminals and locales that know only ASCII."""

import codecs
import io
import sys

IN_ASCII = dict(zip("▏▕▐▌▓╤●▣►▼◄▲←→↑━╌—", "||[]#-*B>v<^<>^=--", strict=True)) | {"…": "..."}
"""What stands for characters of `ella play`, tables and progress bars where they cannot be shown.
Glyphs of one character keep the shape of a level."""
ERRORS = "ella.in_ascii"


def write_what_can_be_shown() -> None:
    """Let standard output and error substitute what their encoding lacks instead of failing."""
    codecs.register_error(ERRORS, _substitute)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not _is_unicode(stream.encoding):
            stream.reconfigure(errors=ERRORS)


def _is_unicode(encoding: str) -> bool:
    return codecs.lookup(encoding).name.startswith("utf")


def _substitute(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    found = b"".join(map(_substitute_of, error.object[error.start : error.end]))
    return found, error.end


def _substitute_of(character: str) -> bytes:
    if "\udc80" <= character <= "\udcff":  # a byte of a file's name, as it was read
        return bytes([ord(character) - 0xDC00])
    return IN_ASCII.get(character, "?").encode("ascii")
