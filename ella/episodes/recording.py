"""Records episodes of trained runs."""

from pathlib import Path
from typing import Literal

import jax

from ella.episodes.episode import Marker, Recording, record, seed_key
from ella.episodes.payments import payment_marker
from ella.episodes.trained import trained_actor
from ella.runs.restore import has_ella, newest_policy, restore_run
from ella.world import compiled, make


def record_run(
    run: Path,
    *,
    seed: int = 0,
    seed_index: int = 0,
    actions: Literal["sampled", "greedy"] = "sampled",
) -> Recording:
    """An episode of the newest policy of one of a run's seeds on the level of `seed`. If the run is
    trained with ELLA, what was completed and paid for is marked."""
    trained = newest_policy(run, seed_index)
    world = make(trained.spec)
    timestep = compiled.reset(world, seed_key(seed))
    actor = trained_actor(trained, jax.random.key(seed) if actions == "sampled" else None)
    frames = record(world, actor, timestep, _marker(run, seed_index))
    return Recording(f"{world.spec.name}-trained-{trained.seed}-{seed}", frames)


def _marker(run: Path, seed_index: int) -> Marker | None:
    if not has_ella(run):
        return None
    restored = restore_run(run)
    return payment_marker(restored.spec, *restored.ella(seed_index))
