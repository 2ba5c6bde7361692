"""`ella demo`: train a small agent in a small room, measure it and record a video of it."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import jax
from rich.console import Console

from ella.episodes.episode import record
from ella.episodes.trained import trained_actor
from ella.episodes.video import FRAMES_PER_SECOND, write_episode
from ella.errors import InputError
from ella.report.learning_curve import write_learning_curve
from ella.runs.log_sinks import display
from ella.runs.policies import load_policy
from ella.runs.run import Outcome, train
from ella.training import presets
from ella.training.evaluation import evaluate
from ella.training.program import held_out_key
from ella.world import compiled, make
from ella.world.tasks import find


@dataclass(frozen=True)
class Arguments:
    """Train a small agent to go to objects in a small room, then measure it and record a video."""

    out: Path = Path("demo")
    """Directory for the run, the learning curve and the video; must be new or empty."""
    frames: int = presets.DEMO.frames
    """Environment steps to train for."""
    episodes: int = 200
    """Fresh levels to measure the trained agent on."""
    video_seed: int = 0
    """Which level to record."""


def run(arguments: Arguments) -> int:
    """Train, measure, draw, record."""
    if arguments.episodes < 1:
        raise InputError(f"episodes must be at least 1, not {arguments.episodes}")
    console = Console(stderr=True, highlight=False, soft_wrap=True)

    def say(line: str) -> None:
        console.print(line, markup=False)

    say(f"an agent learns '{'goto-small'}': go to an object in one room")
    result = train(
        find("goto-small"),
        replace(presets.DEMO, frames=arguments.frames),
        arguments.out / "run",
        sinks=lambda planned: [display(planned.settings.total_frames)],
        say=say,
        command=["ella", *sys.argv[1:]],
    )
    if result.outcome != Outcome.FINISHED:
        return 1
    policy = load_policy(result.directory)
    found = evaluate(policy, arguments.episodes, mode="sampled")
    curve = write_learning_curve(result.directory, arguments.out / "learning-curve.png")
    world = make("goto-small")
    level = jax.random.fold_in(held_out_key(0), arguments.video_seed)
    agent = trained_actor(policy, jax.random.fold_in(level, 0))
    frames = record(world, agent, compiled.reset(world, level))
    videos = write_episode(frames, arguments.out / "trained-agent", "gif", FRAMES_PER_SECOND)
    for path in (curve, *videos):
        sys.stdout.write(f"wrote {path}\n")
    sys.stdout.write(
        f"success on {arguments.episodes} fresh levels, acting as in training: "
        f"{found.success_rate} (95 % interval)\n"
    )
    return 0
