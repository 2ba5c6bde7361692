"""`ella export`: a trained run's agent as a small folder with a card."""

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ella import agents
from ella.commands.options import Positional


@dataclass(frozen=True)
class Arguments:
    """Write one seed's agent as a folder of a few megabytes: the policy in half precision, what
    ELLA learned of relevance, the settings, and a card with the success on fresh levels. `ella
    eval`, `show`, `explain` and `studio` take such a folder like a run."""

    run: Annotated[Path, Positional("RUN")]
    """Directory of a run."""
    out: Path
    """Folder to write; must not exist."""
    seed_index: int = 0
    """Which of the run's seeds, counted from 0."""
    episodes: int = 1000
    """Fresh levels that the card's success is measured on, in this world and, where the minigrid
    package is installed, in the real minigrid."""


def run(arguments: Arguments) -> None:
    """Measure and write."""
    from ella.runs.agent_export import export_agent
    from ella.training.evaluation import BACKENDS, success_card

    has_minigrid = importlib.util.find_spec("minigrid") is not None
    backends = [backend for backend in BACKENDS if backend != "minigrid" or has_minigrid]
    export_agent(
        agents.located(arguments.run),
        arguments.out,
        lambda policy: success_card(policy, arguments.episodes, backends),
        seed_index=arguments.seed_index,
    )
    sys.stdout.write(f"wrote {arguments.out}\n")
