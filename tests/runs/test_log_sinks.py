"""Event files, read back by TensorBoard itself, and what a terminal shows."""

import math

import numpy as np
from pseudo_terminal import pseudo_terminal
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from ella.methods.ella import ELLA
from ella.methods.ppo import PPO
from ella.methods.ride import RIDE
from ella.runs.log_sinks import TensorBoardLog, display
from ella.runs.metrics import LogLine

STEPS = (0, 127, 128, 300_000_000, 2**40)
VALUES = (0.1, -1e-30, math.inf, 1e39, 3.0)
"""1e39 is beyond float32."""


def test_tensorboard_reads_tags_steps_and_values(tmp_path):
    log = TensorBoardLog(tmp_path, [4, 5])
    for step, value in zip(STEPS, VALUES, strict=True):
        values = {"success_rate": np.array([value, 7.0]), "größe/loss": np.array([math.nan, value])}
        log.write(LogLine(1, step, 1.5, 50.0, values))
    log.close()
    expected = [np.float32(value) for value in (0.1, -1e-30, math.inf, math.inf, 3.0)]
    for seed, tag in ((4, "success_rate"), (5, "größe/loss")):
        events = EventAccumulator(str(tmp_path / "tensorboard" / f"seed-{seed}"))
        events.Reload()
        assert [event.step for event in events.Scalars(tag)] == list(STEPS)
        assert [event.value for event in events.Scalars(tag)] == expected
        assert {event.value for event in events.Scalars("frames_per_second")} == {50.0}
    # What was not measured is left out.
    events = EventAccumulator(str(tmp_path / "tensorboard" / "seed-4"))
    events.Reload()
    assert "größe/loss" not in events.Tags()["scalars"]


def test_tensorboard_checks_every_record_and_finds_them_whole(tmp_path):
    log = TensorBoardLog(tmp_path, [0])
    values = {f"measurement {index}": np.array([index / 7]) for index in range(100)}
    log.write(LogLine(1, 10, 1.5, 50.0, values))
    log.close()
    (path,) = tmp_path.rglob("events.out.tfevents.*")
    version, scalars = EventFileLoader(str(path)).Load()
    assert version.file_version == "brain.Event:2"
    assert len(scalars.summary.value) == 101
    assert scalars.step == 10
    content = bytearray(path.read_bytes())
    content[-10] ^= 1
    path.write_bytes(content)
    assert len(list(EventFileLoader(str(path)).Load())) == 1


ELLA_LINE = LogLine(
    2, 640, 1.5, 50.0,
    {
        "success_rate": np.array([0.25, 0.75]),
        "bonus_per_episode": np.array([0.5, 1.5]),
        "decomposition_size": np.array([3.0, 4.0]),
        "relevance_precision": np.array([0.5, 0.7]),
    },
)  # fmt: skip


def test_lines_show_what_the_method_measures(capsys):
    for method in (ELLA(), ELLA() + RIDE()):
        display(1280, method).write(ELLA_LINE)
        (line,) = capsys.readouterr().out.splitlines()
        for part in (
            *("success 50.0%", "bonus per episode 1.000", "precision of relevance 60.0%"),
            "low-level instructions per instruction 3.50",
        ):
            assert part in line
        # Not measured.
        assert "recall" not in line
    display(1280, PPO()).write(ELLA_LINE)
    assert "relevance" not in capsys.readouterr().out


def test_the_bar_of_a_resumed_run_starts_where_it_stopped(monkeypatch):
    with pseudo_terminal() as terminal:
        monkeypatch.setattr("sys.stdout", terminal.screen)
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.setenv("TERM", "xterm")
        live = display(1280, ELLA())
        live.start(640)
        live.close()
        shown = terminal.text()
        live = display(1280, ELLA())
        live.write(ELLA_LINE)
        live.close()
        later = terminal.text()
    assert "640/1,280 frames a seed" in shown
    assert "precision of relevance 60.0%" in later
