"""Code blocks of the README and of docs, executed with smaller numbers."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SMALLER = {
    "ella.ELLA(bonus=0.25), seeds=4, frames=15_000_000": "TINY_ELLA, seeds=2, **TINY",
    "ella.ELLA(), frames=15_000_000": "TINY_ELLA, **TINY",
    "episodes=1000": "episodes=8",
    'preset="small", frames=100_000': "**TINY",
    'preset="small", frames=20_000': "**TINY",
    "jax.random.key(0), 8)": "jax.random.key(0), 2)",
}
"""Numbers that take minutes on a GPU, and what the tests put in their place."""
TINY = """
import dataclasses, ella
from tiny_runs import TINY as _tiny
_classifier = ella.ELLA().termination
_classifier = dataclasses.replace(
    _classifier, episodes=64, validation_episodes=64, batch=32, max_steps=20, evaluate_every=10,
    network=dataclasses.replace(_classifier.network, width=8, instruction_width=8, head_width=8),
)
_relevance = ella.ELLA().relevance
_relevance = dataclasses.replace(
    _relevance, network=dataclasses.replace(_relevance.network, hidden_size=16, output_size=8)
)
TINY_ELLA = ella.ELLA(bonus=0.25, termination=_classifier, relevance=_relevance)
TINY = {"frames": 2 * 32, "ppo": _tiny.ppo, "log_every": 1}
"""


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)


def smaller(code: str) -> str:
    for large, small in SMALLER.items():
        code = code.replace(large, small)
    assert "_000" not in code, "a number too large for a test"
    return code


PAGES = [
    (page, index) for page in ("README.md", "docs/methods.md") for index in range(len(blocks(page)))
]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "index"), PAGES, ids=lambda part: str(part))
def test_code_blocks_run_as_written(page, index, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ELLA_CACHE", str(ROOT / ".cache" / "ella"))
    (tmp_path / "policies").mkdir()
    names: dict = {}
    exec(TINY, names)
    exec(smaller(blocks(page)[index]), names)


def test_every_large_number_is_still_in_the_pages():
    text = "".join("".join(blocks(page)) for page in ("README.md", "docs/methods.md"))
    assert all(large in text for large in SMALLER)
