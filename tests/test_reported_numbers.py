"""Tables of README, docs and results say what the committed result files hold."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from ella.intervals import Interval, mean_rate
from ella.report.summary import GroupResult, summarise

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
PAGE = ROOT / "docs" / "reproduction.md"
MEASURED = RESULTS / "README.md"

TASKS = (
    "putnext-room", "putnext-maze", "unlock-maze", "openpick-maze", "combo-maze", "sequence-maze",
)  # fmt: skip
METHODS = ("ppo", "learn", "ella", "ella-solvent")
ALONE = {
    "PutNext-Room": ["main-finished"] * 3 + ["repeats"],
    "PutNext-Maze": ["main-8-seeds", "main-finished", "main-8-seeds", "main-8-seeds"],
    "Unlock-Maze": ["main-finished"] * 3 + ["main-8-seeds"],
    "Open&Pick-Maze": ["main-finished"] * 4,
    "Combo-Maze": ["main-finished"] * 3 + ["main-8-seeds"],
    "Sequence-Maze": ["main-finished"] * 3 + ["main-8-seeds"],
}
"""Where the evaluations behind each row are: folders, or files."""
IN_MINIGRID = {
    "PutNext-Room": "repeats/putnext-room-{}",
    "PutNext-Room, a classifier for each agent": "own-classifiers/putnext-room-{}-own-classifier*",
    "PutNext-Maze": "main-8-seeds/putnext-maze-{}",
    "Unlock-Maze": "main-finished/unlock-maze-{}",
    "Open&Pick-Maze": "main-finished/openpick-maze-{}",
    "Combo-Maze": "main-finished/combo-maze-{}",
    "Sequence-Maze": "main-finished/sequence-maze-{}",
    "PutNext-Room, the paper's cells, an older run": "evaluation/putnext-room-{}",
    "PutNext-Maze, the paper's cells": "cells/putnext-maze-{}-raw-cells",
    "Unlock-Maze, the paper's cells": "cells/unlock-maze-{}-raw-cells",
    "Open&Pick-Maze, the paper's cells": "cells/openpick-maze-{}-raw-cells",
    "Combo-Maze, the paper's cells": "cells/combo-maze-{}-raw-cells",
    "Sequence-Maze, the paper's cells, made again": "repeats/sequence-maze-{}-raw-cells",
}
"""Runs behind each row, of several with * one agent each."""


def table(page: Path, heading: str) -> list[list[str]]:
    """Cells of the first table after a heading, without marks of emphasis and its first two
    lines."""
    lines = page.read_text().split(f"{heading}\n", 1)[1].splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().replace("**", "") for cell in line.strip("|").split("|")])
    return rows


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"[\d.]+", text)]


def signed(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", text)]


def with_half_width(interval: Interval) -> str:
    half = (interval.high - interval.low) / 2
    return f"{100 * interval.value:.1f} ± {100 * half:.1f} %"


@pytest.mark.parametrize("task", TASKS)
def test_areas_are_those_of_the_runs(task):
    (row,) = [
        row for row in table(PAGE, "### Areas under the curves") if row[0].startswith(f"`{task}`,")
    ]
    *stated, behind = row[1:]
    usual = re.findall("`(.+?)`", behind)[0]
    others = dict(re.findall("(ELLA|solvent) `(.+?)`", behind))
    folders = (usual, usual, others.get("ELLA", usual), others.get("solvent", usual))
    runs = [
        path
        for folder, method in zip(folders, METHODS, strict=True)
        for ending in ("", "-own-classifier*")
        for path in (RESULTS / folder).glob(f"{task}-{method}{ending}")
    ]
    found = {
        result.group.runs[0].method: with_half_width(result.area)
        for result in summarise(runs, baseline="ppo").results
    }
    for cell, method in zip(stated, METHODS, strict=True):
        assert numbers(cell) == numbers(found.get(method, "")), method


def alone(place: str, task: str, method: str) -> str:
    path = RESULTS / place
    if path.is_dir():
        path = path / f"{task.lower().replace('&', '')}-{method}" / "evaluation.json"
    evaluation = json.loads(path.read_text())
    rates = {
        mode: mean_rate(
            np.array([round(r["success"]["value"] * evaluation["episodes"]) for r in played]),
            np.full(len(played), evaluation["episodes"]),
        )
        for mode in ("sampled", "greedy")
        if (played := [r for r in evaluation["results"] if r["mode"] == mode])
    }
    return f"{with_half_width(rates['sampled'])} ({100 * rates['greedy'].value:.1f})"


@pytest.mark.parametrize("task", ALONE)
def test_policies_alone_do_what_their_evaluations_say(task):
    rows = [row for row in table(PAGE, "## Final policies alone") if row[0].startswith(f"{task},")]
    (row,) = rows
    for stated, place, method in zip(row[1:], ALONE[task], METHODS, strict=True):
        if place:
            assert stated == alone(place, task, method)
        else:
            assert not numbers(stated)


def test_eight_agents_with_a_classifier_each_are_what_the_page_says():
    (result,) = summarise([RESULTS / "own-classifiers"], baseline="ella").results
    area, policies, *_ = table(PAGE, "### A classifier for each agent")
    assert area[2] == with_half_width(result.area)
    greedy = 100 * result.alone["ella", "greedy"].value
    assert policies[2] == f"{with_half_width(result.alone['ella', 'sampled'])} ({greedy:.1f})"


def test_differences_told_of_these_agents_are_in_a_file():
    text = PAGE.read_text().split("### A classifier for each agent", 1)[1].split("\n## ", 1)[0]
    rows = rows_of(
        "verdicts.json",
        *(f"{name}/differences.json" for name in ("main-finished", "own-classifiers", "repeats")),
    )
    known = {
        percent(row[measure][kind])
        for row in rows
        for measure in ("area", "success", "alone_sampled")
        for kind in ("difference", "paired")
        if kind in row.get(measure, {})
    }
    stated = DIFFERENCE.findall(" ".join(text.split()))
    assert len(stated) >= 30
    assert [cell for cell in stated if cell not in known] == []


def in_minigrid_and_here(run: str, mode: str) -> str:
    kept = (
        f"{run}/evaluation-minigrid.json",
        f"evaluation/{run.replace('/', '-')}-minigrid.json",
        f"{run}-minigrid.json",
    )
    paths = next((found for name in kept if (found := sorted(RESULTS.glob(name)))), None)
    if paths is None:
        return ""
    here_paths = sorted(RESULTS.glob(f"{run}/evaluation.json")) or [RESULTS / f"{run}.json"]
    there, here = (
        [
            one
            for file in files
            for one in json.loads(file.read_text())["results"]
            if one["mode"] == mode
        ]
        for files in (paths, here_paths)
    )
    seeds = {one["seed"] for one in there}
    rates = [
        100 * np.mean([one["success"]["value"] for one in played if one["seed"] in seeds])
        for played in (there, here)
    ]
    return f"{rates[0]:.1f} % ({rates[1]:.1f})"


@pytest.mark.parametrize("task", IN_MINIGRID)
def test_policies_in_minigrid_do_what_their_evaluations_say(task):
    rows = table(PAGE, "policies of the table above:")
    place = next(index for index, row in enumerate(rows) if row[0] == task)
    for mode, row in zip(("sampled", "greedy"), rows[place : place + 2], strict=True):
        found = [
            in_minigrid_and_here(IN_MINIGRID[task].format(name), mode) for name in ("ella", "ppo")
        ]
        assert row[2:] == [mode, *found]


def test_the_readme_shows_the_means_of_the_page():
    means = {
        re.findall("`(.+)`", row[0])[0]: [re.sub(" ±.*", " %", row[i]) for i in (1, 3, 4)]
        for row in table(PAGE, "### Areas under the curves")
        if "episodes" not in row[0]
    }
    shown = {row[0].strip("`"): row[1:4] for row in table(ROOT / "README.md", "## Measured")}
    assert shown == means


def finished(result: GroupResult) -> list[str]:
    """Cells of a row: area, difference to the baseline, success at the end, alone."""

    def told(interval: Interval) -> str:
        return " ".join(f"{100 * x:.1f}" for x in (interval.value, interval.low, interval.high))

    alone = [with_half_width(result.alone["ella", mode]) for mode in ("sampled", "greedy")]
    difference = told(result.difference.interval) if result.difference else ""
    return [told(result.area), difference, told(result.final), ", ".join(alone)]


def assert_cells(stated: list[str], result: GroupResult) -> None:
    for cell, found in zip(stated, finished(result), strict=True):
        assert signed(cell) == signed(found)


@pytest.mark.parametrize(
    "task", ["putnext-room", "unlock-maze", "openpick-maze", "combo-maze", "sequence-maze"]
)
def test_finished_runs_are_what_the_results_say(task):
    rows = {
        row[0].split(",")[0]: row[1:]
        for row in table(
            MEASURED, "each alone on 1,000 fresh levels, with sampled and with greedy actions:"
        )
        if f", {task}" in row[0]
    }
    runs = [RESULTS / "main-finished" / f"{task}-{method}" for method in METHODS[:3]]
    results = {one.group.label: one for one in summarise(runs, baseline="ppo").results}
    assert rows.keys() == results.keys()
    for label, stated in rows.items():
        assert_cells(stated, results[label])


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(("cells", "variant"), [("raw", "paper"), ("one-hot", "onehot")])
def test_runs_from_either_cells_are_what_the_results_say(task, cells, variant):
    rows = table(MEASURED, "## Cells")
    start = next(index for index, row in enumerate(rows) if row[0].startswith(f"{task},"))
    stated = {row[0].split(": ")[-1]: row[1:] for row in rows[start : start + 4]}
    one_hot = "main-8-seeds" if task == "putnext-maze" else "main-finished"
    runs = [
        *(RESULTS / "cells" / f"{task}-{method}-raw-cells" for method in ("ppo", "ella")),
        *(RESULTS / one_hot / f"{task}-{method}" for method in ("ppo", "ella")),
    ]
    summary = summarise(runs, baseline=f"PPO, variant={variant}")
    results = {one.group.label: one for one in summary.results}
    for method in ("PPO", "ELLA"):
        assert_cells(stated[f"{method}, {cells}"], results[f"{method}, variant={variant}"])


DIFFERENCE = re.compile(r"[-+]\d+\.\d \[[-+]\d+\.\d, [-+]\d+\.\d\]")


def percent(interval: dict[str, float]) -> str:
    value, low, high = (f"{100 * interval[name]:+.1f}" for name in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def rows_of(*files: str) -> list[dict]:
    return [row for file in files for row in json.loads((RESULTS / file).read_text())["rows"]]


def test_every_interval_of_a_claim_is_in_the_file_of_verdicts():
    """Of the tables with a column of claims, but for sizes of decompositions and the logarithms of
    relative gains, which are no shares of successes."""
    rows = rows_of("verdicts.json")
    beside = rows + rows_of("own-classifiers/differences.json")
    known = {percent(row[kind]["difference"]) for row in beside for kind in ("area", "success")}
    stated = []
    for text in PAGE.read_text().split("| claim | confirmed if |")[1:]:
        for line in text.split("\n\n")[0].splitlines()[2:]:
            if "decompositions" not in line and "log ratios" not in line:
                found = DIFFERENCE.findall(line)
                assert line.count("[") == len(found) + line.count("]("), line
                stated += found
    assert len(stated) >= len(rows)
    assert [cell for cell in stated if cell not in known] == []
    areas = {percent(row["area"]["difference"]) for row in rows}
    assert areas <= set(stated)


@pytest.mark.parametrize(
    "heading", ["## Stronger baselines", "- **Cells.**", "### A classifier for each agent"]
)
def test_differences_beside_the_claims_are_in_a_file(heading):
    rows = rows_of(
        "verdicts.json", "main-finished/differences.json", "own-classifiers/differences.json"
    )
    known = {percent(row["area"]["difference"]) for row in rows}
    lines = PAGE.read_text().split(heading, 1)[1].split("|---|", 1)[1].splitlines()[1:]
    length = next(index for index, line in enumerate(lines) if not line.strip().startswith("|"))
    stated = DIFFERENCE.findall("\n".join(lines[:length]))
    assert len(stated) >= 6
    assert [cell for cell in stated if cell not in known] == []


def test_differences_of_final_policies_are_those_of_the_verdicts():
    found = {}
    for row in rows_of("verdicts.json"):
        run, other = (Path(path).name for path in row["runs"])
        for mode in ("sampled", "greedy"):
            if f"alone_{mode}" in row:
                found[run, other, mode] = percent(row[f"alone_{mode}"]["difference"])
    task = ""
    for name, mode, *stated in table(PAGE, "frames, the differences in points are:"):
        task = name.lower().replace("&", "") or task
        for other, cell in zip(("ppo", "learn"), stated, strict=True):
            assert cell == found[f"{task}-ella", f"{task}-{other}", mode]


def test_the_spread_between_classifiers_is_the_committed_one():
    lines = PAGE.read_text().split("- **One termination classifier**", 1)[1].splitlines()
    rows = [line for line in lines if "results/classifiers/spread" in line]
    assert len(rows) == 5
    for line in rows:
        name, areas, deviation, p, rest, lead = (cell for cell in line.strip(" |").split(" | "))
        file = re.findall(r"spread[a-z-]*\.json", name)[0]
        found = json.loads((RESULTS / "classifiers" / file).read_text())
        assert f", {found['frames'] / 1e6:g} (" in name
        assert numbers(areas) == [round(100 * area, 1) for area in found["areas"].values()]
        of_classifiers = found["deviation_of_classifiers"].values()
        assert numbers(deviation) == [round(100 * value, 1) for value in of_classifiers]
        assert float(p) == float(f"{found['p']:.{len(p.split('.')[1])}f}")
        others = (found["deviation_of_seeds"], found["deviation_of_the_rest"])
        assert numbers(rest) == [round(100 * value, 1) for value in others]
        assert lead == percent(found["against"]["difference"])


def test_the_page_states_the_means_of_columns():
    text = " ".join(PAGE.read_text().split())
    few = float(re.findall(r"([\d.]+) % or fewer on the other tasks", text)[0])
    for row in rows_of("columns.json"):
        value, low, high = (100 * row["mean"][name] for name in ("value", "low", "high"))
        if row["column"] == "insolvent_successes" and value < few:
            continue
        if row["column"] == "relevance_accuracy" and low < high:
            assert f"{value:.1f} % [{low:.1f}, {high:.1f}]" in text, row
        else:
            assert re.search(rf"(?<![\d.])({value:.1f}|{value:.0f}) %", text), row


def test_holms_correction_leaves_as_many_verdicts_as_the_page_says():
    found = json.loads((RESULTS / "verdicts.json").read_text())
    differences = [row["area"]["difference"] for row in found["rows"]]
    apart = [one["low"] > 0 or one["high"] < 0 for one in differences]
    counts = (len(apart), sum(apart), sum(found["survive_holm"]["difference"]))
    text = " ".join(PAGE.read_text().split())
    said = "rest on {} differences of areas. The intervals of {} leave out 0, and {} still do"
    assert said.format(*counts) in text
