"""The example's town for tests: an ELLA of small sizes, and a runner who carries out errands."""

import numpy as np
from own_environment import CUSTOMERS, LOW_LEVEL, MOVES, PLACES, SHOPS, SIZE, visited

from ella.adapters.host_ella import HostElla
from ella.networks.settings import RelevanceNetworkSettings
from ella.shaping.settings import RelevanceSettings, RelevanceTrainingSettings

DISCOUNT = 0.9
# Successes are charged in full, unless a test sets another solvency.
PAYING = {"bonus_share": 0.1, "discount": DISCOUNT, "solvency": None}
SMALL = RelevanceSettings(
    network=RelevanceNetworkSettings(comparison="windows", hidden_size=32),
    training=RelevanceTrainingSettings(learning_rate=1e-3),
)
# All of one size, so that the programs of one test are those of the others.
SIZES = {"max_instructions": 32, "max_words": 8, "vocabulary": 64, "relevance": SMALL}


def errands_ella(**options) -> HostElla:
    return HostElla(LOW_LEVEL, visited, **(PAYING | SIZES | options))


def standing_at(*places: str) -> np.ndarray:
    """Observations of agents that stand at these places and carry nothing."""
    seen = np.zeros((len(places), SIZE * SIZE + 12), np.float32)
    cells = {name: row * SIZE + column for (row, column), name in PLACES.items()}
    seen[np.arange(len(places)), [cells[place] for place in places]] = 1
    return seen


class Runner:
    """Carries out errands, sometimes wandering about, and calls elsewhere first."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._detour: str | None = None

    def action(self, observation: np.ndarray, first: bool) -> int:
        cells, rest = np.split(observation, [SIZE * SIZE])
        carried, wanted, customer = np.split(rest, 3)
        cell = divmod(int(cells.argmax()), SIZE)
        if first:
            self._detour = str(self._random.choice(list(PLACES.values())))
        if PLACES.get(cell) == self._detour:
            self._detour = None
        shop, buyer = SHOPS[wanted.argmax()], CUSTOMERS[customer.argmax()]
        place = self._detour or (buyer if carried @ wanted else shop)
        towards = np.subtract(next(spot for spot, name in PLACES.items() if name == place), cell)
        if self._random.random() < 0.1 or not towards.any():
            return int(self._random.integers(len(MOVES)))
        axis = int(np.abs(towards).argmax())
        return next(i for i, move in enumerate(MOVES) if move[axis] == np.sign(towards[axis]))
