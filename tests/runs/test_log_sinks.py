"""Event files, read back by TensorBoard itself."""

import math

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from ella.runs.log_sinks import TensorBoardLog
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
