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
    from ella.commands.tables import plain_table, print_whole

    rows = [
        (
            agents.PREFIX + name,
            card["method"],
            f"{card['frames'] / 1e6:.1f}" + " more" * (card.get("started_from") is not None),
            _share(card["success"]["ella"]["sampled"]),
            _share(card["success"]["minigrid"]["sampled"]),
        )
        for name, card in cards.items()
    ]
    names = ("agent", "method", "million frames", "success", "in minigrid")
    print_whole(plain_table(names, rows, left=("agent", "method")))
    sys.stdout.write(
        "success on fresh levels, actions sampled, with 95 % intervals; more: training started "
        "from another agent, which its card names\n"
        "in minigrid: the same levels, played in the real minigrid; equal numbers are expected, "
        "since both worlds match step by step\n"
    )


def _share(interval: dict[str, float]) -> str:
    value, low, high = (100 * interval[name] for name in ("value", "low", "high"))
    return f"{value:.1f} % [{low:.1f}, {high:.1f}]"
