"""`ella train`: train agents."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from tyro.conf import Positional, arg

from ella.errors import InputError
from ella.methods.registry import check_method
from ella.runs import directory as run_directory
from ella.runs.log_sinks import display, headline
from ella.runs.run import Outcome, RunResult, train
from ella.training import multi_host as hosts
from ella.training import presets
from ella.training.settings import Settings
from ella.world import tasks

EXIT_DIVERGED = 3
EXIT_INTERRUPTED = 130


@dataclass(frozen=True)
class Arguments:
    """Train agents on a task; everything about the run is left in one directory."""

    task: Positional[Annotated[str, arg(metavar="TASK")]]
    """Name of the task; `ella tasks` lists them. Not needed with --resume."""
    out: Path
    """Directory of the run; must be new or empty, unless --resume is given."""
    preset: str = "paper"
    """Where settings start from: paper (the paper's network and PPO), onehot (cells one-hot
    encoded, needs fewer frames), small (for a CPU)."""
    config: Path | None = None
    """JSON file of settings, like a run's config.json; flags override it."""
    resume: bool = False
    """Go on with the run in --out, with its own settings and where its newest checkpoint stands."""
    coordinator: str | None = None
    """Train in several processes, for example one per machine: address and port of the first of
    them, or auto where Slurm or MPI started them. Each holds whole seeds; --out must be a folder
    that all of them see."""
    processes: int | None = None
    """How many processes train together; not needed with --coordinator auto."""
    process: int | None = None
    """Which of them this is, from 0; not needed with --coordinator auto."""
    settings: Annotated[Settings, arg(name="")] = field(default_factory=Settings)


def defaults(words: Sequence[str]) -> Arguments:
    """Arguments before flags are read: those of the preset, the file or the run resumed."""
    preset = typed_value(words, "--preset") or "paper"
    settings = presets.find(preset)
    spec = None
    config, out = typed_value(words, "--config"), typed_value(words, "--out")
    if config is not None:
        spec, settings = run_directory.read_config(Path(config), settings)
    elif "--resume" in words and out is not None:
        spec, settings = run_directory.read_run(Path(out))
    return Arguments(
        task=tyro.MISSING if spec is None else spec.name,
        out=tyro.MISSING,
        preset=preset,
        settings=settings,
    )


def run(arguments: Arguments) -> int:
    """Train, and say how it ended."""
    spec = tasks.find(arguments.task)
    check_method(arguments.settings.method)
    if arguments.coordinator is not None:
        hosts.join(arguments.coordinator, arguments.processes, arguments.process)
    console = Console(stderr=True, highlight=False, soft_wrap=True, quiet=not hosts.leads())
    result = train(
        spec,
        arguments.settings,
        arguments.out,
        resume=arguments.resume,
        sinks=lambda planned: [display(planned.settings.total_frames)],
        say=lambda line: console.print(line, markup=False),
        command=["ella", *sys.argv[1:]],
    )
    console.print(_ending(result), markup=False)
    return {
        Outcome.FINISHED: 0,
        Outcome.INTERRUPTED: EXIT_INTERRUPTED,
        Outcome.DIVERGED: EXIT_DIVERGED,
    }[result.outcome]


def _ending(result: RunResult) -> str:
    text = f"{result.outcome.value} at {result.frames:,} frames a seed in {result.directory}"
    if result.last is not None and result.outcome == Outcome.FINISHED:
        text += f": {headline(result.last)}"
    if result.outcome == Outcome.INTERRUPTED:
        text += f"; go on with: ella train --resume --out {result.directory}"
    return text


def typed_value(words: Sequence[str], flag: str) -> str | None:
    """The value typed for a flag, before the others are read."""
    for index, word in enumerate(words):
        if word.startswith(f"{flag}="):
            return word[len(flag) + 1 :]
        if word == flag:
            if index + 1 == len(words):
                raise InputError(f"{flag} needs a value")
            return words[index + 1]
    return None
