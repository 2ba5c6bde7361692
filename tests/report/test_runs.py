"""Run folders in every state: what is said about them, and what is still used."""

import json
from dataclasses import dataclass

import numpy as np
import pytest

from ella.errors import InputError
from ella.methods import registry
from ella.methods.method import Column, Panels
from ella.methods.ppo import PPO
from ella.report import runs as run_reading
from ella.report.groups import area
from ella.report.page import render
from ella.report.runs import read_runs
from ella.report.summary import summarise


def test_a_whole_run_is_read_without_warnings(write_run, tmp_path):
    runs, warnings = read_runs([write_run(tmp_path / "a", method="ella")])
    assert warnings == []
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
    runs, warnings = read_runs([tmp_path, tmp_path / "main"])
    assert sorted(run.method for run in runs) == ["ella", "ppo"]
    assert warnings == []


@pytest.mark.parametrize(
    ("damage", "warning"),
    [
        (lambda run: (run / "config.json").write_text('{"task": '), "config.json is not JSON"),
        (lambda run: (run / "config.json").write_text("[1]"), "config.json does not hold a"),
        (lambda run: (run / "config.json").write_text("{}"), "config.json names no task"),
        (lambda run: (run / "config.json").unlink(), "cannot read"),
        (
            lambda run: (run / "config.json").write_text('{"format_version": 2}'),
            "config.json has format version 2, this version of ella reads 3; read it with",
        ),
        (lambda run: (run / "metrics.csv").unlink(), "metrics.csv cannot be read"),
        (lambda run: (run / "metrics.csv").write_text(""), "metrics.csv has no measurements"),
        (
            lambda run: (run / "metrics.csv").write_bytes(b"\xff\xfe\x00\n"),
            "metrics.csv is damaged",
        ),
        (lambda run: [file.unlink() for file in run.iterdir()], "the folder is empty"),
    ],
)
def test_a_damaged_run_is_left_out_and_the_rest_drawn(write_run, tmp_path, damage, warning):
    write_run(tmp_path / "good")
    damage(write_run(tmp_path / "bad", seed=10))
    summary = summarise([tmp_path])
    assert [run.path.name for run in summary.runs] == ["good"]
    (found,) = summary.warnings
    assert found.startswith(str(tmp_path / "bad"))
    assert warning in found


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
    (read,), warnings = read_runs([run])
    assert len(read.series[0].frames) == 19
    assert any("2 damaged line(s)" in warning for warning in warnings)
    assert any("not finished: 0.95 of 1 million frames" in warning for warning in warnings)


def test_absurd_numbers_do_not_stop_a_report(write_run, tmp_path):
    write_run(tmp_path / "a", seeds=1)
    other = write_run(tmp_path / "b", seeds=1, method="ella")
    edit_lines(other, lambda x: [*x[:-1], "0,300,1e20,1,1,1e308,4,-1e200,inf\n"])
    summary = summarise([tmp_path])
    assert [group.label for group in summary.groups] == ["PPO", "ELLA"]
    assert all(np.isfinite(result.area.value) for result in summary.results)
    assert "<table>" in render(summary)


@pytest.mark.parametrize("column", ["seed", "iteration"])
def test_a_line_of_an_impossible_seed_or_iteration_is_damaged(write_run, tmp_path, column):
    run = write_run(tmp_path / "a", seeds=1)
    texts = ["9" * 40, "9" * 400, "9" * 5000, "4294967296", "-1", "1e300", "nan", "inf", "", "1.5"]
    seeds_and_iterations = [(x, "1") if column == "seed" else ("0", x) for x in texts]
    damaged = [f"{seed},{i},1000,1,1,4,0.5\n" for seed, i in seeds_and_iterations]
    edit_lines(run, lambda lines: [*lines, *damaged])
    summary = summarise([run])
    assert summary.warnings == (f"{run}: {len(texts)} damaged line(s) of metrics.csv left out",)
    assert summary.groups[0].seeds == (0,)
    assert summary.groups[0].frames[0] == 50_000
    assert "<table>" in render(summary)


@pytest.mark.parametrize("frames", [10**400, -1, "many"], ids=["huge", "negative", "text"])
def test_an_absurd_number_of_frames_does_not_stop_a_report(write_run, tmp_path, frames):
    run = write_run(tmp_path / "a")
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "frames": frames}))
    assert summarise([run]).warnings == ()


def test_a_run_that_stopped_early_is_drawn_but_not_compared(write_run, tmp_path):
    cut = write_run(tmp_path / "ppo")
    edit_lines(cut, lambda lines: lines[:4])
    write_run(tmp_path / "ella", method="ella")
    summary = summarise([tmp_path])
    assert summary.labels == ["PPO", "ELLA"]
    assert summary.budget("goto-room") == 1_000_000
    (result,) = summary.results
    assert (result.group.label, result.final.value) == ("ELLA", 1)
    assert list(summary.profiles) == ["ELLA"]
    assert summary.comparisons == []
    told = [warning for warning in summary.warnings if "not compared" in warning]
    assert told == [
        f"{cut}: drawn as far as it goes but not compared: it stopped at 0.05 of 1 million frames, "
        "while others of goto-room have 1"
    ]
    assert "<td>3</td>" in render(summary)


def test_the_first_frames_alone_can_be_compared(write_run, tmp_path):
    stopped = write_run(tmp_path / "ppo")
    edit_lines(stopped, lambda lines: lines[: 1 + 3 * 4])
    write_run(tmp_path / "ella", until=0.25, method="ella")
    late = write_run(tmp_path / "late", lines=2, method="rnd")
    summary = summarise([tmp_path], frames=210_000)
    assert summary.budget("goto-room") == 200_000
    ppo, ella = summary.results
    assert (ppo.group.label, ella.group.label) == ("PPO", "ELLA")
    assert max(ella.group.ends) == 200_000
    assert ella.difference.interval.value == pytest.approx(ella.area.value - ppo.area.value)
    assert summary.warnings == (
        f"{stopped}: not finished: 0.2 of 1 million frames",
        f"{late}: left out: no log line within the first 210000 frames",
    )


def test_too_few_frames_to_compare_are_one_line(write_run, tmp_path):
    line = "nothing to report on: no log line within the first 10000 frames of any run"
    with pytest.raises(InputError, match=f"^{line}$"):
        summarise([write_run(tmp_path / "a")], frames=1e4)


@pytest.mark.parametrize("frames", [0, -1.0, np.inf, np.nan])
def test_frames_to_compare_must_be_a_number_above_zero(write_run, tmp_path, frames):
    with pytest.raises(InputError, match="frames must be > 0"):
        summarise([write_run(tmp_path / "a")], frames=frames)


def has_goal(run, rate):
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "until": rate}))


def test_a_run_that_ended_at_its_goal_is_compared(write_run, tmp_path):
    """Its three seeds succeed always from the fifth of its seven log lines on."""
    early = write_run(tmp_path / "ella", until=0.2, method="ella")
    edit_lines(early, lambda lines: lines[:22])
    has_goal(early, 0.95)
    write_run(tmp_path / "ppo", until=0.8)
    summary = summarise([tmp_path])
    assert [result.group.label for result in summary.results] == ["PPO", "ELLA"]
    assert summary.budget("goto-room") == 350_000
    assert summary.results[1].difference.verdict == "better"
    assert summary.results[1].ratios[2].bound == ""
    assert summary.warnings == (
        f"goto-room: compared over the first 0.35 of 1 million frames, all that {early} has, which "
        "reached its goal (--until 0.95)",
    )


def test_a_run_that_stopped_before_its_goal_is_not_compared(write_run, tmp_path):
    early = write_run(tmp_path / "ella", until=0.2, method="ella")
    edit_lines(early, lambda lines: lines[:16])
    has_goal(early, 0.95)
    write_run(tmp_path / "ppo", until=0.8)
    assert [result.group.label for result in summarise([tmp_path]).results] == ["PPO"]


def test_seeds_of_a_run_that_stopped_early_do_not_count_with_others(write_run, tmp_path):
    write_run(tmp_path / "whole")
    edit_lines(write_run(tmp_path / "cut", seed=3), lambda lines: lines[:4])
    summary = summarise([tmp_path])
    assert len(summary.groups[0].ends) == 6
    assert summary.results[0].group.ends == (1_000_000,) * 3


def test_runs_that_all_go_on_are_compared_as_far_as_they_are(write_run, tmp_path):
    edit_lines(write_run(tmp_path / "a"), lambda lines: lines[:19])
    edit_lines(write_run(tmp_path / "b", method="ella"), lambda lines: lines[:25])
    summary = summarise([tmp_path])
    assert [result.group.label for result in summary.results] == ["PPO", "ELLA"]
    assert summary.budget("goto-room") == 300_000
    assert (
        f"goto-room: compared over the first 0.3 of 0.4 million frames, all that {tmp_path / 'a'} "
        "has"
    ) in summary.warnings


def test_a_run_that_was_asked_for_less_cuts_its_task_and_is_named(write_run, tmp_path):
    write_run(tmp_path / "a", frames=100_000)
    write_run(tmp_path / "b", method="ella")
    summary = summarise([tmp_path])
    assert len(summary.results) == 2
    assert summary.budget("goto-room") == 100_000
    (warning,) = summary.warnings
    assert warning.endswith(f"first 0.1 of 1 million frames, all that {tmp_path / 'a'} has")


def test_missing_and_short_seeds_are_told(write_run, tmp_path):
    run = write_run(tmp_path / "a")
    edit_lines(
        run,
        lambda lines: [x for i, x in enumerate(lines) if x[0] != "1" and (x[0] != "2" or i < 30)],
    )
    (read,), warnings = read_runs([run])
    assert list(read.series) == [0, 2]
    assert any("no measurements of seed(s) 1 of 3" in warning for warning in warnings)
    assert any("seed(s) 2 end before the others" in warning for warning in warnings)
    summary = summarise([run])
    assert summary.budget("goto-room") == read.series[2].frames[-1]


def test_mixed_versions_are_told_and_drawn(write_run, tmp_path):
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", method="ella", versions={"ella": "0.2.0", "jax": "0.10.2"})
    summary = summarise([tmp_path])
    assert len(summary.groups) == 2
    assert any("mix versions of ella: 0.1.0 (1 run), 0.2.0" in x for x in summary.warnings)


def test_a_run_that_went_on_elsewhere_is_told(write_run, tmp_path):
    run = write_run(tmp_path / "a")
    table = json.loads((run / "run.json").read_text())
    elsewhere = {"device": "another device", "versions": {"ella": "0.3.0"}}
    (run / "run.json").write_text(json.dumps({**table, "resumed": [elsewhere, "damage"]}))
    warnings = summarise([run]).warnings
    assert any("mix versions of ella" in line and "0.3.0 (1 run)" in line for line in warnings)
    assert any("mix devices" in line and "another device" in line for line in warnings)


def test_a_run_without_its_provenance_is_drawn(write_run, tmp_path):
    run = write_run(tmp_path / "a")
    (run / "run.json").unlink()
    summary = summarise([run])
    assert summary.runs[0].command == ""
    assert "its command and versions are unknown" in summary.warnings[0]


def test_seeds_of_one_experiment_are_joined_but_never_counted_twice(write_run, tmp_path):
    write_run(tmp_path / "a", seeds=2)
    write_run(tmp_path / "b", seeds=2, seed=1)
    summary = summarise([tmp_path])
    (group,) = summary.groups
    assert (group.label, len(group.ends)) == ("PPO", 3)
    assert any("seed(s) 1 are in" in warning for warning in summary.warnings)


def test_repeated_seeds_are_told_with_the_folder_each_is_in(write_run, tmp_path):
    write_run(tmp_path / "f", seeds=1)
    write_run(tmp_path / "g", seeds=1, seed=1)
    write_run(tmp_path / "h")
    runs, warnings = read_runs([tmp_path])
    assert [list(run.series) for run in runs] == [[0], [1], [2]]
    assert warnings == [
        f"{tmp_path / 'h'}: seed(s) {seed} are in {tmp_path / owner} too; left out"
        for seed, owner in enumerate("fg")
    ]


def test_of_repeated_seeds_the_copy_with_more_frames_counts(write_run, tmp_path):
    aborted, whole = tmp_path / "a", tmp_path / "b"
    edit_lines(write_run(aborted, seeds=2), lambda lines: lines[:3])
    write_run(whole, seeds=1)
    edit_lines(write_run(tmp_path / "c", seeds=1), lambda lines: lines[:11])
    write_run(tmp_path / "d", seeds=1)
    runs, warnings = read_runs([tmp_path])
    ends = [(run.path, seed, s.frames[-1]) for run in runs for seed, s in run.series.items()]
    assert ends == [(aborted, 1, 50_000), (whole, 0, 1_000_000)]
    assert [warning for warning in warnings if "left out" in warning] == [
        f"{tmp_path / name}: seed(s) 0 are in {whole} too; left out" for name in "acd"
    ]


def test_settings_that_an_old_configuration_lacks_are_the_defaults(write_run, tmp_path):
    write_run(tmp_path / "new", method="ella")
    old = write_run(tmp_path / "old", method="ella", seed=3)
    config = json.loads((old / "config.json").read_text())
    del config["ella"]["last_state"], config["ppo"]["unroll"], config["task"]["max_steps"]
    (old / "config.json").write_text(json.dumps(config))
    (group,) = summarise([tmp_path], baseline="ella").groups
    assert (group.label, len(group.ends)) == ("ELLA", 6)


def test_configurations_are_flattened_once_per_reading(write_run, tmp_path, monkeypatch):
    count = 8
    for index in range(count):
        options = {"bonus": float(index)}
        write_run(tmp_path / str(index), lines=1, method="ella", ella=options)
    flattened = []
    flat = run_reading.flat

    def counted(table, prefix=""):
        flattened.extend([table] if not prefix else [])
        return flat(table, prefix)

    monkeypatch.setattr(run_reading, "flat", counted)
    assert len(summarise([tmp_path]).labels) == count
    # Each run, and the defaults.
    assert len(flattened) <= count + 1


def test_without_ppo_the_report_says_what_it_can_compare_with(write_run, tmp_path):
    for bonus in (0.25, 2.0):
        write_run(tmp_path / str(bonus), method="ella", ella={"bonus": bonus})
    write_run(tmp_path / "ride", method="ride")
    summary = summarise([tmp_path])
    assert summary.baseline is None
    said = "no run of PPO, so nothing is compared; --baseline can name 'ELLA', 'RIDE'"
    assert said in summary.warnings
    assert summarise([tmp_path], baseline="RIDE").baseline == "RIDE"


def test_numbers_of_straight_lines(write_run, tmp_path):
    # A line that reaches full success after half the frames has area 3/4.
    write_run(tmp_path / "ppo", until=1.0, seeds=1)
    write_run(tmp_path / "ella", until=0.5, seeds=1, method="ella")
    summary = summarise([tmp_path])
    slow, fast = summary.results
    assert (slow.group.label, fast.group.label) == ("PPO", "ELLA")
    assert fast.final.value == pytest.approx(1)
    assert slow.area.value == pytest.approx(0.5, abs=0.01)
    assert fast.area.value == pytest.approx(0.75, abs=0.01)
    assert [float(frames[0]) for frames in slow.reached] == [250_000, 500_000, 900_000]
    ratios = [ratio.interval.value for ratio in fast.ratios if ratio]
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


def test_numbers_are_of_log_lines_whatever_the_windows_of_the_drawing(write_run, tmp_path):
    run = write_run(tmp_path / "ppo", lines=20, seeds=2)
    alone = summarise([run]).results[0]
    # Beside a run of few lines a window of the task holds five of this one's.
    write_run(tmp_path / "ella", lines=4, seeds=2, method="ella")
    beside = summarise([tmp_path]).results[0]
    assert len(beside.group.frames) == 4 < len(alone.group.frames)
    assert (beside.area, beside.final) == (alone.area, alone.final)
    # Rising by a tenth a line until 1 at half of the frames; flat before the first line.
    first_seed = area(alone.group, 1_000_000)[0]
    assert first_seed == pytest.approx(0.05 * 0.1 + 0.45 * (0.1 + 1) / 2 + 0.5)


def test_the_report_draws_the_panels_of_a_method_that_was_registered_later(
    monkeypatch, write_run, tmp_path
):
    monkeypatch.setattr(registry, "_METHODS", registry.all_methods())

    @registry.register
    @dataclass(frozen=True)
    class Late(PPO):
        name = "late"
        label = "Late"
        order = 200
        panels = Panels("Lateness", "lateness", "How late.", (Column("lateness", "lateness"),))

    write_run(tmp_path / "late", method="late", measured=("lateness",))
    summary = summarise([tmp_path])
    (group,) = summary.groups
    assert set(group.measures) == {"success_rate", "lateness"}
    assert "How late." in render(summary)
