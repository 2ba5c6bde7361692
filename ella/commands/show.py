"""`ella show TASK`: film an episode."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ella.errors import InputError
from ella.report.episode import expert_policy, random_policy, record, seed_key
from ella.report.film import FRAMES_PER_SECOND, Shot, find_encoder, write_film, write_strip
from ella.world import compiled, make


@dataclass(frozen=True)
class Arguments:
    """Film one episode: a GIF or MP4, and a PNG strip of its main moments."""

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
    """Name of the task; `ella tasks` lists them."""
    policy: Literal["expert", "random"] = "expert"
    """Who acts: a planner that knows the whole level, or chance."""
    seed: int = 0
    """Seed of the level and of the random policy."""
    out: Path = Path("films")
    """Folder for the files."""
    format: Literal["gif", "mp4"] = "gif"
    """Kind of film; MP4 needs the program ffmpeg."""
    frames_per_second: float = FRAMES_PER_SECOND
    """Speed of the film."""


def run(arguments: Arguments) -> None:
    """Write the files and say which."""
    if arguments.frames_per_second <= 0:
        raise InputError(f"frames-per-second must be positive, got {arguments.frames_per_second}")
    if arguments.format == "mp4":
        find_encoder()
    world, key = make(arguments.task), seed_key(arguments.seed)
    expert = arguments.policy == "expert"
    policy = expert_policy(world) if expert else random_policy(arguments.seed)
    timestep = compiled.reset(world, key)
    shots = record(world, policy, timestep)
    stem = arguments.out / f"{world.spec.name}-{arguments.policy}-{arguments.seed}"
    for path in write_episode(shots, stem, arguments.format, arguments.frames_per_second):
        sys.stdout.write(f"wrote {path}\n")
    ending = shots[-1].marks[-1].text
    sys.stdout.write(f"{shots[-1].description['mission']}: {ending} after {len(shots) - 1} steps\n")


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
