"""Runs that take seconds, for tests of what surrounds training.

They are all of one size, so that they share compiled programs through the cache.
"""

import fcntl
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ella.cli import main
from ella.networks.settings import NetworkSettings
from ella.ppo.settings import PPOSettings
from ella.runs.metrics import CLOCK_COLUMNS, read_rows
from ella.runs.planned_run import PlannedRun
from ella.training.settings import LogSettings, TrainingSettings, to_table
from ella.world.tasks import find

FRAMES_PER_ITERATION = 32
TINY = TrainingSettings(
    seeds=2,
    ppo=PPOSettings(
        network=NetworkSettings(
            variant="onehot", width=8, instruction_width=8, memory_width=8, head_width=8, blocks=1
        ),
        num_envs=4,
        rollout_length=8,
        bptt_length=4,
        minibatch_frames=16,
        epochs=2,
        pool_size=8,
        unroll=1,
    ),
    log=LogSettings(
        every=3 * FRAMES_PER_ITERATION, checkpoint_every=6 * FRAMES_PER_ITERATION, tensorboard=False
    ),
)
WHOLE_ITERATIONS = 60
WHOLE = replace(
    TINY,
    frames=WHOLE_ITERATIONS * FRAMES_PER_ITERATION,
    log=replace(TINY.log, tensorboard=True),
)


def tiny_run(directory: Path, *, iterations: int = 12, **changes: Any) -> PlannedRun:
    settings = replace(TINY, frames=iterations * FRAMES_PER_ITERATION, **changes)
    return PlannedRun(find("goto-small"), settings, directory)


def settings_file(path: Path, settings: TrainingSettings) -> Path:
    """Settings as a user would write them down."""
    path.write_text(json.dumps(to_table(settings)))
    return path


def command(*words: object) -> list[str]:
    """The command line in a process of its own."""
    return [sys.executable, "-m", "ella", *map(str, words)]


def typed(*words: object) -> int:
    """The exit status of the command line in this process, which records its own arguments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["ella", *map(str, words)])
        return main(sys.argv[1:])


@dataclass(frozen=True)
class WholeRun:
    """A run by `ella train`, and what the command said."""

    directory: Path
    stdout: str
    stderr: str


def trained_once(folder: Path) -> WholeRun:
    """The run of WHOLE in `folder`, trained by whichever process asks for it first."""
    said = folder / "whole-said.json"
    with (folder / "whole.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not said.exists():
            config = settings_file(folder / "whole.json", WHOLE)
            words = ("train", "goto-small", "--config", config, "--out", folder / "whole")
            out, err = StringIO(), StringIO()
            with redirect_stdout(out), redirect_stderr(err):
                status = typed(*words)
            assert status == 0, err.getvalue()
            said.write_text(json.dumps({"stdout": out.getvalue(), "stderr": err.getvalue()}))
    return WholeRun(folder / "whole", **json.loads(said.read_text()))


def values(directory: Path) -> dict[str, np.ndarray]:
    """The columns of a run's metrics that do not depend on the clock."""
    rows = read_rows(directory)
    names = [name for name in rows[0] if name not in CLOCK_COLUMNS]
    return {name: np.array([float(row[name] or "nan") for row in rows]) for name in names}
