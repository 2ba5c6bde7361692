"""`ella demo`: ELLA and plain PPO side by side on a small task, and what ELLA learned."""

import logging
import math
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ella.commands.exit_statuses import EXIT_DIVERGED, EXIT_INTERRUPTED
from ella.training import presets

if TYPE_CHECKING:
    from ella.runs.planned_run import PlannedRun

logger = logging.getLogger(__name__)

TASK, BASELINE, METHOD = "unlock-small", "ppo", "ella"
LAST_SHARE = 0.1
"""Of the training, over which success is compared."""
MOST_INSTRUCTIONS = 6
"""High-level instructions whose decompositions are printed."""


@dataclass(frozen=True)
class Arguments:
    """Train ELLA and plain PPO on a small task from the same seeds, and show what ELLA learned.
    Finished runs in the folder are not trained again, interrupted ones are resumed."""

    out: Path = Path("demo")
    """Folder for the two runs, the learning curves, the video and the heat map."""
    preset: str = "laptop"
    """Where settings start from; smoke only shows that everything works."""
    frames: int | None = None
    """Environment steps of each seed; by default as many as show the difference."""
    seeds: int = 2
    """Agents of each method."""
    seed: int = 0
    """The first random seed; the others follow it."""


def run(arguments: Arguments) -> int:
    """Train, draw, record, explain."""
    from ella.reproduction.local_launcher import train_here, unfinished
    from ella.runs.progress_lines import ProgressLines
    from ella.runs.run_result import Outcome

    runs = planned_runs(arguments)
    left = unfinished(runs)
    if left:
        command = ["ella", *sys.argv[1:]]
        results = train_here(
            [left], sinks=lambda planned: [ProgressLines(planned)], command=command
        )
        if any(result.outcome == Outcome.INTERRUPTED for result in results):
            logger.info("interrupted; resume with: %s", shlex.join(command))
            return EXIT_INTERRUPTED
        if any(result.outcome == Outcome.DIVERGED for result in results):
            return EXIT_DIVERGED
    _show(runs, arguments.out)
    return 0


def planned_runs(arguments: Arguments) -> "list[PlannedRun]":
    """The runs of the baseline and of ELLA, alike but for the method."""
    from ella.runs.planned_run import PlannedRun
    from ella.world import tasks

    runs = []
    for method in (BASELINE, METHOD):
        settings = presets.find(arguments.preset, method)
        settings = replace(
            settings,
            frames=settings.frames if arguments.frames is None else arguments.frames,
            seeds=arguments.seeds,
            seed=arguments.seed,
        )
        runs.append(PlannedRun(tasks.find(TASK), settings, arguments.out / method).resolved())
    return runs


def _show(runs: "Sequence[PlannedRun]", folder: Path) -> None:
    """Write the pictures; print what was learned and what to try next."""
    from ella.episodes.explanation import explain, spread_instructions
    from ella.episodes.heatmap import draw_heatmap
    from ella.episodes.recording import record_success
    from ella.episodes.video import FRAMES_PER_SECOND, write_episode
    from ella.report.learning_curve import write_learning_curves
    from ella.runs.restore import learned_ella

    logger.info("recording an episode")
    trained = runs[-1]
    curves = write_learning_curves(
        [planned.directory for planned in runs],
        folder / "learning-curves.png",
        title=f"{TASK}: ELLA and PPO from the same seeds",
    )
    recording = record_success(trained.directory)
    videos = write_episode(recording.frames, folder / recording.name, "gif", FRAMES_PER_SECOND)
    learned, heatmap = learned_ella(trained.directory), folder / "relevance.png"
    draw_heatmap(learned, heatmap)
    for path in (curves, *videos, heatmap):
        _print(f"wrote {path}")
    _print("")
    _print(_comparison(runs))
    language = trained.spec.language
    for instruction in spread_instructions(language, MOST_INSTRUCTIONS):
        text = language.text(int(instruction))
        _print(str(explain(learned.spec, learned.shaper, learned.state, text)))
    mission = recording.frames[0].description["mission"]
    _print(_next_steps(trained.directory, folder, mission))


def _comparison(runs: "Sequence[PlannedRun]") -> str:
    """Mean success over the last part of the training, a method each."""
    settings = runs[0].settings
    seeds = f"{settings.seeds} seed" + "s" * (settings.seeds > 1)
    found = ", ".join(
        f"{planned.settings.method.label} {_success(planned.directory)}" for planned in runs
    )
    return (
        f"success over the last {LAST_SHARE:.0%} of {settings.total_frames:,} frames, "
        f"mean of {seeds}: {found}"
    )


def _success(run: Path) -> str:
    """A run's success at its end as a share; very short runs may end no episode there."""
    from ella.report.learning_curve import success_at_the_end

    success = success_at_the_end(run, LAST_SHARE).mean()
    return "no episode ended" if math.isnan(success) else f"{success:.0%}"


def _next_steps(run: Path, folder: Path, mission: str) -> str:
    commands = {
        f'ella explain {run} "{mission}"': "how relevant each low-level instruction is",
        f"ella show {run} --seed 3": "a video of another level",
        f"ella report {folder}": "a page that compares both runs",
        f"ella play {TASK}": "the task at your keyboard",
        f"ella bound {TASK}": "how large the bonus may be",
    }
    width = max(map(len, commands))
    lines = (f"  {command:{width}}  {purpose}" for command, purpose in commands.items())
    return "\n".join(["", "try next:", *lines])


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
