"""Two of minigrid's environments with low-level instructions and a judge for them.

Both have one instruction for all episodes, so relevance has little to choose between: ELLA is here
a bonus for subgoals that every success gives back. The low-level instructions name no colours.
Those of `ella.adapters.babyai_judge` do, and the keys of two successes of "open the door" rarely
share one: what successes had in common would be nothing.
"""

from typing import Any

import gymnasium
import minigrid  # noqa: F401, registers its environments
import numpy as np

from ella import HostElla
from ella.adapters.minigrid_tokens import BABYAI_WORDS, TokenMissions
from ella.networks.settings import RelevanceNetworkSettings
from ella.shaping.settings import RelevanceSettings
from ella.world.encoding import DOOR, KEY, OPEN

UNLOCK, DOORKEY = "BabyAI-UnlockLocal-v0", "MiniGrid-DoorKey-8x8-v0"
ENVS = (UNLOCK, DOORKEY)
WORDS = (*BABYAI_WORDS, "use", "get", "goal")
MAX_WORDS = 13
"""Of DoorKey's mission."""
HAND, AHEAD = (3, 6), (3, 5)
"""Cells of the agent's view: its own, which shows what it carries, and the one in front of it."""
SMALL_FEATURES = {"features_dim": 64, "cell_width": 8, "word_width": 16}
"""Of `BabyAIFeatures`, smaller than its own for speed; their learning was not compared."""
LOW_LEVEL = ("go to the key", "pick up the key", "go to the door", "open the door")
SOLUTION_STEPS = 60
"""More than a solution takes, for the bound of the bonus."""


def make(env: str) -> gymnasium.Env[Any, Any]:
    """Observations with the mission as token ids, which batch."""
    return TokenMissions(gymnasium.make(env), words=WORDS, max_words=MAX_WORDS)


def judge(observations: dict[str, np.ndarray]) -> np.ndarray:
    """bool[B, 4], read off the agent's view uint8[B, 7, 7, 3] of types, colours and states."""
    types, states = observations["image"][..., 0], observations["image"][..., 2]
    ahead = types[:, *AHEAD]
    opened = ((types == DOOR) & (states == OPEN)).any((1, 2))
    return np.stack([ahead == KEY, types[:, *HAND] == KEY, ahead == DOOR, opened], axis=1)


def host_ella(env: str, seed: int, discount: float) -> HostElla:
    """ELLA for one of the two; on UnlockLocal an open door is the success itself."""
    count = 3 if env == UNLOCK else 4
    return HostElla(
        LOW_LEVEL[:count],
        lambda observations: judge(observations)[:, :count],
        solution_steps=SOLUTION_STEPS,
        discount=discount,
        relevance=RelevanceSettings(network=RelevanceNetworkSettings(hidden_size=32)),
        max_instructions=32,
        max_words=MAX_WORDS,
        vocabulary=64,
        seed=seed,
    )
