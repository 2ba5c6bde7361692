"""Every symbol that docs/paper-to-code.md names exists."""

import dataclasses
import re
from importlib import import_module
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "paper-to-code.md"
SYMBOLS = sorted(set(re.findall(r"`(ella(?:\.\w+)+)`", PAGE.read_text())))


def has(owner: object, name: str) -> bool:
    if hasattr(owner, name):
        return True
    return dataclasses.is_dataclass(owner) and name in {f.name for f in dataclasses.fields(owner)}


def test_the_page_names_symbols() -> None:
    assert len(SYMBOLS) > 40


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_symbol_exists(symbol: str) -> None:
    words = symbol.split(".")
    split = next(i for i, word in enumerate(words) if word[0].isupper() or i == len(words) - 1)
    owner: object = import_module(".".join(words[:split]))
    for name in words[split:]:
        assert has(owner, name), f"{symbol}: no {name}"
        owner = getattr(owner, name, owner)
