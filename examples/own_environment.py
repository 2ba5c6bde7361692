"""ELLA on an environment of your own, with Stable-Baselines3.

A town with four shops and four customers on a grid, and errands such as "bring bread to the baron":
first to the right shop, which gives its goods for those you carry, then to the right customer. Only
a finished errand is rewarded. The low-level instructions are "visit the bakery" and so on, and
whether one has been carried out can be read off the observation, so the judge is one line.

    python examples/own_environment.py                # with ELLA, about two minutes on one core
    python examples/own_environment.py --plain        # without
    python examples/own_environment.py --compare results/own-environment.json    # both, eight seeds
"""

import argparse
import json
import logging
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from ella import HostElla, ShapedVecEnv
from ella.adapters.stable_baselines3 import EllaLog
from ella.intervals import SHARE, student_t
from ella.networks.settings import RelevanceNetworkSettings
from ella.shaping.settings import RelevanceSettings

SIZE = 15
MIDDLE, EDGE = SIZE // 2, SIZE - 1
GOODS = ("bread", "roses", "nails", "ink")
SHOPS = ("bakery", "garden", "smithy", "printer")
CUSTOMERS = ("baron", "painter", "sailor", "widow")
PLACES = {
    (0, 0): "bakery", (0, EDGE): "garden", (EDGE, 0): "smithy", (EDGE, EDGE): "printer",
    (0, MIDDLE): "baron", (MIDDLE, 0): "painter", (MIDDLE, EDGE): "sailor", (EDGE, MIDDLE): "widow",
}  # fmt: skip
MOVES = ((0, -1), (0, 1), (-1, 0), (1, 0))
HORIZON = 100
LOW_LEVEL = [f"visit the {place}" for place in PLACES.values()]
COMPARED_SEEDS = tuple(range(8))


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
        self._row, self._column = self.np_random.integers(SIZE, size=2).tolist()
        self._wanted = int(self.np_random.integers(len(GOODS)))
        self._customer = int(self.np_random.integers(len(CUSTOMERS)))
        self._carried: int | None = None
        self._steps = 0
        mission = f"bring {GOODS[self._wanted]} to the {CUSTOMERS[self._customer]}"
        return self._observation(), {"mission": mission}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        down, right = MOVES[action]
        self._row = min(max(self._row + down, 0), SIZE - 1)
        self._column = min(max(self._column + right, 0), SIZE - 1)
        place = PLACES.get((self._row, self._column))
        if place in SHOPS:
            self._carried = SHOPS.index(place)
        delivered = place == CUSTOMERS[self._customer] and self._carried == self._wanted
        reward = 1 - 0.9 * self._steps / HORIZON if delivered else 0.0
        return self._observation(), reward, delivered, self._steps >= HORIZON, {}

    def _observation(self) -> np.ndarray:
        seen = np.zeros(self.observation_space.shape or 0, np.float32)
        seen[self._row * SIZE + self._column] = 1
        carried, wanted, customer = SIZE * SIZE + len(GOODS) * np.arange(3)
        if self._carried is not None:
            seen[carried + self._carried] = 1
        seen[[wanted + self._wanted, customer + self._customer]] = 1
        return seen


def visited(observations: np.ndarray) -> np.ndarray:
    """The judge, bool[B, L]: at which place the agent stands."""
    return observations[:, [row * SIZE + column for row, column in PLACES]] > 0


class TenthsDone(BaseCallback):
    """Prints how far training has come."""

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        done, total = self.num_timesteps, self.model._total_timesteps
        before = done - self.model.n_steps * self.training_env.num_envs
        if 10 * done // total > 10 * before // total:
            print(f"  {done:,} of {total:,} steps", flush=True)


def trained(steps: int, seed: int, *, plain: bool) -> tuple[PPO, HostElla | None]:
    """PPO after so many steps, with or without ELLA."""
    envs = make_vec_env(Errands, n_envs=32, seed=seed)
    ella = None
    if not plain:
        ella = HostElla(
            LOW_LEVEL,
            visited,
            bonus_share=0.05,
            discount=0.99,  # of PPO below
            relevance=RelevanceSettings(network=RelevanceNetworkSettings(comparison="windows")),
            max_instructions=32,
            max_words=8,
            vocabulary=64,
            seed=seed,
        )
        envs = ShapedVecEnv(envs, ella)
    model = PPO(
        "MlpPolicy", envs, gamma=0.99, n_steps=64, batch_size=512, n_epochs=4, ent_coef=0.01,
        learning_rate=1e-3, seed=seed, device="cpu",
    )  # fmt: skip
    log = [EllaLog(ella)] if ella else []
    model.learn(steps, callback=[*log, TenthsDone()])
    return model, ella


def finished(model: PPO, episodes: int, seed: int) -> float:
    """The share of fresh errands that the policy finishes, without ELLA, actions sampled."""
    fresh = make_vec_env(Errands, n_envs=16, seed=seed + 1000)
    rewards, _ = evaluate_policy(
        model, fresh, n_eval_episodes=episodes, deterministic=False, return_episode_rewards=True
    )
    return float(np.mean(np.array(rewards) > 0))


def compare(path: Path, steps: int, episodes: int, seeds: tuple[int, ...] = COMPARED_SEEDS) -> None:
    """Train with and without ELLA from the same seeds, one after the other, and write a table."""
    found: dict[str, list[float]] = {"ella": [], "plain": []}
    seconds: dict[str, list[float]] = {"ella": [], "plain": []}
    for seed in seeds:
        for method in found:
            before = time.process_time()
            model, _ = trained(steps, seed, plain=method == "plain")
            seconds[method].append(time.process_time() - before)
            found[method].append(finished(model, episodes, seed))
            print(f"seed {seed}, {method}: {found[method][-1]:.1%}", flush=True)
    gain = np.subtract(found["ella"], found["plain"])
    intervals = {name: student_t(np.array(values), SHARE) for name, values in found.items()}
    intervals["gain"] = student_t(gain)
    table = {
        "command": f"python examples/own_environment.py --steps {steps} --episodes {episodes} "
        "--compare results/own-environment.json",
        "what": f"share of {episodes} fresh errands finished by Stable-Baselines3's PPO after "
        f"{steps:,} frames (one step of one environment each), actions sampled; intervals are "
        "95 % Student-t intervals of the mean over seeds, of the paired differences for the gain",
        "device": "one core of a CPU",
        "frames": steps,
        "seeds": list(seeds),
        **{name: [round(value, 4) for value in values] for name, values in found.items()},
        "mean_and_interval": {
            name: [round(number, 4) for number in (one.value, one.low, one.high)]
            for name, one in intervals.items()
        },
        "cpu_seconds_per_run": {
            name: round(float(np.mean(values)), 1) for name, values in seconds.items()
        },
    }
    path.write_text(json.dumps(table, indent=2) + "\n")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--steps", type=int, default=400_000)
    arguments.add_argument("--plain", action="store_true", help="without ELLA")
    arguments.add_argument("--episodes", type=int, default=200, help="to measure it with")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument(
        "--compare", type=Path, metavar="FILE", help="write both, eight seeds each, to a file"
    )
    chosen = arguments.parse_args()
    logging.basicConfig(level=logging.WARNING)
    torch.set_num_threads(1)
    if chosen.compare:
        compare(chosen.compare, chosen.steps, chosen.episodes)
        return
    model, ella = trained(chosen.steps, chosen.seed, plain=chosen.plain)
    done = finished(model, chosen.episodes, chosen.seed)
    print(f"errands finished: {done:.1%} of {chosen.episodes}")
    if ella is not None:
        print("bring ink to the widow:")
        for low_level, probability in ella.relevance("bring ink to the widow").items():
            print(f"  {probability:6.1%}  {low_level}")


if __name__ == "__main__":
    main()
