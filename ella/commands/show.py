"""`ella show TASK` or `ella show RUN`: film an episode."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ella.episodes.episode import expert_policy, random_policy, record, seed_key
from ella.episodes.recording import Recording, record_run
from ella.episodes.video import FRAMES_PER_SECOND, find_encoder, write_episode
from ella.errors import InputError
from ella.world import compiled, make

MAX_FRAMES_PER_SECOND = 50
"""Faster GIFs are played slowly by most viewers."""


@dataclass(frozen=True)
class Arguments:
    """Film one episode: a GIF or MP4, and a PNG strip of its main moments."""

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK|RUN")]
    """Name of the task (`ella tasks` lists them), or the directory of a run whose trained agent
    acts."""
    policy: Literal["expert", "random"] = "expert"
    """Who acts in a task: a planner that knows the whole level, or chance."""
    seed_index: int = 0
    """Which of a run's seeds acts, counted from 0."""
    actions: Literal["sampled", "greedy"] = "sampled"
    """How a run's agent chooses: by chance, as it was trained, or always what it holds best, with
    which it gets stuck more often."""
    seed: int = 0
    """Seed of the level and of actions by chance."""
    out: Path = Path("films")
    """Folder for the files."""
    format: Literal["gif", "mp4"] = "gif"
    """Kind of film; MP4 needs the program ffmpeg."""
    frames_per_second: float = FRAMES_PER_SECOND
    """Speed of the film."""


def run(arguments: Arguments) -> None:
    """Write the files and say which."""
    if not 0 < arguments.frames_per_second <= MAX_FRAMES_PER_SECOND:
        raise InputError(
            f"frames-per-second must lie above 0 and not above {MAX_FRAMES_PER_SECOND}, "
            f"got {arguments.frames_per_second:g}"
        )
    if arguments.format == "mp4":
        find_encoder()
    recording = _record(arguments)
    shots, stem = recording.shots, arguments.out / recording.name
    for path in write_episode(shots, stem, arguments.format, arguments.frames_per_second):
        sys.stdout.write(f"wrote {path}\n")
    ending = shots[-1].marks[-1].text
    sys.stdout.write(f"{shots[-1].description['mission']}: {ending} after {len(shots) - 1} steps\n")


def _record(arguments: Arguments) -> Recording:
    seed = arguments.seed
    if Path(arguments.task).is_dir():
        return record_run(
            Path(arguments.task),
            seed=seed,
            seed_index=arguments.seed_index,
            actions=arguments.actions,
        )
    if len(Path(arguments.task).parts) > 1:
        raise InputError(f"{arguments.task} is not the directory of a run, nor a task's name")
    world = make(arguments.task)
    policy = expert_policy(world) if arguments.policy == "expert" else random_policy(seed)
    shots = record(world, policy, compiled.reset(world, seed_key(seed)))
    return Recording(f"{world.spec.name}-{arguments.policy}-{seed}", shots)
