"""Trained agents that come with the package, called `agent:NAME` wherever a run is meant.

Each is a folder like a run's, without checkpoints:

    config.json, run.json                 the settings, and the command, versions and device
    card.json                             what it is, and its success with intervals
    policies/seed-N.safetensors           the policy, in half precision
    relevance.safetensors                 what ELLA learned of relevance, for agents trained with it
"""

from pathlib import Path

from ella.errors import unknown_name

PREFIX = "agent:"
CARD_FILE = "card.json"
FOLDER = Path(__file__).parent
NO_RUN = ", and there is no run directory of that name"
"""Ends what is wrong with a word that is no task where it could also be a run's directory."""


def names() -> list[str]:
    """Of the agents, in alphabetical order."""
    return sorted(card.parent.name for card in FOLDER.glob(f"*/{CARD_FILE}"))


def located(place: Path | str) -> Path:
    """The folder of `agent:NAME`; anything else is a path as it stands."""
    text = str(place)
    if not text.startswith(PREFIX):
        return Path(place)
    name = text.removeprefix(PREFIX)
    if name not in names():
        raise unknown_name("agent", name, names())
    return FOLDER / name
