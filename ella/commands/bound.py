"""`ella bound`: how large the bonus may be."""

import json
import sys
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from ella.methods.registry import assumed_steps, bonus_bound, ella_bonus
from ella.ppo.settings import PPOSettings
from ella.shaping.bound import task_bound
from ella.shaping.oracle import low_level_of
from ella.training.settings import Settings
from ella.world import tasks


@dataclass(frozen=True)
class Arguments:
    """The bonus, in units of the scaled reward, up to which optimal policies surely stay optimal.

    Without --steps the bound is conservative: it lets an optimal solution need the whole horizon.
    Where missions of the task have different horizons, it is the least of theirs.
    """

    task: Positional[Annotated[str, arg(metavar="TASK")]]
    """Name of a high-level task."""
    steps: int | None = None
    """The most steps an optimal solution needs, where that is known."""
    completions: int | None = None
    """The most low-level instructions one episode can complete, where that is known."""
    discount: float = PPOSettings.discount
    """Gamma."""
    reward_scale: float = PPOSettings.reward_scale
    """What the environment's reward is multiplied by."""
    json: bool = False
    """Print JSON instead of text."""


def run(arguments: Arguments) -> None:
    """Print the bound and what it assumes."""
    task = tasks.find(arguments.task)
    count = low_level_of(task).language.num_instructions
    bound = task_bound(
        task,
        arguments.discount,
        arguments.reward_scale,
        arguments.steps,
        arguments.completions,
    )
    steps = max(task.horizons) if arguments.steps is None else arguments.steps
    horizons = ", ".join(str(horizon) for horizon in task.horizons)
    defaults = Settings()
    trained_steps = assumed_steps(task, defaults)
    if arguments.json:
        table = {"task": task.name, "bound": bound, "steps": steps, "low_level": count}
        sys.stdout.write(json.dumps(table) + "\n")
        return
    sys.stdout.write(
        f"{bound:.3g}\n"
        f"{task.name}: solutions of at most {steps} steps, horizon {horizons}, "
        f"{arguments.completions or count} low-level completions, discount {arguments.discount:g}, "
        f"reward times {arguments.reward_scale:g}\n"
        f"ella train: a bonus of {ella_bonus(task, defaults):g} unless told, and a warning beyond "
        f"{bonus_bound(task, defaults, trained_steps):.3g}, the bound for {trained_steps} steps\n"
    )
