"""`ella offline`: the offline stage of ELLA, ahead of training."""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import jax
from rich.console import Console
from tyro.conf import Positional, arg

from ella.offline.settings import TerminationTrainingSettings
from ella.offline.termination import assess_on_task, termination_classifier
from ella.offline.train_termination import Progress
from ella.world import tasks


@dataclass(frozen=True)
class Arguments:
    """Train the termination classifier of a task's low-level instructions, or recall it.

    The result is kept in a cache ($ELLA_CACHE, by default in the user's cache directory); `ella
    train` with the same settings finds it there.
    """

    task: Positional[Annotated[str, arg(metavar="TASK")]]
    """Name of a task: a low-level one, or a high-level one whose low-level task is meant."""
    examples: Path | None = None
    """File of labelled examples to learn from instead of the expert; docs/offline.md."""
    on: tuple[str, ...] = ()
    """Tasks on whose expert episodes to measure it too, view by view against what the view shows,
    and apart where a locked door is in view; for example the high-level task it is meant for."""
    json: bool = False
    """Print the record as JSON."""
    training: Annotated[TerminationTrainingSettings, arg(name="")] = field(
        default_factory=TerminationTrainingSettings
    )


def run(arguments: Arguments) -> None:
    """Train or recall, and print how the classifier does on held-out episodes."""
    spec = tasks.find(arguments.task)
    elsewhere = [tasks.find(name) for name in arguments.on]
    low_level = tasks.find(spec.low_level) if spec.low_level else spec
    console = Console(stderr=True, highlight=False, soft_wrap=True)

    def progress(found: Progress) -> None:
        console.print(
            f"step {found.step}/{found.steps}  loss {found.loss:.4f}  "
            f"balanced accuracy {found.accuracy:.2%}  best {found.best:.2%}",
            markup=False,
        )

    trained = termination_classifier(
        low_level,
        arguments.training,
        examples=arguments.examples,
        say=lambda line: console.print(line, markup=False),
        progress=progress,
    )
    record = dict(trained.record)
    if elsewhere:
        key = jax.random.key(arguments.training.seed)
        record["on"] = {task.name: assess_on_task(trained, task, key=key) for task in elsewhere}
    if arguments.json:
        sys.stdout.write(json.dumps({"task": low_level.name, **record}, indent=2) + "\n")
        return
    for name, value in record.items():
        sys.stdout.write(f"{name}: {json.dumps(value)}\n")
