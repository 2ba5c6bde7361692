"""Code blocks of the README and of docs, executed with smaller numbers."""

import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from ella.cli import _MODULES
from ella.commands.options import parse
from ella.world import tasks

ROOT = Path(__file__).resolve().parent.parent
SMALLER = {
    "ella.ELLA(bonus=0.25), seeds=4, frames=15_000_000": "TINY_ELLA, seeds=2, **TINY",
    "ella.ELLA(), frames=15_000_000": "TINY_ELLA, **TINY",
    "episodes=1000": "episodes=8",
    '(agent, "sequence-maze")': '(agent, "sequence-maze", levels=96, steps=48)',
    "policy, episodes=64": "policy, episodes=4",
    'preset="small", frames=100_000': "**TINY",
    'preset="small", frames=20_000': "seeds=2, **TINY",
    "jax.random.key(0), 8)": "jax.random.key(0), 2)",
    "steps = 400_000": "steps = 2048",
    "num_envs, steps = 64, 500_000": "num_envs, steps = 4, 256",
    "num_envs, steps = 16, 500_000": "num_envs, steps = 4, 256",
    "batch_size=512": "batch_size=64",
    "num_episodes, training_steps = 300, 1000": "num_episodes, training_steps = 20, 20",
}
"""Numbers that take minutes on a GPU, and what the tests put in their place."""
TINY = """
import dataclasses, ella
from tiny_runs import TINY as _tiny
_classifier = ella.ELLA().termination
_classifier = dataclasses.replace(
    _classifier, episodes=64, validation_episodes=64, batch=32, max_steps=20, evaluate_every=10,
    network=dataclasses.replace(
        _classifier.network, width=8, instruction_width=8, head_width=8, blocks=1
    ),
)
_relevance = ella.ELLA().relevance
_relevance = dataclasses.replace(
    _relevance, network=dataclasses.replace(_relevance.network, hidden_size=16, output_size=8)
)
TINY_ELLA = ella.ELLA(bonus=0.25, termination=_classifier, relevance=_relevance)
TINY = {"frames": 2 * 32, "ppo": _tiny.ppo, "log_every": 1}
"""


PREPARED = {
    "docs/offline.md": """
import numpy as np
images, texts, labels = [np.zeros((7, 7, 3))] * 2, ["go to the red ball"] * 2, [0, 1]
"""
}
"""What a page leaves to its reader."""
INDEPENDENT = {"README.md": pytest.mark.thorough, "docs/methods.md": pytest.mark.nightly}
"""Pages whose blocks each stand alone, and the mark of those that train; on other pages a block may
use names of those before it."""
LONG = (
    "docs/agents.md",
    "docs/gymnasium.md",
    "docs/own-environment.md",
    "docs/tutorial.md",
    "docs/wide.md",
)
"""Pages that compile and train in most blocks."""
LONG_BLOCK = re.compile(r"ella\.train\(|training_function\(")
"""Blocks of independent pages that train; `tests/training` calls the same functions."""
ALL_PAGES = ("README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)


def smaller(code: str) -> str:
    for large, small in SMALLER.items():
        code = code.replace(large, small)
    assert "_000" not in code, "a number too large for a test"
    return code


def run(codes: list[str], page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Execute blocks one after the other, in a folder of their own."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("ELLA_CACHE", str(ROOT / ".cache" / "ella"))
    monkeypatch.setattr(tasks, "TASKS", dict(tasks.TASKS))
    (folder / "policies").mkdir()
    names: dict = {}
    shrunk = [smaller(code) for code in codes]
    exec(TINY if any("TINY" in code for code in shrunk) else PREPARED.get(page, ""), names)
    for code in shrunk:
        exec(code, names)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "index"),
    [
        pytest.param(page, index, marks=mark if LONG_BLOCK.search(block) else ())
        for page, mark in INDEPENDENT.items()
        for index, block in enumerate(blocks(page))
    ],
)
def test_code_blocks_run_as_written(page, index, tmp_path, monkeypatch):
    run([blocks(page)[index]], page, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.nightly if page in LONG else ())
        for page in ALL_PAGES
        if page not in INDEPENDENT and blocks(page)
    ],
)
def test_pages_run_from_top_to_bottom(page, tmp_path, monkeypatch):
    run(blocks(page), page, tmp_path, monkeypatch)


def test_every_large_number_is_still_in_the_pages():
    text = "".join("".join(blocks(page)) for page in ALL_PAGES)
    assert [large for large in SMALLER if large not in text] == []


def commands(page: str) -> list[list[str]]:
    """The words after `ella` of every command line in the page's fenced blocks."""
    text = (ROOT / page).read_text()
    found = re.findall(r"^```(\w*)\n(.*?)^```", text, re.M | re.S)
    fenced = [block for language, block in found if language in ("", "bash", "sh", "console")]
    lines = "\n".join(fenced).replace("\\\n", " ").splitlines()
    typed = [shlex.split(line, comments=True) for line in lines if re.match(r"\S*ella ", line)]
    return [words[1:] for words in typed]


@pytest.mark.parametrize("page", [page for page in ALL_PAGES if commands(page)])
def test_commands_of_the_pages_have_the_options_they_are_given(page):
    for name, *words in commands(page):
        module = import_module(f"ella.commands.{_MODULES.get(name, name)}")
        sections = module.sections() if hasattr(module, "sections") else {}
        parse(module.Arguments, words, prog=f"ella {name}", sections=sections)
