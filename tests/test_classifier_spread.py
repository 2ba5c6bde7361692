"""`benchmarks/classifier_spread.py`: what part classifiers have in the spread between runs."""

import json
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "benchmarks"))
classifier_spread = import_module("classifier_spread")


def areas_of(deviation, of_seeds, draws=400, classifiers=4, seeds=8):
    """float[draws, classifiers, seeds]; the rest has a standard deviation of 1."""
    random = np.random.default_rng(0)
    areas = deviation * random.normal(size=(draws, classifiers, 1))
    areas = areas + of_seeds * random.normal(size=(draws, 1, seeds))
    return areas + random.normal(size=(draws, classifiers, seeds))


@pytest.mark.parametrize("of_seeds", [0.0, 2.0])
@pytest.mark.parametrize("deviation", [0.0, 0.5, 3.0])
def test_the_interval_of_the_classifiers_deviation_covers_it(deviation, of_seeds):
    areas = areas_of(deviation, of_seeds)
    found = [classifier_spread.spread(area) for area in areas]
    intervals = [one["deviation_of_classifiers"] for one in found]
    covered = [one["low"] <= deviation <= one["high"] for one in intervals]
    assert 0.92 < np.mean(covered) < 0.995
    assert np.mean([one["deviation_of_the_rest"] for one in found]) == pytest.approx(1, abs=0.03)
    seeds = np.mean([one["deviation_of_seeds"] ** 2 for one in found]) ** 0.5
    assert seeds == pytest.approx(of_seeds, abs=0.25)
    assert np.mean([one["p"] < 0.05 for one in found]) == pytest.approx(
        {0.0: 0.05, 0.5: 0.415, 3.0: 0.989}[deviation], abs=0.05
    )


@pytest.mark.parametrize("classifiers", [3, 9])
@pytest.mark.parametrize(("deviation", "of_seeds"), [(0, 0), (0.5, 1), (3, 0), (0, 3), (1, 1)])
def test_the_interval_of_the_lead_covers_it(deviation, of_seeds, classifiers):
    random = np.random.default_rng(1)
    areas = 5 + areas_of(deviation, of_seeds, 1000, classifiers)
    leads = [classifier_spread.lead(one, random.normal(size=8)) for one in areas]
    assert np.mean([one.low <= 5 <= one.high for one in leads]) > 0.93


def test_seeds_that_are_no_others_are_told_from_classifiers():
    # Two classifiers 0.1 apart, with which every seed does as well as with the other.
    areas = np.array([[0.1, 0.5, 0.9], [0.2, 0.6, 1.0]])
    areas = areas + 1e-3 * np.array([[1, -1, 0], [0, 1, -1]])
    found = classifier_spread.spread(areas)
    assert found["deviation_of_classifiers"]["value"] == pytest.approx(0.1 / 2**0.5, rel=0.02)
    assert found["deviation_of_seeds"] == pytest.approx(0.4, rel=0.01)
    assert found["p"] < 1e-3 < 0.5 < found["p_without_seeds"]


@pytest.mark.parametrize(
    "name",
    [
        "spread",
        "spread-openpick-maze",
        "spread-putnext-room",
        "spread-putnext-room-three-sets",
        "spread-unlock-maze",
    ],
)
def test_the_classifiers_spread_is_the_committed_one(name, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    committed = json.loads(Path(f"results/classifiers/{name}.json").read_text())
    words = committed.pop("command").split()[1:]
    out = tmp_path / "found.json"
    monkeypatch.setattr("sys.argv", [*words[:-1], str(out)])
    classifier_spread.main()
    found = json.loads(out.read_text())
    assert {name: found[name] for name in committed} == committed


def test_a_run_given_twice_is_no_second_classifier(monkeypatch):
    run = str(ROOT / "results/main-finished/unlock-maze-ella")
    monkeypatch.setattr("sys.argv", ["classifier_spread.py", run, run, "--frames", "10e6"])
    with pytest.raises(SystemExit, match="each run must be given once"):
        classifier_spread.main()
