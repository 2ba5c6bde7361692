"""`ella show TASK` or `ella show RUN`: record a video of an episode."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from ella import agents
from ella.commands.options import Positional
from ella.errors import InputError

if TYPE_CHECKING:
    from ella.episodes.episode import Recording

VIDEO_SUFFIXES = (".gif", ".mp4", ".png")
MAX_FRAMES_PER_SECOND = 50
"""Faster GIFs are played slowly by most viewers."""


@dataclass(frozen=True)
class Arguments:
    """Record one episode: a video (GIF or MP4), and a contact sheet (PNG) of its main moments."""

    task: Annotated[str, Positional("TASK|RUN|AGENT")]
    """Name of the task (`ella tasks` lists them), or the directory of a run or `agent:NAME`
    (`ella agents` lists them), whose trained agent acts."""
    policy: Literal["expert", "random"] = "expert"
    """Who acts in a task: a planner that knows the whole level, or uniformly random actions."""
    seed_index: int = 0
    """Which of a run's seeds acts, counted from 0."""
    actions: Literal["sampled", "greedy"] = "sampled"
    """How a run's agent chooses: sampled from its policy, as it was trained, or always the most
    probable action, with which it gets stuck more often."""
    seed: int = 0
    """Random seed of the level and of sampled actions."""
    out: Path = Path("videos")
    """Folder for the video and the contact sheet."""
    format: Literal["gif", "mp4"] = "gif"
    """Format of the video; MP4 needs the program ffmpeg."""
    frames_per_second: float = 5.0
    """Speed of the video."""


def run(arguments: Arguments) -> None:
    """Write the files and say which."""
    from ella.episodes.video import find_encoder, write_episode

    if not 0 < arguments.frames_per_second <= MAX_FRAMES_PER_SECOND:
        raise InputError(
            f"frames-per-second must lie above 0 and not above {MAX_FRAMES_PER_SECOND}, "
            f"got {arguments.frames_per_second:g}"
        )
    if arguments.out.suffix in VIDEO_SUFFIXES and not arguments.out.is_dir():
        raise InputError(f"--out must name a folder for the files, got {arguments.out}")
    if arguments.format == "mp4":
        find_encoder()
    recording = _record(arguments)
    frames, stem = recording.frames, arguments.out / recording.name
    for path in write_episode(frames, stem, arguments.format, arguments.frames_per_second):
        sys.stdout.write(f"wrote {path}\n")
    ending = frames[-1].marks[-1].text
    sys.stdout.write(
        f"{frames[-1].description['mission']}: {ending} after {len(frames) - 1} steps\n"
    )


def _record(arguments: Arguments) -> "Recording":
    from ella.episodes.episode import Recording, expert_actor, random_actor, record, seed_key
    from ella.world import compiled, make

    seed = arguments.seed
    place = agents.located(arguments.task)
    if place.is_dir():
        # Imported here, since tasks need none of what trained runs do.
        from ella.episodes.recording import record_run

        return record_run(
            place,
            seed=seed,
            seed_index=arguments.seed_index,
            actions=arguments.actions,
        )
    if len(Path(arguments.task).parts) > 1:
        raise InputError(f"{arguments.task} is not the directory of a run, nor a task's name")
    world = make(arguments.task)
    actor = expert_actor(world) if arguments.policy == "expert" else random_actor(seed)
    frames = record(world, actor, compiled.reset(world, seed_key(seed)))
    return Recording(f"{world.spec.name}-{arguments.policy}-{seed}", frames)
