"""`ella bench`: measure frames a second."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import jax
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, arg

from ella.commands.train import typed_value
from ella.errors import InputError
from ella.methods.registry import check_method
from ella.ppo.settings import PPOSettings
from ella.training import presets
from ella.training.settings import Settings
from ella.training.throughput import COUNTING_RULE, Rate, benchmark
from ella.world import tasks


@dataclass(frozen=True)
class Arguments:
    """Measure frames a second of the world alone, with the policy acting, and of training.

    Compilation is not counted; methods take turns, so that their ratio is of the same moments.
    """

    task: Positional[Annotated[str, arg(metavar="TASK")]] = "goto-room"
    """Name of the task."""
    preset: str = "paper"
    """Where settings start from: paper, onehot, small."""
    method: tuple[str, ...] = ("ppo",)
    """Training methods to measure; the first is what the others are compared with."""
    seeds: int = 1
    """Seeds trained side by side."""
    iterations: int = 20
    """Training iterations in one repeat."""
    repeats: int = 3
    """Repeats; the median is reported, with the lowest and the highest."""
    json: bool = False
    """Print JSON instead of a table."""
    ppo: PPOSettings = field(default_factory=PPOSettings)
    """The learner."""


def defaults(words: Sequence[str]) -> Arguments:
    """Arguments before flags are read: those of the preset."""
    preset = typed_value(words, "--preset") or "paper"
    return Arguments(preset=preset, ppo=presets.find(preset).ppo)


def run(arguments: Arguments) -> None:
    """Measure and print."""
    for method in arguments.method:
        check_method(method)
    if min(arguments.iterations, arguments.repeats) < 1 or not arguments.method:
        raise InputError("bench needs at least one method, one iteration and one repeat")
    tasks.find(arguments.task)
    settings = Settings(seeds=arguments.seeds, ppo=arguments.ppo)
    rates = benchmark(
        arguments.task,
        settings,
        arguments.method,
        iterations=arguments.iterations,
        repeats=arguments.repeats,
        say=_say,
    )
    console = Console(highlight=False, soft_wrap=True)
    circumstances = _circumstances(arguments)
    rows = [_row(rate, rates, arguments.method[0]) for rate in rates]
    if arguments.json:
        console.print(json.dumps({**circumstances, "rates": rows}, indent=2), markup=False)
        return
    table = Table(caption="\n".join(f"{name}: {value}" for name, value in circumstances.items()))
    for name in ("what", "frames/s", "lowest", "highest", f"of {arguments.method[0]}"):
        table.add_column(name, justify="left" if name == "what" else "right")
    for row in rows:
        table.add_row(
            row["what"],
            *(f"{row[name]:,.0f}" for name in ("frames_per_second", "lowest", "highest")),
            "" if row["ratio"] is None else f"{row['ratio']:.1%}",
        )
    console.print(table)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _row(rate: Rate, rates: Sequence[Rate], first: str) -> dict[str, Any]:
    against = next(other for other in rates if other.what == f"training {first}")
    is_training = rate.what.startswith("training")
    ratio = rate.frames_per_second / against.frames_per_second if is_training else None
    return {**vars(rate), "ratio": ratio}


def _circumstances(arguments: Arguments) -> dict[str, Any]:
    device = jax.devices()[0]
    return {
        "task": arguments.task,
        "seeds": arguments.seeds,
        "environments": arguments.ppo.num_envs,
        "precision": arguments.ppo.network.compute_dtype,
        "device": f"{device.device_kind} ({jax.default_backend()}, {len(jax.devices())} present)",
        "counting": COUNTING_RULE,
    }
