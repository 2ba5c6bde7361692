"""`ella bench`: measure frames a second."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from ella.commands.options import Positional
from ella.errors import InputError
from ella.ppo.settings import PPOSettings
from ella.training import presets
from ella.training.settings import TrainingSettings, from_table

if TYPE_CHECKING:
    from ella.training.throughput import Rate


@dataclass(frozen=True)
class Arguments:
    """Measure frames a second of the world alone, with the policy acting, and of training.

    Compilation is not counted in them; methods take turns, so that their ratio is of the same
    moments. How long compilation took and how much memory of each device training takes is shown
    too.
    """

    task: Annotated[str, Positional("TASK")] = "goto-room"
    """Name of the task."""
    preset: str = presets.PAPER
    """Where settings start from: paper, released, onehot, wide, wide-8gb, small, laptop, smoke."""
    method: tuple[str, ...] = (presets.DEFAULT_METHOD,)
    """Training methods to measure; the first is what the others are compared with."""
    seeds: int = 1
    """Seeds trained side by side."""
    iterations: int = 20
    """Training iterations in one repeat."""
    repeats: int = 3
    """Repeats; the median is reported, with the spread from the lowest to the highest."""
    json: bool = False
    """Print JSON instead of a table."""


def sections() -> dict[str, Any]:
    """Options of the learner."""
    return {"ppo": PPOSettings()}


def run(arguments: Arguments, typed: Mapping[str, Any]) -> None:
    """Measure and print."""
    if min(arguments.iterations, arguments.repeats) < 1 or not arguments.method:
        raise InputError("bench needs at least one method, one iteration and one repeat")
    settings = [
        replace(
            from_table(typed, presets.find(arguments.preset, method), where="options"),
            seeds=arguments.seeds,
        )
        for method in arguments.method
    ]
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from ella.training.throughput import benchmark

    rates = benchmark(
        arguments.task, settings, iterations=arguments.iterations, repeats=arguments.repeats
    )
    console = Console(highlight=False, soft_wrap=True)
    provenance = _provenance(arguments, settings[0])
    rows = [_row(rate, rates, arguments.method[0]) for rate in rates]
    if arguments.json:
        console.print(json.dumps({**provenance, "rates": rows}, indent=2), markup=False)
        return
    table = Table(
        box=SIMPLE_HEAD, caption="\n".join(f"{name}: {value}" for name, value in provenance.items())
    )
    of_first = f"of {arguments.method[0]}"
    for name in ("what", "frames/s", "spread", of_first, "compile", "memory"):
        table.add_column(name, justify="left" if name == "what" else "right")
    for row in rows:
        table.add_row(
            row["what"],
            f"{row['frames_per_second']:,.0f}",
            f"{(row['highest'] - row['lowest']) / row['frames_per_second']:.1%}",
            *(
                "" if row[name] is None else form.format(row[name] * factor)
                for name, form, factor in (
                    ("ratio", "{:.1%}", 1),
                    ("compile_seconds", "{:.0f} s", 1),
                    ("memory_bytes", "{:.2f} GB", 1e-9),
                )
            ),
        )
    console.print(table)


def _row(rate: "Rate", rates: "Sequence[Rate]", first: str) -> dict[str, Any]:
    against = next(other for other in rates if other.what == f"training {first}")
    is_training = rate.what.startswith("training")
    ratio = rate.frames_per_second / against.frames_per_second if is_training else None
    return {**vars(rate), "ratio": ratio}


def _provenance(arguments: Arguments, settings: TrainingSettings) -> dict[str, Any]:
    import jax

    from ella.training.throughput import COUNTING_RULE

    device = jax.devices()[0]
    return {
        "task": arguments.task,
        "seeds": arguments.seeds,
        "environments": settings.ppo.num_envs,
        "precision": settings.ppo.network.compute_dtype,
        "device": f"{device.device_kind} ({jax.default_backend()}, {len(jax.devices())} present)",
        "counting": COUNTING_RULE,
    }
