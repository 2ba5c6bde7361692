"""How runs are called and grouped in a report: methods, and the settings in which runs differ."""

import dataclasses
import json

from ella.ppo.settings import PPOSettings
from ella.report.page import render
from ella.report.palette import colours, ordered
from ella.report.summary import summarise
from ella.settings_table import to_json


def test_different_settings_are_not_mixed(write_run, tmp_path):
    for bonus in (0.25, 0.5):
        write_run(tmp_path / str(bonus), method="ella", ella={"bonus": bonus})
    labels = summarise([tmp_path], baseline="ella").labels
    assert labels == ["ELLA, bonus=0.25", "ELLA, bonus=0.5"]


def test_labels_name_what_changes_the_speed_alone_only_where_nothing_else_differs(
    write_run, tmp_path
):
    slow, quick = (to_json(dataclasses.replace(PPOSettings(), unroll=count)) for count in (1, 2))
    write_run(tmp_path / "a", method="ella", ppo=slow, ella={"bonus": 1.0})
    write_run(tmp_path / "b", method="ella", ppo=quick, ella={"bonus": 2.0})
    assert summarise([tmp_path], baseline="ella").labels == ["ELLA, bonus=1.0", "ELLA, bonus=2.0"]
    write_run(tmp_path / "c", method="ella", ppo=quick, ella={"bonus": 1.0})
    assert summarise([tmp_path], baseline="ella").labels == [
        "ELLA, bonus=1.0, unroll=1",
        "ELLA, bonus=1.0, unroll=2",
        "ELLA, bonus=2.0, unroll=2",
    ]


def test_labels_name_settings_so_that_they_cannot_be_confused(write_run, tmp_path):
    for width in (32, 64):
        write_run(
            tmp_path / str(width),
            method="ella",
            ppo={"network": {"width": width}, "discount": width / 100},
            ella={"termination": {"network": {"width": 2 * width}}},
        )
    first, _ = summarise([tmp_path], baseline="ella").labels
    assert first == "ELLA, termination.network.width=64, discount=0.32, ppo.network.width=32"


def test_a_run_is_called_as_one_of_the_same_settings_on_another_task(write_run, tmp_path):
    bonuses = {"putnext-room": [0.3], "unlock-maze": [0.3, 0.5], "combo-maze": [1.0]}
    for task, of_task in bonuses.items():
        for bonus in of_task:
            run = tmp_path / f"{task}-{bonus}"
            write_run(run, task=task, method="ella", ella={"bonus": bonus})
    summary = summarise([tmp_path], baseline="ella")
    assert {task: [group.label for group in summary.of_task(task)] for task in bonuses} == {
        "putnext-room": ["ELLA, bonus=0.3"],
        "unlock-maze": ["ELLA, bonus=0.3", "ELLA, bonus=0.5"],
        "combo-maze": ["ELLA"],
    }


def test_the_default_bonus_is_one_setting_beside_a_task_with_another_bonus(write_run, tmp_path):
    tasks = ("unlock-maze", "putnext-room", "openpick-maze")  # Defaults of 0.25, 0.25 and 0.5.
    for task in tasks:
        write_run(tmp_path / task, task=task, method="ella", ella={"bonus": None})
    write_run(tmp_path / "larger", task="unlock-maze", method="ella", ella={"bonus": 0.5})
    summary = summarise([tmp_path], baseline="ella")
    assert {task: [group.label for group in summary.of_task(task)] for task in tasks} == {
        "unlock-maze": ["ELLA, bonus=0.25", "ELLA, bonus=0.5"],
        "putnext-room": ["ELLA"],
        "openpick-maze": ["ELLA"],
    }


def test_the_bonus_that_a_task_has_by_default_is_told(write_run, tmp_path):
    for task in ("unlock-maze", "openpick-maze"):
        for bonus in (0.1, None, 5.0):
            options = {"bonus": bonus}
            write_run(tmp_path / task / str(bonus), task=task, method="ella", ella=options)
    summary = summarise([tmp_path], baseline="ella")
    found = {
        task: [group.label for group in summary.of_task(task)]
        for task in ("unlock-maze", "openpick-maze")
    }
    assert found == {
        "unlock-maze": ["ELLA, bonus=0.1", "ELLA, bonus=0.25", "ELLA, bonus=5.0"],
        "openpick-maze": ["ELLA, bonus=0.1", "ELLA, bonus=0.5", "ELLA, bonus=5.0"],
    }


def test_the_papers_bonuses_are_one_setting(write_run, tmp_path):
    for task in ("unlock-maze", "openpick-maze"):
        write_run(tmp_path / task, task=task, method="ella")
    assert summarise([tmp_path], baseline="ella").warnings == ()
    config = json.loads((tmp_path / "unlock-maze" / "config.json").read_text())
    config["ella"]["bonus"] = 2.0
    (tmp_path / "unlock-maze" / "config.json").write_text(json.dumps(config))
    (warning,) = summarise([tmp_path], baseline="ella").warnings
    assert warning == "ELLA has other settings on other tasks: ella.bonus"


def test_variants_of_the_baseline_are_told(write_run, tmp_path):
    for rate in (1e-4, 7e-4):
        folder = tmp_path / "unlock-maze" / str(rate)
        write_run(folder, task="unlock-maze", ppo={"learning_rate": rate})
    write_run(tmp_path / "unlock-maze" / "ella", task="unlock-maze", method="ella")
    slow, fast = "PPO, learning_rate=0.0001", "PPO, learning_rate=0.0007"
    summary = summarise([tmp_path])
    assert summary.baseline == slow
    assert (
        f"several variants of the baseline 'PPO': compared with '{slow}'; --baseline chooses "
        "another"
    ) in summary.warnings
    assert summarise([tmp_path], baseline=fast).warnings == ()
    # With another task, where there is no choice, no variant is called like the baseline.
    write_run(tmp_path / "goto-room", ppo={"learning_rate": 3e-4})
    summary = summarise([tmp_path])
    assert summary.baseline == "PPO"
    assert not any(any(s.ratios) for s in summary.results if s.group.task == "unlock-maze")
    assert (
        "unlock-maze: nothing is compared with 'PPO', which it does not have; --baseline can name "
        f"'{slow}', '{fast}'"
    ) in summary.warnings


def test_variants_are_in_the_order_of_their_numbers():
    labels = ["ELLA, bonus=10.0", "mine", "ELLA, bonus=2.0", "ELLA", "PPO", "ELLA, bonus=0.25"]
    expected = ["PPO", "ELLA", "ELLA, bonus=0.25", "ELLA, bonus=2.0", "ELLA, bonus=10.0", "mine"]
    assert ordered(labels) == expected
    assert len(set(colours(expected).values())) == len(expected)


def test_methods_are_shown_by_their_labels(write_run, tmp_path):
    for method in ("ppo", "ella", "ella-oracle", "ella+ride"):
        write_run(tmp_path / method, method=method)
    absent = write_run(tmp_path / "absent", seed=3)
    config = json.loads((absent / "config.json").read_text())
    (absent / "config.json").write_text(json.dumps({**config, "method": "not-installed"}))
    summary = summarise([tmp_path])
    assert summary.labels == ["PPO", "ELLA", "ELLA oracle", "ELLA + RIDE", "not-installed"]
    # The baseline can be named either way.
    for name in ("ella-oracle", "ELLA oracle"):
        assert summarise([tmp_path], baseline=name).baseline == "ELLA oracle"
    page = render(summary)
    assert "<h3>Against PPO</h3>" in page
    assert "goto-room, ELLA + RIDE (ella+ride)" in page


def test_a_sum_is_one_method_whichever_way_round_it_was_written(write_run, tmp_path):
    write_run(tmp_path / "one", method="ella+ride")
    other = write_run(tmp_path / "other", method="ella+ride", seed=3)
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "method": "ride+ella"}))
    (group,) = summarise([tmp_path]).groups
    assert group.label == "ELLA + RIDE"
    assert len(group.seeds) == 6


def test_options_of_other_methods_do_not_matter(write_run, tmp_path):
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", seed=3, learn={"coefficient": 7.0})
    (group,) = summarise([tmp_path]).groups
    assert len(group.ends) == 6


def test_other_settings_on_another_task_are_told(write_run, tmp_path):
    write_run(tmp_path / "a")
    # What changes the speed alone is none of them.
    ppo = to_json(dataclasses.replace(PPOSettings(), discount=0.5, unroll=1))
    write_run(tmp_path / "b", task="pick-maze", ppo=ppo)
    (warning,) = summarise([tmp_path]).warnings
    assert warning == "PPO has other settings on other tasks: ppo.discount"
