"""Runs that take seconds, for tests of what surrounds training."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ella.experiment.config import LogSettings, Settings
from ella.experiment.metrics import CLOCK_COLUMNS, read_rows
from ella.experiment.run import PlannedRun
from ella.experiment.small_task import SMALL_TASK
from ella.networks.actor_critic import NetworkConfig
from ella.ppo.settings import PPOConfig

FRAMES_PER_ITERATION = 32
TINY = Settings(
    seeds=2,
    ppo=PPOConfig(
        network=NetworkConfig(
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
    log=LogSettings(every=3, checkpoint_every=6, tensorboard=False),
)


def tiny_run(directory: Path, *, iterations: int = 12, **changes: Any) -> PlannedRun:
    settings = replace(TINY, frames=iterations * FRAMES_PER_ITERATION, **changes)
    return PlannedRun(SMALL_TASK, settings, directory)


def values(directory: Path) -> dict[str, np.ndarray]:
    """The columns of a run's metrics that do not depend on the clock."""
    rows = read_rows(directory)
    names = [name for name in rows[0] if name not in CLOCK_COLUMNS]
    return {name: np.array([float(row[name] or "nan") for row in rows]) for name in names}
