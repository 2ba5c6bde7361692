"""`ella reproduce`: the tables of runs, what is done, and a small figure from start to end."""

import json
import re
import shutil
from pathlib import Path

import pytest
from begun_runs import begin

from ella.cli import main
from ella.methods.ella_solvent import PUBLISHED
from ella.reproduction.figures import (
    FIGURES,
    HIGH_LEVEL,
    PARTS,
    SCALES,
    figure_names,
    planned_runs,
)
from ella.reproduction.local_launcher import groups_of
from ella.runs.identity import identity
from ella.runs.training_run import can_train_together
from ella.settings_table import flat, to_json


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("ELLA_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("scale", SCALES)
def test_every_figure_is_a_table_of_runs_with_directories_of_their_own(scale, tmp_path):
    everything = planned_runs("all", scale, tmp_path)
    assert len({run.directory for run in everything}) == len(everything)
    for figure in figure_names("all"):
        assert {run.directory for run in planned_runs(figure, scale, tmp_path)} <= {
            run.directory for run in everything
        }
    main_runs = planned_runs("main", scale, tmp_path)
    assert [(run.spec.name, run.settings.method.name) for run in main_runs] == [
        (task, method) for task in HIGH_LEVEL for method in ("ppo", "learn", "ella", "ella-solvent")
    ]


def test_rows_change_what_their_figure_is_about(tmp_path):
    plain, *shaped = planned_runs("lambda", "paper", tmp_path)
    assert plain.settings.method.name == "ppo"
    assert [run.settings.method.bonus for run in shaped] == [0.015, 0.05, None, 1.0, 5.0]
    budgets = {
        run.settings.method.termination.episodes
        for run in planned_runs("termination-budget", "paper", tmp_path)
        if run.settings.method.name == "ella"
    }
    assert budgets == {15_000, 2000, 500, 100}
    onehot, raw, *_ = planned_runs("cells", "short", tmp_path)
    before, after = (flat(to_json(run.resolved().settings)) for run in (onehot, raw))
    assert {name for name in before if before[name] != after[name]} == {"ppo.network.variant"}
    assert raw.settings.ppo.network.variant == "paper"


def test_agents_with_classifiers_of_their_own_are_one_experiment_and_one_program(tmp_path):
    runs = planned_runs("classifiers", "short", tmp_path, only_runs=["*own*"])
    seeds = [run.resolved().settings.seed_numbers for run in runs]
    assert seeds == [(seed,) for seed in range(8)]
    assert all(can_train_together(runs[0], run) for run in runs)
    one, *others = (identity(run.spec, run.settings) for run in runs)
    for other in others:
        assert {name for name in one if one[name] != other[name]} == {"seed"}


def test_the_page_states_the_size_of_the_whole_list(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "reproduction.md").read_text()
    stated = re.search(
        r"All (\d+) runs of `ella reproduce all --scale short`.{,50}? ([\d.]+) billion frames",
        " ".join(page.split()),
    )
    assert stated
    runs = planned_runs("all", "short", tmp_path)
    frames = sum(run.settings.frames * run.settings.seeds for run in runs)
    assert (int(stated[1]), float(stated[2])) == (len(runs), round(frames / 1e9, 1))


@pytest.mark.parametrize(
    ("figure", "task", "directions", "episodes"),
    [
        ("ablation", "unlock-maze", 2, 15_000),
        ("ablation", "openpick-maze", 2, 15_000),
        ("ablation-budget", "openpick-maze", 1, 500),
    ],
)
def test_an_ablation_switches_one_part_on_or_off(tmp_path, figure, task, directions, episodes):
    ella, *runs, solvent = planned_runs(figure, "short", tmp_path, only_tasks=[task])
    assert len(runs) == directions * len(PARTS)
    assert {run.settings.method.termination.episodes for run in (ella, *runs, solvent)} == {
        episodes
    }
    none, every = (flat(to_json(run.resolved().settings.method)) for run in (ella, solvent))
    assert none.keys() == every.keys()
    parts = [
        {name for name in flat(dict(table)) if none[name] != every[name]}
        for table in (*PUBLISHED.values(), {"bonus": None})
    ]
    assert all(parts)
    differing = {name for name in none if none[name] != every[name]}
    # What the bound is computed from follows from the labels.
    assert set.union(*parts) == differing - {"max_completions"}
    for run, part in zip(runs, parts * directions, strict=True):
        found = flat(to_json(run.resolved().settings.method))
        only = "only" in run.directory.name
        expected = {name: every[name] if (name in part) == only else none[name] for name in none}
        del found["max_completions"], expected["max_completions"]
        assert found == expected, run.directory.name


def test_figures_without_ppo_compare_with_ella():
    with_ella = {name for name, figure in FIGURES.items() if figure.baseline == "ella"}
    assert with_ella == {"relevance", "classifiers", "trainers", "ablation", "ablation-budget"}
    assert {figure.baseline for figure in FIGURES.values()} == {"ella", None}


def test_runs_of_one_task_share_a_program(tmp_path):
    groups = groups_of(planned_runs("main", "short", tmp_path), most_seeds=32)
    assert [{run.spec.name for run in group} for group in groups] == [{task} for task in HIGH_LEVEL]


def test_the_list_tells_frames_and_time_at_the_measured_rate(tmp_path, capsys):
    begun = planned_runs("termination-budget", "paper", tmp_path / "paper")[0]
    begin(begun, 500_000.0)
    words = [
        "reproduce",
        "termination-budget",
        "--scale",
        "paper",
        "--out",
        str(tmp_path),
        "--json",
    ]
    assert main(words) == 0
    listed = json.loads(capsys.readouterr().out)
    assert len(listed["runs"]) == 7
    frames = sum(run["frames"] * run["seeds"] for run in listed["runs"])
    assert listed["seconds"] == pytest.approx(frames / 500_000, rel=1e-3)
    assert main([*words[:-1], "--list"]) == 0
    listed = capsys.readouterr().out
    assert "about 70 min on this device" in listed
    assert f"paper scale: {SCALES['paper'].description}" in listed


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["mian"], "unknown figure 'mian'"),
        ([], "name a figure"),
        (["main", "--scale", "huge"], "unknown scale 'huge'"),
        (["main", "--tasks", "goto-room"], "unknown task of the paper's figures 'goto-room'"),
        (["relevance", "--methods", "ride"], "has no run of ride"),
        (["main", "--together", "0"], "--together must be >= 1"),
        (["main", "--launcher", "ray", "--ray-cpus=-1"], "--ray-cpus must be >= 0"),
        (["main", "--launcher", "ray", "--ray-gpus", "nan"], "--ray-gpus must be >= 0"),
        (["main", "--launcher", "ray", "--ray-address", "127.0.0.1:1"], "no Ray cluster at 127.0."),
    ],
)
def test_a_wrong_word_is_one_line(words, complaint, tmp_path, capsys):
    assert main(["reproduce", *words, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.nightly
def test_a_figure_is_trained_drawn_and_not_trained_again(tmp_path: Path, capsys):
    words = [
        *("reproduce", "ride", "--scale", "smoke", "--out", str(tmp_path / "out")),
        *("--tasks", "unlock-maze", "--methods", "ppo"),
    ]
    assert main(words) == 0
    said = capsys.readouterr()
    assert "program 1 of 1: unlock-maze-ppo" in said.err
    page = tmp_path / "out" / "smoke" / "figures" / "ride" / "index.html"
    assert "unlock-maze-ppo" in page.read_text()
    metrics = tmp_path / "out" / "smoke" / "unlock-maze-ppo" / "metrics.csv"
    trained = metrics.read_text()
    assert list((metrics.parent / "artefacts").glob("*.gif"))
    assert "playing 16 fresh levels" in said.err
    assert "alone on fresh levels" in page.read_text()

    # As if another command had trained another of the figure's runs.
    other = metrics.parent.with_name("unlock-maze-ride")
    shutil.copytree(metrics.parent, other)
    config = (other / "config.json").read_text()
    (other / "config.json").write_text(config.replace('"method": "ppo"', '"method": "ride"'))
    assert main(words) == 0
    said = capsys.readouterr().err
    assert "1 of 1 runs are done already" in said
    assert "recording" not in said
    assert "playing" not in said
    assert "unlock-maze-ride" in page.read_text()
    assert metrics.read_text() == trained
    assert main([*words, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [run["done"] for run in listed["runs"]] == [1.0]
    assert listed["seconds"] == 0
