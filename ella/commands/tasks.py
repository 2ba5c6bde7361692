"""`ella tasks`: the named tasks as a table or as JSON."""

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ella.world.language import Language
    from ella.world.tasks import TaskSpec


PIPE_WIDTH = 140


@dataclass(frozen=True)
class Arguments:
    """List the tasks: their instructions, horizons and the low-level tasks that support them."""

    json: bool = False
    """Write JSON instead of a table."""


def run(arguments: Arguments) -> None:
    """Write the list to the standard output."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from ella.world.tasks import all_tasks

    rows = [describe_task(spec) for spec in all_tasks()]
    if arguments.json:
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("task", no_wrap=True, style="bold")
    table.add_column("instructions", no_wrap=True, justify="right")
    table.add_column("horizon", no_wrap=True)
    table.add_column("low level", no_wrap=True)
    table.add_column("example")
    for row in rows:
        table.add_row(
            row["name"],
            f"{row['instructions']:,}",
            " to ".join(map(str, sorted({row["horizons"][0], row["horizons"][-1]}))),
            row["low_level"] or "—",
            row["example"],
        )
    # Files and pipes have no width to fit into.
    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).print(table)


def describe_task(spec: "TaskSpec") -> dict[str, Any]:
    """One task as plain values."""
    return {
        "name": spec.name,
        "instructions": spec.language.num_instructions,
        "horizons": list(spec.horizons),
        "low_level": spec.low_level,
        "example": example_sentence(spec.language),
        "kinds": list(spec.kinds),
        "rooms": [spec.rows, spec.cols],
        "room_size": spec.room_size,
        "distractors": spec.distractors,
        "lock_probability": spec.lock_probability,
    }


def example_sentence(language: "Language") -> str:
    """One instruction of a language, the same every time."""
    import numpy as np

    ids = np.random.default_rng(1).integers(language.num_ids, size=64, dtype=np.int32)
    return language.text(int(ids[language.is_valid(ids)][0]))
