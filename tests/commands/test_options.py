"""Options from dataclasses: what is typed, what is refused, what help shows."""

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest

from ella.cli import main
from ella.commands.options import Positional, parse
from ella.errors import InputError


@dataclass(frozen=True)
class Inner:
    """Inner settings."""

    width: int = 8
    """Of the net."""
    rate: float = 1e-3
    """Of learning, in 100 % of the cases."""
    name: str | None = None
    """May be left open."""
    fast: bool = True
    """Whether to hurry."""
    sizes: tuple[int, int, int] = (1, 2, 3)
    """Three of them."""


@dataclass(frozen=True)
class Outer:
    """Outer settings."""

    seeds: int = 1
    """How many."""
    kind: Literal["red", "blue"] = "red"
    """A colour."""
    inner: Inner = field(default_factory=Inner)


@dataclass(frozen=True)
class Arguments:
    """Do things."""

    out: Path
    """A folder."""
    task: Annotated[str, Positional("TASK")]
    """A task."""
    others: tuple[str, ...] = ()
    """More tasks."""
    quick: bool = False
    """Whether to be quick."""


def read(*words: str):
    return parse(Arguments, words, prog="ella do", sections={"": Outer(), "own": Inner(width=99)})


def test_only_what_was_typed_is_reported():
    arguments, typed = read("here", "--out", "x")
    assert arguments == Arguments(Path("x"), "here")
    assert typed == {}
    words = (
        "--out x here --quick --others a b --seeds 1e3 --kind blue --inner.width 1_000 "
        "--inner.no-fast --inner.rate 2 --inner.sizes 4 5 6 --own.name none --own.fast"
    )
    arguments, typed = read(*words.split())
    assert arguments == Arguments(Path("x"), "here", ("a", "b"), quick=True)
    assert typed == {
        "seeds": 1000,
        "kind": "blue",
        "inner": {"width": 1000, "fast": False, "rate": 2.0, "sizes": [4, 5, 6]},
        "own": {"name": None, "fast": True},
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--out x", "TASK is missing"),
        ("here", "--out is missing"),
        (
            "here --out x --inner.widht 3",
            "unknown option --inner.widht; did you mean --inner.width",
        ),
        ("here --out x --inner.width 1.5", "--inner.width: '1.5' is not a whole number"),
        ("here --out x --inner.width inf", "--inner.width: 'inf' is not a whole number"),
        ("here --out x --seeds 1e400", "--seeds: '1e400' is not a whole number"),
        ("here --out x --inner.rate fast", "--inner.rate: 'fast' is not a number"),
        ("here --out x --kind green", "--kind: 'green' is not one of red, blue"),
        ("here there --out x", "unexpected argument 'there'"),
        ("here --out x --inner.sizes 1 2", "--inner.sizes: expected 3 arguments"),
        ("here --out x --seeds", "--seeds: expected one argument"),
    ],
)
def test_mistakes_are_one_line(words, message):
    with pytest.raises(InputError) as refused:
        read(*words.split())
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "see `ella do --help`" in str(refused.value)


def test_help_shows_docstrings_and_defaults(capsys):
    with pytest.raises(SystemExit) as ended:
        read("--help")
    assert ended.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "usage: ella do TASK [options]" in shown
    assert "--inner.rate X Of learning, in 100 % of the cases. [0.001]" in shown
    assert "--own.width N Of the net. [99]" in shown
    assert "--kind red|blue A colour. [red]" in shown


def test_help_starts_no_jax():
    script = (
        "import sys\nfrom ella.cli import COMMANDS, main\n"
        "for command in COMMANDS:\n"
        "    assert main([command, '--help']) == 0\n"
        "    assert 'jax' not in sys.modules, command"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for option in ("--ella.bonus", "--ppo.network.width", "--frames", "--noveld.channels"):
        assert option in done.stdout


def test_options_of_a_method_that_is_not_in_use_are_refused(tmp_path, capsys):
    words = ["train", "goto-small", "--out", str(tmp_path / "run"), "--ride.coefficient", "0.1"]
    assert main(words) == 2
    assert "--ride.coefficient is an option of method ride" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
