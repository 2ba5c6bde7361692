"""minigrid's own environments with missions as token ids, which batch and which networks read."""

import re
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ella.errors import InputError
from ella.world.encoding import NUM_COLOURS, NUM_TYPES
from ella.world.grammar import VOCABULARY

BABYAI_WORDS = (*VOCABULARY, "object", "in", "front", "of", "behind", "on", "your", "left", "right")
"""Every word of minigrid's BabyAI levels; the tokens of the first are those of ELLA's own tasks."""
NUM_DIRECTIONS = 4
"""The largest number of states a cell can show: the agent's directions, in views of everything."""


class TokenMissions(gymnasium.ObservationWrapper[dict[str, Any], Any, dict[str, Any]]):
    """A minigrid environment whose observations are those of `EllaEnv`.

    `mission` becomes int32[max_words], token ids padded with 0; `info["mission"]` keeps the
    sentence. `image` keeps its numbers, but not the bounds of a picture: Stable-Baselines3 would
    transpose and scale it.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        *,
        words: tuple[str, ...] = BABYAI_WORDS,
        max_words: int = 24,
    ) -> None:
        """`words` is the vocabulary: token ids start at 1 in its order."""
        super().__init__(env)
        self._ids = {word: index for index, word in enumerate(words, start=1)}
        self._max_words = max_words
        space = env.observation_space
        if not isinstance(space, spaces.Dict) or not {"image", "mission"} <= space.spaces.keys():
            raise InputError("TokenMissions needs observations with 'image' and 'mission'")
        shape = space["image"].shape
        if shape is None or len(shape) != 3 or shape[-1] != 3:
            raise InputError(
                f"TokenMissions needs minigrid's image [width, height, 3], got {shape}"
            )
        highest = np.array([NUM_TYPES - 1, NUM_COLOURS - 1, NUM_DIRECTIONS - 1], np.uint8)
        high = np.broadcast_to(highest, shape)
        self.observation_space = spaces.Dict(
            {
                **space.spaces,
                "image": spaces.Box(np.zeros_like(high), high.copy(), dtype=np.uint8),
                "mission": spaces.Box(0, len(words), (max_words,), np.int32),
            }
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return self.observation(observation), {**info, "mission": observation["mission"]}

    def step(self, action: Any) -> tuple[dict[str, Any], Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        info = {**info, "mission": observation["mission"]}
        return self.observation(observation), reward, terminated, truncated, info

    def observation(self, observation: dict[str, Any]) -> dict[str, Any]:
        return {**observation, "mission": self._tokens(observation["mission"])}

    def _tokens(self, mission: str) -> np.ndarray:
        words = re.findall(r"\w+", mission.lower())
        if len(words) > self._max_words:
            raise InputError(
                f"'{mission}' has {len(words)} words, more than {self._max_words}; raise max_words"
            )
        if unknown := [word for word in words if word not in self._ids]:
            raise InputError(
                f"'{unknown[0]}' of the mission '{mission}' is not in the vocabulary; give "
                "TokenMissions all words of the environment as words=(...)"
            )
        tokens = np.zeros(self._max_words, np.int32)
        tokens[: len(words)] = [self._ids[word] for word in words]
        return tokens
