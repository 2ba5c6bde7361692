"""`ella offline`: the offline stage of ELLA, ahead of training."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from ella.commands.options import Positional
from ella.offline.settings import TerminationTrainingSettings
from ella.settings_table import updated


@dataclass(frozen=True)
class Arguments:
    """Train the termination classifier of a task's low-level instructions, or load it, and print
    how it does on held-out episodes.

    The classifier is kept in a cache ($ELLA_CACHE, by default in the user's cache directory);
    `ella train` with the same settings finds it there.
    """

    task: Annotated[str, Positional("TASK")]
    """Name of a low-level task, or of a high-level one, whose low-level task is then used."""
    low_level: tuple[str, ...] = ()
    """Low-level tasks whose instructions it is to judge together, instead of the one of TASK; as
    `ella train --ella-solvent.low-level`."""
    examples: Path | None = None
    """File of labelled examples (.npz) to train on instead of the expert's episodes; its format is
    in docs/offline.md."""
    on: tuple[str, ...] = ()
    """Further tasks to measure it on, such as the high-level task it is for: every view of expert
    episodes against the ground truth that the view shows, also for views with a locked door."""
    json: bool = False
    """Print the record as JSON."""


def sections() -> dict[str, Any]:
    """Options of the classifier's training."""
    return {"": TerminationTrainingSettings()}


def run(arguments: Arguments, typed: Mapping[str, Any]) -> None:
    """Train or load, and print how the classifier does on held-out episodes."""
    settings = updated(TerminationTrainingSettings(), typed, where="options")
    import jax

    from ella.offline.termination import assess_on_task, find_termination
    from ella.shaping.low_level import low_level_tasks
    from ella.world import tasks

    spec = tasks.find(arguments.task)
    elsewhere = [tasks.find(name) for name in arguments.on]
    names = arguments.low_level or (spec.low_level or spec.name,)
    low_level = low_level_tasks(spec, names)
    trained = find_termination(low_level, settings, examples=arguments.examples)
    record = dict(trained.record)
    if elsewhere:
        key = jax.random.key(settings.seed)
        record["on"] = {task.name: assess_on_task(trained, task, key=key) for task in elsewhere}
    if arguments.json:
        sys.stdout.write(json.dumps({"task": "+".join(names), **record}, indent=2) + "\n")
        return
    for name, value in record.items():
        sys.stdout.write(f"{name}: {json.dumps(value)}\n")
    if counted := record.get("false_alarms"):
        sys.stdout.write(
            f"an ordinary episode of {counted['steps_per_episode']:.0f} steps completes "
            f"{counted['false_completions']:.3g} low-level instructions by mistake and "
            f"{counted['true_completions']:.3g} correctly\n"
        )
        # Records in older caches lack it.
        if (at_once := counted.get("seen_at_once")) is not None:
            sys.stdout.write(f"{at_once:.1%} of completions are seen in the first view of them\n")
