"""ELLA on a vector environment whose observations are plain numbers: errands of a point mass.

A point is pushed about the unit square. "bring bread to the baron" means: fetch a purse at the
bank, buy the bread at the bakery, hand it to the baron. A shop sells only to those with a purse,
and exchanges what is carried; only a finished errand is rewarded. All environments are stepped at
once in NumPy (`gymnasium.vector.VectorEnv`), and PPO is the loop of cleanrl_ppo.py.

    python examples/recipes/vector_errands.py --seeds 5 --frames 2000000
"""

from typing import Any

import numpy as np
import torch
from cleanrl_ppo import Agent, Settings, layer, learn
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from paired_runs import Outcome, Run, main
from torch import nn

from ella import HostElla
from ella.networks.settings import RelevanceNetworkSettings
from ella.shaping.settings import RelevanceSettings

NAME = "PointErrands"
GOODS = ("bread", "roses", "nails", "ink")
PLACES = {
    "bank": (0.5, 0.5),
    "bakery": (0.1, 0.1), "garden": (0.9, 0.1), "smithy": (0.1, 0.9), "printer": (0.9, 0.9),
    "baron": (0.5, 0.1), "painter": (0.1, 0.5), "sailor": (0.9, 0.5), "widow": (0.5, 0.9),
}  # fmt: skip
BANK, SHOPS, CUSTOMERS = 0, slice(1, 5), slice(5, 9)
CUSTOMER_NAMES = tuple(PLACES)[CUSTOMERS]
LOW_LEVEL = tuple(f"visit the {place}" for place in PLACES)
CENTRES = np.array(list(PLACES.values()), np.float32)
RADIUS = 0.1
PUSHES = np.array([(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)], np.float32)
THRUST, FRICTION = 0.012, 0.8
HORIZON = 150
POSITION, WIDTH = slice(0, 2), 17
"""An observation: position 2, velocity 2, purse 1, carried 4, wanted 4, customer 4."""


class PointErrands(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """B errands at once. `infos["mission"]` has the sentences; episodes reset in the step that
    ends them."""

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.single_observation_space = spaces.Box(-1.0, 1.0, (WIDTH,), np.float32)
        self.single_action_space = spaces.Discrete(len(PUSHES))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        count = self.num_envs
        self._position = np.zeros((count, 2), np.float32)
        self._velocity = np.zeros((count, 2), np.float32)
        self._purse = np.zeros(count, bool)
        self._carried = np.full(count, -1)  # a good, or -1 for nothing
        self._wanted = np.zeros(count, int)
        self._customer = np.zeros(count, int)
        self._steps = np.zeros(count, int)
        self._begin(np.ones(count, bool))
        return self._observations(), {"mission": self._missions()}

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        self._steps += 1
        self._velocity = FRICTION * self._velocity + THRUST * PUSHES[actions]
        moved = self._position + self._velocity
        self._position = np.clip(moved, 0, 1)
        self._velocity[moved != self._position] = 0  # walls
        at = visited(self._position)
        self._purse |= at[:, BANK]
        shops = at[:, SHOPS] & self._purse[:, None]
        self._carried = np.where(shops.any(1), shops.argmax(1), self._carried)
        there = at[:, CUSTOMERS][np.arange(self.num_envs), self._customer]
        terminated = there & (self._carried == self._wanted)
        truncated = ~terminated & (self._steps >= HORIZON)
        rewards = np.where(terminated, 1 - 0.9 * self._steps / HORIZON, 0.0)
        done = terminated | truncated
        infos: dict[str, Any] = {}
        if done.any():
            infos = {"final_obs": self._observations(), "_final_obs": done}
            self._begin(done)
        infos["mission"] = self._missions()
        return self._observations(), rewards, terminated, truncated, infos

    def _begin(self, which: np.ndarray) -> None:
        """New errands for some environments."""
        count = int(which.sum())
        self._position[which] = self.np_random.uniform(size=(count, 2))
        self._velocity[which] = 0
        self._purse[which] = False
        self._carried[which] = -1
        self._wanted[which] = self.np_random.integers(len(GOODS), size=count)
        self._customer[which] = self.np_random.integers(len(CUSTOMER_NAMES), size=count)
        self._steps[which] = 0

    def _observations(self) -> np.ndarray:
        one_hot = np.eye(len(GOODS) + 1, len(GOODS), dtype=np.float32)  # its last row is nothing
        return np.concatenate(
            [
                self._position,
                self._velocity / (THRUST / (1 - FRICTION)),
                self._purse[:, None],
                one_hot[self._carried],
                one_hot[self._wanted],
                one_hot[self._customer],
            ],
            axis=1,
            dtype=np.float32,
        )

    def _missions(self) -> np.ndarray:
        return np.array(
            [
                f"bring {GOODS[wanted]} to the {CUSTOMER_NAMES[customer]}"
                for wanted, customer in zip(self._wanted, self._customer, strict=True)
            ],
            object,
        )


def visited(positions: np.ndarray) -> np.ndarray:
    """bool[B, 9]: at which place each point [B, 2] is. Places do not overlap."""
    return np.linalg.norm(positions[:, None] - CENTRES, axis=-1) < RADIUS


def judge(observations: np.ndarray) -> np.ndarray:
    """bool[B, 9], read off the position."""
    return visited(observations[:, POSITION])


def host_ella(seed: int, discount: float) -> HostElla:
    return HostElla(
        LOW_LEVEL,
        judge,
        discount=discount,
        relevance=RelevanceSettings(network=RelevanceNetworkSettings(comparison="windows")),
        max_instructions=128,
        max_words=8,
        vocabulary=64,
        seed=seed,
    )


def train(run: Run) -> Outcome:
    torch.set_num_threads(1)
    torch.manual_seed(run.seed)
    settings = Settings(num_envs=64, rollout=128, learning_rate=1e-3)
    envs = PointErrands(settings.num_envs)
    ella = host_ella(run.seed, settings.discount) if run.shaped else None
    hidden = [layer(nn.Linear(WIDTH, 128)), nn.Tanh(), layer(nn.Linear(128, 128)), nn.Tanh()]
    agent = Agent(nn.Sequential(*hidden), 128, len(PUSHES))
    return Outcome(learn(envs, agent, ella, run.frames, run.seed, settings), ella)


if __name__ == "__main__":
    main("vector_errands", __doc__, train, (NAME,), frames=2_000_000)
