"""Run folders in every state: what is said about them, and what is still used."""

import dataclasses
import json

import numpy as np
import pytest

from ella.errors import InputError
from ella.experiment.config import EllaOptions, LearnOptions, Settings
from ella.report.page import render
from ella.report.palette import colours, ordered
from ella.report.runs import read_runs
from ella.report.summary import summarise


def test_a_whole_run_is_read_without_remarks(write_run, tmp_path):
    runs, remarks = read_runs([write_run(tmp_path / "a", method="ella")])
    assert remarks == []
    (run,) = runs
    assert (run.task, run.method, list(run.series)) == ("goto-room", "ella", [0, 1, 2])
    assert run.command == "ella train goto-room --method ella"
    series = run.series[0]
    assert series.frames[-1] == 1_000_000
    # 4 episodes an iteration, 10 iterations a line, 20 lines.
    np.testing.assert_allclose(series.values["episodes"][[0, -1]], [40, 800])
    assert series.values["seconds"][-1] == 30


def test_runs_are_found_below_a_folder_once(write_run, tmp_path):
    write_run(tmp_path / "main" / "goto" / "ppo")
    write_run(tmp_path / "main" / "goto" / "ella", method="ella")
    (tmp_path / "main" / "notes").mkdir()
    (tmp_path / "main" / "notes" / "readme.txt").write_text("no run")
    runs, remarks = read_runs([tmp_path, tmp_path / "main"])
    assert sorted(run.method for run in runs) == ["ella", "ppo"]
    assert remarks == []


@pytest.mark.parametrize(
    ("damage", "remark"),
    [
        (lambda run: (run / "config.json").write_text('{"task": '), "config.json is damaged"),
        (lambda run: (run / "config.json").write_text("[1]"), "config.json is damaged"),
        (lambda run: (run / "config.json").write_text("{}"), "config.json names no task"),
        (lambda run: (run / "config.json").unlink(), "config.json cannot be read"),
        (lambda run: (run / "metrics.csv").unlink(), "metrics.csv cannot be read"),
        (lambda run: (run / "metrics.csv").write_text(""), "metrics.csv has no measurements"),
        (
            lambda run: (run / "metrics.csv").write_bytes(b"\xff\xfe\x00\n"),
            "metrics.csv is damaged",
        ),
        (lambda run: [file.unlink() for file in run.iterdir()], "the folder is empty"),
    ],
)
def test_a_damaged_run_is_left_out_and_the_rest_drawn(write_run, tmp_path, damage, remark):
    write_run(tmp_path / "good")
    damage(write_run(tmp_path / "bad", seed=10))
    summary = summarise([tmp_path])
    assert [run.path.name for run in summary.runs] == ["good"]
    (found,) = summary.remarks
    assert found.startswith(str(tmp_path / "bad"))
    assert remark in found


def test_nothing_to_draw_is_one_line(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"nothing to report on: .*empty: left out: the folder is"):
        summarise([tmp_path / "empty"])
    with pytest.raises(InputError, match="missing: does not exist"):
        summarise([tmp_path / "missing"])


def edit_lines(run, change):
    lines = (run / "metrics.csv").read_text().splitlines(keepends=True)
    (run / "metrics.csv").write_text("".join(change(lines)))


def test_damaged_lines_are_counted_and_a_cut_line_is_dropped(write_run, tmp_path):
    run = write_run(tmp_path / "a", seeds=1)
    edit_lines(run, lambda x: [*x[:2], "garbage\n", "0,x,y\n", *x[2:-1], x[-1][:20]])
    (read,), remarks = read_runs([run])
    assert len(read.series[0].frames) == 19
    assert any("2 damaged line(s)" in remark for remark in remarks)
    assert any("not finished: 0.95 of 1 million frames" in remark for remark in remarks)


def test_absurd_numbers_do_not_stop_a_report(write_run, tmp_path):
    write_run(tmp_path / "a", seeds=1)
    other = write_run(tmp_path / "b", seeds=1, method="ella")
    edit_lines(other, lambda x: [*x[:-1], "0,300,1e20,1,1,1e308,4,-1e200,inf\n"])
    summary = summarise([tmp_path])
    assert [group.label for group in summary.groups] == ["ppo", "ella"]
    assert all(np.isfinite(standing.area.value) for standing in summary.standings)
    assert "<table>" in render(summary)


def test_missing_and_short_seeds_are_told(write_run, tmp_path):
    run = write_run(tmp_path / "a")
    edit_lines(
        run,
        lambda lines: [x for i, x in enumerate(lines) if x[0] != "1" and (x[0] != "2" or i < 30)],
    )
    (read,), remarks = read_runs([run])
    assert list(read.series) == [0, 2]
    assert any("no measurements of seed(s) 1 of 3" in remark for remark in remarks)
    assert any("seed(s) 2 end before the others" in remark for remark in remarks)
    summary = summarise([run])
    assert summary.budget("goto-room") == read.series[2].frames[-1]


def test_mixed_versions_are_told_and_drawn(write_run, tmp_path):
    write_run(tmp_path / "a")
    other = write_run(tmp_path / "b", method="ella", versions={"ella": "0.2.0", "jax": "0.10.2"})
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "format_version": 9}))
    summary = summarise([tmp_path])
    assert len(summary.groups) == 2
    assert any("format version 9" in remark for remark in summary.remarks)
    assert any("mix versions of ella: 0.1.0 (1 run), 0.2.0" in x for x in summary.remarks)


def test_a_run_without_its_circumstances_is_drawn(write_run, tmp_path):
    run = write_run(tmp_path / "a")
    (run / "run.json").unlink()
    summary = summarise([run])
    assert summary.runs[0].command == ""
    assert "its command and versions are unknown" in summary.remarks[0]


def test_seeds_of_one_experiment_are_joined_but_never_counted_twice(write_run, tmp_path):
    write_run(tmp_path / "a", seeds=2)
    write_run(tmp_path / "b", seeds=2, seed=1)
    summary = summarise([tmp_path])
    (group,) = summary.groups
    assert (group.label, len(group.ends)) == ("ppo", 3)
    assert any("seed(s) 1 are in" in remark for remark in summary.remarks)


def test_different_settings_are_not_mixed(write_run, tmp_path):
    for bonus in (0.25, 0.5):
        write_run(tmp_path / str(bonus), method="ella", ella=EllaOptions(bonus=bonus))
    labels = summarise([tmp_path], baseline="ella").labels
    assert labels == ["ella, bonus=0.25", "ella, bonus=0.5"]


def test_variants_are_in_the_order_of_their_numbers():
    labels = ["ella, bonus=10.0", "mine", "ella, bonus=2.0", "ella", "ppo", "ella, bonus=0.25"]
    expected = ["ppo", "ella", "ella, bonus=0.25", "ella, bonus=2.0", "ella, bonus=10.0", "mine"]
    assert ordered(labels) == expected
    assert len(set(colours(expected).values())) == len(expected)


def test_options_of_other_methods_do_not_matter(write_run, tmp_path):
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", seed=3, learn=LearnOptions(coefficient=7.0))
    (group,) = summarise([tmp_path]).groups
    assert len(group.ends) == 6


def test_other_settings_on_another_task_are_told(write_run, tmp_path):
    write_run(tmp_path / "a")
    ppo = dataclasses.replace(Settings().ppo, discount=0.5)
    write_run(tmp_path / "b", task="pick-maze", ppo=ppo)
    (remark,) = summarise([tmp_path]).remarks
    assert remark == "ppo has other settings on other tasks: ppo.discount"


def test_numbers_of_straight_lines(write_run, tmp_path):
    # A line that reaches full success after half the frames has area 3/4.
    write_run(tmp_path / "ppo", until=1.0, seeds=1)
    write_run(tmp_path / "ella", until=0.5, seeds=1, method="ella")
    summary = summarise([tmp_path])
    slow, fast = summary.standings
    assert (slow.group.label, fast.group.label) == ("ppo", "ella")
    assert fast.final.value == pytest.approx(1)
    assert slow.area.value == pytest.approx(0.5, abs=0.01)
    assert fast.area.value == pytest.approx(0.75, abs=0.01)
    assert [float(frames[0]) for frames in slow.reached] == [250_000, 500_000, 900_000]
    ratios = [ratio.estimate.value for ratio in fast.ratios if ratio]
    assert ratios == pytest.approx([250 / 150, 2, 2])
    assert summary.comparisons[0].better_area.value == 1


def test_long_runs_are_averaged_into_windows_of_whole_lines(write_run, tmp_path):
    (group,) = summarise([write_run(tmp_path / "a", lines=500, seeds=1, until=1.0)]).groups
    assert len(group.frames) == 167
    assert group.frames[0] == 6000
    # The first window has the lines of 2,000, 4,000 and 6,000 frames.
    assert group.success[0, 0] == pytest.approx(0.004)
    assert group.frames[-1] == 1_000_000
    assert group.clocks["seconds"][-1] == pytest.approx(30)
