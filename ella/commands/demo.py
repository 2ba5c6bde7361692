"""`ella demo`: train a small agent in a small room, measure it and record a video of it."""

import logging
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from ella.errors import InputError
from ella.training import presets

logger = logging.getLogger(__name__)

TASK, FRAMES = "goto-small", 250_000


@dataclass(frozen=True)
class Arguments:
    """Train a small agent to go to objects in a small room, then measure it and record a video."""

    out: Path = Path("demo")
    """Directory for the run, the learning curve and the video; must be new or empty."""
    frames: int = FRAMES
    """Environment steps to train for."""
    episodes: int = 200
    """Fresh levels to measure the trained agent on."""
    video_seed: int = 0
    """Which level to record."""


def run(arguments: Arguments) -> int:
    """Train, measure, draw, record."""
    if arguments.episodes < 1:
        raise InputError(f"episodes must be >= 1, got {arguments.episodes}")
    import jax

    from ella.episodes.episode import record
    from ella.episodes.trained import trained_actor
    from ella.episodes.video import FRAMES_PER_SECOND, write_episode
    from ella.report.learning_curve import write_learning_curve
    from ella.runs.log_sinks import display
    from ella.runs.policies import load_policy
    from ella.runs.training_run import Outcome, train_run
    from ella.training.evaluation import evaluate
    from ella.training.program import held_out_key
    from ella.world import compiled, make

    logger.info("an agent learns '%s': go to an object in one room", TASK)
    result = train_run(
        TASK,
        replace(presets.find("small"), frames=arguments.frames),
        arguments.out / "run",
        sinks=lambda planned: [display(planned.settings.total_frames)],
        command=["ella", *sys.argv[1:]],
    )
    if result.outcome != Outcome.FINISHED:
        return 1
    policy = load_policy(result.directory)
    found = evaluate(policy, arguments.episodes, mode="sampled")
    curve = write_learning_curve(result.directory, arguments.out / "learning-curve.png")
    world = make(TASK)
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
