"""`ella bound`: how large the bonus may be."""

import json
import sys
from dataclasses import dataclass
from typing import Annotated

from ella.commands.options import Positional
from ella.errors import InputError
from ella.methods.ella import ELLA
from ella.ppo.settings import PPOSettings


@dataclass(frozen=True)
class Arguments:
    """The bonus, in units of the scaled reward, below which no failure returns as much as an
    optimal success.

    Optimal policies then stay optimal in a deterministic world that the agent sees whole. Without
    --steps, solutions are assumed to take what `ella train` assumes; with fewer steps than the
    horizon the bound holds from the start of an episode only. Where missions of the task have
    different horizons, the bound is the least of theirs.
    """

    task: Annotated[str, Positional("TASK")]
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
    from ella.shaping.bound import task_bound
    from ella.shaping.oracle import low_level_of
    from ella.world import tasks

    task = tasks.find(arguments.task)
    for name in ("steps", "completions"):
        if (number := getattr(arguments, name)) is not None and number < 1:
            raise InputError(f"--{name} must be >= 1, got {number}")
    count = low_level_of(task).language.num_instructions
    method = ELLA(optimal_steps=arguments.steps, max_completions=arguments.completions)
    method = method.resolved(task)
    bounds = {
        steps: task_bound(
            task, arguments.discount, arguments.reward_scale, steps, arguments.completions
        )
        for steps in (method.optimal_steps, max(task.horizons))
    }
    bound = bounds[method.optimal_steps]
    if arguments.json:
        table = {
            "task": task.name, "bound": bound, "steps": method.optimal_steps, "low_level": count,
        }  # fmt: skip
        sys.stdout.write(json.dumps(table) + "\n")
        return
    horizons = ", ".join(map(str, task.horizons))
    whole = method.optimal_steps == max(task.horizons)
    start = "" if whole else ", and only from the start of an episode"
    lines = [
        f"{bound:.3g}",
        f"{task.name}: solutions of at most {method.optimal_steps} steps, horizon {horizons}, "
        f"{method.max_completions} low-level completions, discount {arguments.discount:g}, "
        f"reward times {arguments.reward_scale:g}",
        "optimal policies stay optimal only in a deterministic world that the agent sees whole"
        f"{start}",
        f"{_training(arguments)}: a bonus of {method.bonus:g} by default, and a warning beyond "
        f"{bound:.3g}",
    ]
    if not whole:
        worst = bounds[max(task.horizons)]
        lines.append(f"solutions as long as the horizon would allow {worst:.3g}")
    sys.stdout.write("\n".join(lines) + "\n")


def _training(arguments: Arguments) -> str:
    """The command that warns beyond the bound: training with the same assumptions."""
    options = {
        "ella.optimal-steps": (arguments.steps, None),
        "ella.max-completions": (arguments.completions, None),
        "ppo.discount": (arguments.discount, PPOSettings.discount),
        "ppo.reward-scale": (arguments.reward_scale, PPOSettings.reward_scale),
    }
    typed = [f" --{name} {value:g}" for name, (value, usual) in options.items() if value != usual]
    return "".join(["ella train", *(f" {arguments.task}" for _ in typed[:1]), *typed])
