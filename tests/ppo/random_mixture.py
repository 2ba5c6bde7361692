"""Trajectories of a mixture made up from success rates, without any policy."""

import jax.numpy as jnp
import numpy as np

from ella.trajectory import Trajectory
from ella.world.mixtures import Mixture
from ella.world.state import InstructionTable
from ella.world.tasks import TASKS

MIXTURE = Mixture((TASKS["unlock-maze"], TASKS["goto-room"], TASKS["pick-maze"]), (2.0, 1.0, 1.0))


def ended_episodes(rates: np.ndarray, count: int, seed: int) -> Trajectory:
    """One step of `count` environments, every one of which ends an episode of a random part that
    succeeds with the part's rate."""
    rng = np.random.default_rng(seed)
    part = rng.integers(0, len(rates), count)
    success = rng.random(count) < np.asarray(rates)[part]
    ids = np.asarray(MIXTURE.language.offsets)[part]
    row = jnp.arange(count, dtype=jnp.int32)[None]
    nothing = jnp.zeros((1, count), bool)
    return Trajectory(
        observation=(),
        first=nothing,
        instruction_row=row,
        action=jnp.zeros((1, count), jnp.int32),
        reward=jnp.asarray(success, jnp.float32)[None],
        terminated=jnp.asarray(success)[None],
        truncated=jnp.asarray(~success)[None],
        next_observation=(),
        instructions=InstructionTable(
            ids=jnp.asarray(ids, jnp.int32), tokens=jnp.zeros((count, 3), jnp.int32)
        ),
    )
