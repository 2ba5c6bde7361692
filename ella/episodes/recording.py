"""Records episodes of trained runs."""

from pathlib import Path
from typing import Literal

import jax

from ella.episodes.episode import Episode, Marker, Recording, play, seed_key
from ella.episodes.payments import payment_marker
from ella.episodes.trained import trained_actor
from ella.runs.restore import has_ella, learned_ella, newest_policy
from ella.training.policy import Policy
from ella.world import compiled, make

LEVELS_TO_CHOOSE_FROM = 16
FEWEST_STEPS = 12
"""Of an episode that is worth a video, where there is a choice."""


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
    return _recording(run, seed_index, trained, seed, _episode(trained, seed, actions))


def record_success(run: Path) -> Recording:
    """As `record_run` of the first seed, on a level that shows something: of the levels of seeds 0
    to 15, the one that the agent solves in the fewest steps, but not in fewer than `FEWEST_STEPS`;
    where there is none, the one it solves in the most steps; where it solves none, the first."""
    trained = newest_policy(run)
    episodes = [_episode(trained, seed, "sampled") for seed in range(LEVELS_TO_CHOOSE_FROM)]
    lengths = [len(one.actions) if one.reward > 0 else 0 for one in episodes]
    long = [length for length in lengths if length >= FEWEST_STEPS]
    seed = lengths.index(min(long) if long else max(lengths))
    return _recording(run, 0, trained, seed, episodes[seed])


def _episode(trained: Policy, seed: int, actions: Literal["sampled", "greedy"]) -> Episode:
    world = make(trained.spec)
    actor = trained_actor(trained, jax.random.key(seed) if actions == "sampled" else None)
    return play(world, actor, compiled.reset(world, seed_key(seed)))


def _recording(
    run: Path, seed_index: int, trained: Policy, seed: int, episode: Episode
) -> Recording:
    name = f"{trained.spec.name}-trained-{trained.seed}-{seed}"
    return Recording(name, episode.frames(_marker(run, seed_index)))


def _marker(run: Path, seed_index: int) -> Marker | None:
    if not has_ella(run):
        return None
    learned = learned_ella(run, seed_index)
    return payment_marker(learned.spec, learned.shaper, learned.state)
