"""`ella agents`: the trained agents that come with the package."""

import json
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Arguments:
    """List the trained agents that come with the package; `agent:NAME` names one wherever a run is
    meant: `ella show agent:unlock-maze`."""

    json: bool = False
    """Write the cards as JSON instead of a table."""


def run(arguments: Arguments) -> None:
    """Write the list to the standard output."""
    from ella import agents
    from ella.settings_table import read_table

    cards = {name: read_table(agents.FOLDER / name / agents.CARD_FILE) for name in agents.names()}
    if arguments.json:
        sys.stdout.write(json.dumps(cards, indent=2) + "\n")
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        caption="success on fresh levels, actions sampled as in training; 95 % intervals",
        caption_justify="left",
    )
    for name in ("agent", "method", "million frames", "success", "in minigrid"):
        table.add_column(name, no_wrap=True)
    for name, card in cards.items():
        success = card["success"]
        table.add_row(
            agents.PREFIX + name,
            card["method"],
            f"{card['frames'] / 1e6:.1f}",
            _share(success["ella"]["sampled"]),
            _share(success["minigrid"]["sampled"]) if "minigrid" in success else "",
        )
    Console(highlight=False).print(table)


def _share(interval: dict[str, float]) -> str:
    value, low, high = (100 * interval[name] for name in ("value", "low", "high"))
    return f"{value:.1f} % [{low:.1f}, {high:.1f}]"
