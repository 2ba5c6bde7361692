"""`ella eval`: measure a trained run on fresh levels."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from ella import agents
from ella.commands.options import Positional
from ella.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from ella.training.policy import Policy


@dataclass(frozen=True)
class Arguments:
    """Play fresh levels, which training never draws, and report success and return with 95 %
    intervals (Wilson's for success, Student-t for the return)."""

    run: Annotated[Path, Positional("RUN")]
    """Directory of a run, `agent:NAME` (`ella agents` lists them), or a policy file. Of a run that
    still trains or was killed the newest checkpoint is used."""
    episodes: int = 1000
    """Episodes of each policy, once with sampled and once with greedy actions."""
    seed_index: int | None = None
    """Which of the run's seeds, counted from 0; all of them by default."""
    backend: Literal["ella", "minigrid"] = "ella"
    """World to play in: this one, or the real minigrid (needs the minigrid package)."""
    seed: int = 0
    """Random seed of the levels and of sampled actions."""
    json: bool = False
    """Print JSON instead of a table."""
    save: bool = False
    """Keep the result in the run's folder too, where `ella report` finds it."""


def run(arguments: Arguments) -> None:
    """Evaluate and print."""
    from rich.console import Console

    from ella.runs.run_evaluation import evaluated, keep_evaluation

    _check_place(arguments)
    report = evaluated(
        _policies(arguments), arguments.episodes, backend=arguments.backend, seed=arguments.seed
    )
    console = Console(highlight=False, soft_wrap=True)
    if arguments.json:
        console.print(json.dumps(report, indent=2), markup=False)
    else:
        console.print(_table(arguments, report["results"]))
    if arguments.save:
        keep_evaluation(arguments.run, report)


def _table(arguments: Arguments, rows: list[dict[str, Any]]) -> "Table":
    from rich.table import Table

    from ella.intervals import Interval

    table = Table(
        title=f"{rows[0]['task']} after {rows[0]['frames']:,} frames a seed: {arguments.episodes} "
        f"fresh levels each, played in {arguments.backend}; 95 % intervals"
    )
    for name in ("seed", "actions", "success", "return", "length"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            str(row["seed"]),
            row["mode"],
            str(Interval(**row["success"])),
            str(Interval(**row["return"])),
            f"{row['length']:.1f}",
        )
    return table


def _check_place(arguments: Arguments) -> None:
    from ella.runs.config_file import CONFIG_FILE

    if arguments.save and not (arguments.run / CONFIG_FILE).is_file():
        raise InputError(f"--save keeps results in the folder of a run, not in {arguments.run}")
    if arguments.save and arguments.seed_index is not None:
        raise InputError("--save keeps results of all seeds; leave out --seed-index")


def _policies(arguments: Arguments) -> "list[Policy]":
    from ella.runs.policies import load_policy
    from ella.runs.restore import newest_policies, newest_policy

    place = agents.located(arguments.run)
    if not place.is_dir():
        if arguments.seed_index is not None:
            raise InputError(f"{place} is no run to choose a seed of; leave out --seed-index")
        return [load_policy(place)]
    if arguments.seed_index is not None:
        return [newest_policy(place, arguments.seed_index)]
    return newest_policies(place)
