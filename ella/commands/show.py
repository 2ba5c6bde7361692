"""`ella show TASK` or `ella show RUN`: film an episode."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import jax
import tyro

from ella.episodes.episode import Marker, Policy, expert_policy, random_policy, record, seed_key
from ella.episodes.video import FRAMES_PER_SECOND, Shot, find_encoder, write_film, write_strip
from ella.errors import InputError
from ella.world import Environment, compiled, make

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
    shots, paths = film(arguments)
    for path in paths:
        sys.stdout.write(f"wrote {path}\n")
    ending = shots[-1].marks[-1].text
    sys.stdout.write(f"{shots[-1].description['mission']}: {ending} after {len(shots) - 1} steps\n")


def film(arguments: Arguments) -> tuple[Sequence[Shot], list[Path]]:
    """Film an episode: its shots and the files written."""
    if not 0 < arguments.frames_per_second <= MAX_FRAMES_PER_SECOND:
        raise InputError(
            f"frames-per-second must lie above 0 and not above {MAX_FRAMES_PER_SECOND}, "
            f"got {arguments.frames_per_second:g}"
        )
    if arguments.format == "mp4":
        find_encoder()
    world, policy, actor = _actor(arguments)
    timestep = compiled.reset(world, seed_key(arguments.seed))
    shots = record(world, policy, timestep, _marker(arguments))
    stem = arguments.out / f"{world.spec.name}-{actor}-{arguments.seed}"
    return shots, write_episode(shots, stem, arguments.format, arguments.frames_per_second)


def _actor(arguments: Arguments) -> tuple[Environment, Policy, str]:
    """The world, who acts in it, and what files call them."""
    if Path(arguments.task).is_dir():
        from ella.episodes.trained import trained_policy
        from ella.runs.policies import load_policy

        trained = load_policy(Path(arguments.task), arguments.seed_index)
        key = jax.random.key(arguments.seed) if arguments.actions == "sampled" else None
        return make(trained.spec), trained_policy(trained, key), f"trained-{trained.seed}"
    if len(Path(arguments.task).parts) > 1:
        raise InputError(f"{arguments.task} is not the directory of a run, nor a task's name")
    world = make(arguments.task)
    if arguments.policy == "expert":
        return world, expert_policy(world), "expert"
    return world, random_policy(arguments.seed), "random"


def _marker(arguments: Arguments) -> Marker | None:
    """For runs trained with ELLA: marks where low-level instructions were completed and paid."""
    run_directory = Path(arguments.task)
    if not run_directory.is_dir():
        return None
    from ella.episodes.payments import payment_marker
    from ella.runs.restore import has_ella, restore_run

    if not has_ella(run_directory):
        return None
    restored = restore_run(run_directory)
    return payment_marker(restored.spec, *restored.ella(arguments.seed_index))


def write_episode(
    shots: Sequence[Shot], stem: Path, format_: str, frames_per_second: float
) -> list[Path]:
    """Write the film and the strip of an episode to `stem` plus their endings."""
    film = stem.with_name(f"{stem.name}.{format_}")
    strip = stem.with_name(f"{stem.name}.png")
    return [
        write_film(shots, film, frames_per_second=frames_per_second),
        write_strip(shots, strip),
    ]
