"""Training ends early at the success rate it was asked for."""

import math
import signal
from dataclasses import replace

import numpy as np
import pytest
from tiny_runs import FRAMES_PER_ITERATION, TINY, tiny_run, typed, values

from ella.errors import InputError
from ella.report.runs import read_runs
from ella.reproduction.local_launcher import run_progress
from ella.runs.log_sinks import AbstractLogSink
from ella.runs.metrics import lines_of
from ella.runs.policies import load_policy
from ella.runs.run_result import Outcome
from ella.runs.training_run import train_runs
from ella.training import presets
from ella.training.goal import LINES, Goal, horizon_iterations
from ella.training.settings import LogSettings
from ella.training.train import train_settings
from ella.world.tasks import find

LOG = LogSettings(
    every=16 * FRAMES_PER_ITERATION, checkpoint_every=FRAMES_PER_ITERATION, tensorboard=False
)
ITERATIONS = 10 * 16


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run to the end, the success rate all its seeds have at some three lines in a row, and the
    last of those lines."""
    planned = tiny_run(tmp_path_factory.mktemp("goal") / "run", iterations=ITERATIONS, log=LOG)
    train_runs([planned])
    lowest = np.array([min(line["success_rate"]) for line in lines_of(planned.directory)])
    before = horizon_iterations(planned.spec, TINY.ppo.rollout_length) // 16
    lowest[:before] = 0
    in_a_row = np.array([lowest[i - LINES : i].min() for i in range(LINES, len(lowest))])
    success = float(np.nanmax(in_a_row))
    return planned, success, LINES + int(np.flatnonzero(in_a_row >= success)[0])


def test_lines_count_in_a_row_and_of_every_seed():
    goal = Goal(0.9)
    high, low = {"success_rate": [0.9, 1.0]}, {"success_rate": [1.0, 0.89]}
    for line in (high, high, low, high, high):
        goal.count(line, 1)
        assert not goal.is_reached
    goal.count({"success_rate": [1.0, math.nan]}, 1)
    assert goal.in_a_row == 0
    for _ in range(LINES):
        goal.count(high, 1)
    assert goal.is_reached


def test_lines_count_after_the_first_horizon_and_cover_one():
    task = find("unlock-maze")
    assert task.horizons == (128,)
    wide = presets.find("wide", "ppo")
    assert wide.ppo.rollout_length == 40
    often = replace(wide, until=0.9, log=replace(wide.log, every=wide.ppo.frames_per_iteration))
    goal = Goal.of(task, often)
    for iteration in range(1, 8):
        assert not goal.is_reached
        goal.count({"success_rate": [1.0]}, iteration)
    assert goal.is_reached
    assert goal.in_a_row * 40 >= 128
    seldom = replace(often, log=replace(wide.log, every=5 * wide.ppo.frames_per_iteration))
    assert Goal.of(task, seldom).lines == LINES


def test_no_goal_is_never_reached():
    goal = Goal(None)
    for _ in range(9):
        goal.count({"success_rate": [1.0]}, 9)
    assert not goal.is_reached


class StopsAt(AbstractLogSink):
    """Asks the run to stop after an iteration, as Ctrl-C does."""

    def __init__(self, iteration: int) -> None:
        self.iteration = iteration

    def write(self, line):
        if line.iteration == self.iteration:
            signal.raise_signal(signal.SIGINT)

    def close(self):
        pass


@pytest.mark.thorough
def test_a_run_ends_at_its_goal_also_when_interrupted_on_its_way(whole, tmp_path, caplog):
    before, success, lines = whole
    assert success > 0
    assert lines < 10
    planned = replace(
        before, directory=tmp_path / "run", settings=replace(before.settings, until=success)
    )
    (result,) = train_runs([planned], sinks=lambda _: [StopsAt((lines - 1) * 16)])
    assert result.outcome == Outcome.INTERRUPTED
    assert not run_progress(planned).finished
    (result,) = train_runs([planned], resume=True)
    assert (result.outcome, result.iteration) == (Outcome.FINISHED, lines * 16)
    rows = values(before.directory)
    for name, column in values(planned.directory).items():
        np.testing.assert_array_equal(column, rows[name][: 2 * lines], err_msg=name)
    policy = planned.directory / "policies" / "seed-1.safetensors"
    assert load_policy(policy).frames == result.frames
    assert run_progress(planned).finished
    assert not run_progress(replace(planned, settings=before.settings)).finished
    _, warnings = read_runs([planned.directory])
    assert not [text for text in warnings if "not finished" in text]

    caplog.clear()
    (again,) = train_runs([planned], resume=True)
    assert (again.outcome, again.iteration) == (Outcome.FINISHED, lines * 16)
    assert "compiling" not in caplog.text


@pytest.mark.thorough
def test_training_as_a_function_ends_at_its_goal(whole):
    before, success, lines = whole
    result = train_settings(find("goto-small"), replace(before.settings, until=success))
    assert len(result.frames) == lines


@pytest.mark.parametrize("until", [0.0, 1.5, -1.0])
def test_what_is_no_success_rate_is_refused(until):
    with pytest.raises(InputError, match="success rate"):
        replace(TINY, until=until)


def test_the_command_line_takes_it(tmp_path, capsys):
    assert typed("train", "goto-small", "--until", 90, "--out", tmp_path / "run") == 2
    assert "until is a success rate in (0, 1], got 90" in capsys.readouterr().err
