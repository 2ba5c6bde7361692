"""The notebooks, executed cell by cell at their smallest scale."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ella.methods import registry
from ella.world import tasks

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))
MARKER = re.compile(r"^# %%(?: \[(markdown)\])?$", re.M)
SMALLEST = "smoke"


@dataclass(frozen=True)
class Cell:
    source: str
    line: int
    """Of its first line in the file, from 1."""
    is_markdown: bool


def cells(path: Path) -> list[Cell]:
    """The cells of a notebook in jupytext's percent format."""
    text = path.read_text()
    found = list(MARKER.finditer(text))
    ends = [*(one.start() for one in found[1:]), len(text)]
    return [
        Cell(text[one.end() + 1 : end], text.count("\n", 0, one.end()) + 2, bool(one.group(1)))
        for one, end in zip(found, ends, strict=True)
    ]


def executed(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names of a notebook after its last cell."""
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("agg")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("NOTEBOOK_SCALE", SMALLEST)
    path = ROOT / "notebooks" / f"{name}.py"
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        for cell in cells(path):
            if not cell.is_markdown:
                # Blank lines before it, so that a traceback names the line of the file.
                exec(compile("\n" * (cell.line - 1) + cell.source, path, "exec"), names)
        names["drawn"] = plt.get_fignums()
    finally:
        plt.close("all")
    return names


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_has_prose_and_code_in_turn(path):
    first, *rest = cells(path)
    assert path.read_text().startswith("# %% [markdown]\n# # ")
    for cell in (first, *rest):
        lines = cell.source.strip().splitlines()
        assert lines, f"empty cell at line {cell.line}"
        if cell.is_markdown:
            assert all(line.startswith("# ") or line == "#" for line in lines), cell.source
    code = "".join(cell.source for cell in rest if not cell.is_markdown)
    assert 'SCALE = os.environ.get("NOTEBOOK_SCALE"' in code


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_documentation_and_other_notebooks_link_to_files_that_exist(path):
    assert f"(../notebooks/{path.name})" in (ROOT / "docs" / "notebooks.md").read_text()
    prose = "".join(cell.source for cell in cells(path) if cell.is_markdown)
    for target in re.findall(r"\]\(([^)#:]+)\)", prose):
        assert (path.parent / target).exists(), target
    for target in re.findall(r"`((?:results|examples|docs|ella)/[\w./-]+)`", prose):
        assert (ROOT / target).exists(), target


@pytest.mark.slow
@pytest.mark.nightly
def test_train_and_watch(tmp_path, monkeypatch):
    names = executed("train_and_watch", tmp_path, monkeypatch)
    for result in names["results"].values():
        assert result.success_rate.shape == (len(result.frames), names["SEEDS"])
    assert names["video"].stat().st_size > 1000
    assert len(names["evaluated"].success) == 256
    # Everything is relevant at first, and smoke is too short to learn otherwise of every door.
    assert names["relevance"].shape == (6, len(names["low_level"]))
    assert names["relevance"].max() > 0.5
    assert "pick up the red key" in names["low_level"]
    assert len(names["drawn"]) == 4
    assert os.path.exists("runs/unlock-small-policy.safetensors")


@pytest.mark.nightly
def test_own_environment(tmp_path, monkeypatch):
    names = executed("own_environment", tmp_path, monkeypatch)
    for found in names["curves"].values():
        assert len(found.solved) > 10
        assert max(found.frames) <= names["FRAMES"]
    assert len(names["drawn"]) == 1
    ella = names["ella"]
    assert ella.updates >= 1
    assert ella.solved()
    for mission, common in ella.solved().items():
        verb, _, part = mission.split()
        tool = names["TOOLS"][verb]
        assert {f"take the {tool}", f"take the {part}", "go to the bench"} <= common


@pytest.mark.slow
@pytest.mark.nightly
def test_own_method(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "TASKS", dict(tasks.TASKS))
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))
    names = executed("own_method", tmp_path, monkeypatch)
    assert int((names["bonus"] > 0).sum()) == 1
    assert float(names["bonus"].max()) == names["shaper"].price
    assert len(names["drawn"]) == 3
    for label, result in names["results"].items():
        assert ("grasped" in result.metrics) == ("Grasp" in label)
        assert ("ride_bonus" in result.metrics) == ("RIDE" in label)
    assert (names["results"]["Grasp"].metrics["grasped"] > 0).all()


@pytest.mark.slow
@pytest.mark.nightly
def test_lambda_sweep(tmp_path, monkeypatch):
    names = executed("lambda_sweep", tmp_path, monkeypatch)
    shape = (len(names["LAMBDAS"]), names["SEEDS"])
    assert names["success"].shape[:2] == shape
    assert names["late"].shape == shape
    assert 0 < names["bound"] < 1
    paid = np.asarray(names["metrics"]["bonus_per_episode"])[..., -1]
    assert (paid[0] == 0).all(), "a lambda of 0 pays nothing"
    assert (paid[-1] > 0).all()
    assert len(names["drawn"]) == 1
