"""ELLA on an environment of your own, with Stable-Baselines3.

A town with four shops and four customers on a grid, and errands such as "bring bread to the baron":
first to the right shop, which gives its goods for those you carry, then to the right customer. Only
a finished errand is rewarded. The low-level instructions are "visit the bakery" and so on, and
whether one has been carried out can be read off the observation, so the judge is one line.

    python examples/own_environment.py --steps 300000              # with ELLA
    python examples/own_environment.py --steps 300000 --plain      # without
"""

import argparse
from typing import Any

import gymnasium
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import CallbackList
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from ella.adapters.host_ella import HostElla
from ella.adapters.stable_baselines3 import EllaLog, ShapedVecEnv
from ella.networks.settings import RelevanceNetworkSettings
from ella.shaping.settings import RelevanceSettings

SIZE = 11
GOODS = ("bread", "roses", "nails", "ink")
SHOPS = ("bakery", "garden", "smithy", "printer")
CUSTOMERS = ("baron", "painter", "sailor", "widow")
PLACES = {
    (0, 0): "bakery", (0, 10): "garden", (10, 0): "smithy", (10, 10): "printer",
    (0, 5): "baron", (5, 0): "painter", (5, 10): "sailor", (10, 5): "widow",
}  # fmt: skip
MOVES = ((0, -1), (0, 1), (-1, 0), (1, 0))
HORIZON = 60
LOW_LEVEL = [f"visit the {place}" for place in PLACES.values()]


class Errands(gymnasium.Env[np.ndarray, Any]):
    """The observation says where the agent is, what it carries and what is wanted by whom."""

    def __init__(self) -> None:
        size = SIZE * SIZE + 2 * len(GOODS) + len(CUSTOMERS)
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (size,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(len(MOVES))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._cell = self.np_random.integers(SIZE, size=2)
        self._wanted = int(self.np_random.integers(len(GOODS)))
        self._customer = int(self.np_random.integers(len(CUSTOMERS)))
        self._carried, self._steps = -1, 0
        mission = f"bring {GOODS[self._wanted]} to the {CUSTOMERS[self._customer]}"
        return self._observation(), {"mission": mission}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        self._cell = np.clip(self._cell + MOVES[action], 0, SIZE - 1)
        place = PLACES.get(tuple(self._cell.tolist()))
        if place in SHOPS:
            self._carried = SHOPS.index(place)
        delivered = place == CUSTOMERS[self._customer] and self._carried == self._wanted
        reward = 1 - 0.9 * self._steps / HORIZON if delivered else 0.0
        return self._observation(), reward, delivered, self._steps >= HORIZON, {}

    def _observation(self) -> np.ndarray:
        return np.concatenate(
            [
                np.arange(SIZE * SIZE) == self._cell @ (SIZE, 1),
                np.arange(len(GOODS)) == self._carried,
                np.arange(len(GOODS)) == self._wanted,
                np.arange(len(CUSTOMERS)) == self._customer,
            ]
        ).astype(np.float32)


def visited(observations: np.ndarray) -> np.ndarray:
    """The judge, bool[B, L]: at which place the agent stands."""
    return observations[:, [row * SIZE + column for row, column in PLACES]] > 0


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--steps", type=int, default=300_000)
    arguments.add_argument("--plain", action="store_true", help="without ELLA")
    arguments.add_argument("--episodes", type=int, default=400, help="to measure it with")
    arguments.add_argument("--seed", type=int, default=0)
    chosen = arguments.parse_args()

    envs = make_vec_env(Errands, n_envs=16, seed=chosen.seed)
    callbacks = []
    ella = None
    if not chosen.plain:
        ella = HostElla(
            LOW_LEVEL,
            visited,
            bonus=0.05,
            discount=0.99,
            relevance=RelevanceSettings(network=RelevanceNetworkSettings(hidden_size=32)),
            update_every=4096,
            max_instructions=64,
            seed=chosen.seed,
        )
        envs = ShapedVecEnv(envs, ella)
        callbacks.append(EllaLog(ella))
    model = PPO(
        "MlpPolicy", envs, n_steps=128, batch_size=512, ent_coef=0.01, seed=chosen.seed, verbose=1,
        device="cpu",
    )  # fmt: skip
    model.learn(chosen.steps, callback=CallbackList(callbacks), log_interval=20)

    fresh = make_vec_env(Errands, n_envs=16, seed=chosen.seed + 1000)
    rewards, _ = evaluate_policy(
        model,
        fresh,
        n_eval_episodes=chosen.episodes,
        deterministic=False,
        return_episode_rewards=True,
    )
    print(f"errands finished: {np.mean(np.array(rewards) > 0):.1%} of {chosen.episodes}")
    if ella is not None:
        print("bring ink to the widow:")
        for low_level, probability in ella.relevance("bring ink to the widow").items():
            print(f"  {probability:6.1%}  {low_level}")


if __name__ == "__main__":
    main()
