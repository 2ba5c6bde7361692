"""`ella demos TASK`: expert demonstrations as a Minari dataset."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ella.commands.options import Positional
from ella.errors import writing_to


@dataclass(frozen=True)
class Arguments:
    """Write episodes of the expert, a planner that knows the whole level, as a dataset that Minari
    reads; docs/gymnasium.md."""

    task: Annotated[str, Positional("TASK")]
    """Name of the task; `ella tasks` lists them."""
    episodes: int = 1000
    """How many."""
    out: Path = Path("demonstrations")
    """Folder of Minari datasets, as in the environment variable MINARI_DATASETS_PATH."""
    seed: int = 0
    """Seed of the first level; the others follow it."""


def run(arguments: Arguments) -> None:
    """Write the dataset and print how to read it."""
    from ella.adapters.minari_demonstrations import write_demonstrations
    from ella.offline.stage import stage_progress

    what = f"demonstrations of {arguments.task}"
    with writing_to(arguments.out), stage_progress(what, "episodes") as shown:
        found = write_demonstrations(
            arguments.task,
            arguments.episodes,
            arguments.out,
            seed=arguments.seed,
            written=shown.counting(arguments.episodes),
        )
    sys.stdout.write(
        f"wrote {found.path}: {found.episodes:,} episodes, {found.steps:,} steps, mean reward "
        f"{found.mean_reward:.3f}\n"
        f"read it with MINARI_DATASETS_PATH={arguments.out} and "
        f'minari.load_dataset("{found.dataset_id}")\n'
    )
