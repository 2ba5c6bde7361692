"""`ella show TASK` or `ella show RUN`: record a video of an episode."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from ella import agents
from ella.commands.options import Positional
from ella.errors import InputError, writing_to

if TYPE_CHECKING:
    from ella.episodes.episode import Recording

VIDEO_SUFFIXES = (".gif", ".mp4", ".png")
MIN_FRAMES_PER_SECOND, MAX_FRAMES_PER_SECOND = 0.002, 50
"""A frame of a GIF lasts at most 655 seconds; faster GIFs are played slowly by most viewers."""


@dataclass(frozen=True)
class Arguments:
    """Record one episode: a video (GIF or MP4), and a contact sheet (PNG) of its main moments."""

    task: Annotated[str, Positional("TASK|RUN|AGENT")]
    """Name of the task (`ella tasks` lists them), or the directory of a run or `agent:NAME`
    (`ella agents` lists them), whose trained agent acts."""
    policy: Literal["expert", "random"] | None = None
    """Who acts in a task: by default the expert, a planner that knows the whole level, or
    uniformly random actions."""
    seed_index: int | None = None
    """Which of a run's seeds acts, counted from 0; the first by default."""
    actions: Literal["sampled", "greedy"] | None = None
    """How a run's agent chooses: by default sampled from its policy, as it was trained, or greedy,
    always the most probable action, with which it gets stuck more often."""
    seed: int = 0
    """Random seed of the level and of sampled actions."""
    out: Path = Path("videos")
    """Folder for the video and the contact sheet."""
    format: Literal["gif", "mp4"] = "gif"
    """Format of the video; MP4 needs the program ffmpeg."""
    frames_per_second: float = 5.0
    """Speed of the video."""


def run(arguments: Arguments) -> None:
    """Write the files and print their paths."""
    from ella.episodes.video import find_encoder, write_episode

    if not MIN_FRAMES_PER_SECOND <= arguments.frames_per_second <= MAX_FRAMES_PER_SECOND:
        raise InputError(
            f"--frames-per-second must lie between {MIN_FRAMES_PER_SECOND} and "
            f"{MAX_FRAMES_PER_SECOND}, got {arguments.frames_per_second:g}"
        )
    if arguments.out.suffix in VIDEO_SUFFIXES and not arguments.out.is_dir():
        raise InputError(f"--out must name a folder for the files, got {arguments.out}")
    if arguments.format == "mp4":
        find_encoder()
    recording = _record(arguments)
    frames, stem = recording.frames, arguments.out / recording.name
    with writing_to(arguments.out):
        paths = write_episode(frames, stem, arguments.format, arguments.frames_per_second)
    for path in paths:
        sys.stdout.write(f"wrote {path}\n")
    ending = frames[-1].marks[-1].text
    sys.stdout.write(
        f"{frames[-1].description['mission']}: {ending} after {len(frames) - 1} steps\n"
    )


def _record(arguments: Arguments) -> "Recording":
    from ella.episodes.episode import Recording, expert_actor, random_actor, record, seed_key
    from ella.world import compiled, make
    from ella.world.tasks import find

    seed = arguments.seed
    place = agents.located(arguments.task)
    if place.is_dir():
        if arguments.policy is not None:
            raise InputError("--policy is for tasks: a run's trained agent acts; leave it out")
        # Imported here, since tasks need none of what trained runs do.
        from ella.episodes.recording import record_run

        return record_run(
            place,
            seed=seed,
            seed_index=arguments.seed_index or 0,
            actions=arguments.actions or "sampled",
        )
    if len(Path(arguments.task).parts) > 1:
        raise InputError(f"{arguments.task} is not the directory of a run, nor a task's name")
    world = make(find(arguments.task, also=agents.NO_RUN))
    for option, value in (("seed-index", arguments.seed_index), ("actions", arguments.actions)):
        if value is not None:
            raise InputError(
                f"--{option} is for trained agents, and {world.spec.name} is a task; leave it out, "
                "or name a run or agent:NAME"
            )
    policy = arguments.policy or "expert"
    actor = expert_actor(world) if policy == "expert" else random_actor(seed)
    frames = record(world, actor, compiled.reset(world, seed_key(seed)))
    return Recording(f"{world.spec.name}-{policy}-{seed}", frames)
