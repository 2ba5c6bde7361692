"""A PPO loop in the manner of CleanRL, in one file, with and without ELLA.

ELLA is three calls: `HostElla(...)`, `ella.start(num_envs)` after the environments are reset, and
`bonus = ella.shape(...)` after every step. Everything else is the loop that you have already.

    python examples/recipes/cleanrl_ppo.py --env MiniGrid-DoorKey-8x8-v0 --seeds 5 --frames 500000
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from minigrid_tasks import DOORKEY, UNLOCK, host_ella, make
from paired_runs import Episodes, Outcome, Run, main
from torch import nn

from ella import HostElla
from ella.adapters.gymnasium_shaping import with_last


@dataclass(frozen=True)
class Settings:
    """Of the learner; the usual ones of PPO."""

    num_envs: int = 16
    rollout: int = 128
    """Steps of every environment between updates."""
    minibatches: int = 8
    epochs: int = 4
    learning_rate: float = 5e-4
    discount: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    entropy: float = 0.01
    value: float = 0.5
    max_gradient_norm: float = 0.5


class GridFeatures(nn.Module):
    """float[B, 64] of minigrid's views uint8[B, 7, 7, 3]: one-hot cells, two convolutions."""

    SIZES = (11, 6, 4)
    """Values of a cell's type, colour and state."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            layer(nn.Conv2d(sum(self.SIZES), 32, 3)), nn.ReLU(),
            layer(nn.Conv2d(32, 32, 3)), nn.ReLU(), nn.Flatten(),
            layer(nn.Linear(32 * 3 * 3, 64)), nn.ReLU(),
        )  # fmt: skip

    def forward(self, observations: dict[str, torch.Tensor]) -> torch.Tensor:
        image = observations["image"].long()
        cells = [
            nn.functional.one_hot(image[..., index], size) for index, size in enumerate(self.SIZES)
        ]
        return self.layers(torch.cat(cells, -1).float().movedim(-1, 1))


class Agent(nn.Module):
    """Actor and critic over shared features float[B, width]."""

    def __init__(self, features: nn.Module, width: int, num_actions: int) -> None:
        super().__init__()
        self.features = features
        self.actor = layer(nn.Linear(width, num_actions), gain=0.01)
        self.critic = layer(nn.Linear(width, 1), gain=1.0)

    def forward(self, observations: Any) -> tuple[torch.distributions.Categorical, torch.Tensor]:
        """The distribution of actions, and values float[B]."""
        features = self.features(observations)
        policy = torch.distributions.Categorical(logits=self.actor(features))
        return policy, self.critic(features)[:, 0]


def layer(module: Any, gain: float = 2**0.5) -> Any:
    nn.init.orthogonal_(module.weight, gain)
    nn.init.zeros_(module.bias)
    return module


def tensors(observations: Any) -> Any:
    """A batch of observations, an array or a dictionary of arrays, as tensors."""
    if isinstance(observations, dict):
        return {name: torch.as_tensor(part) for name, part in observations.items()}
    return torch.as_tensor(observations)


def stacked(steps: list[Any]) -> Any:
    """T batches [B, ...] as one [T * B, ...]."""
    if isinstance(steps[0], dict):
        return {name: stacked([step[name] for step in steps]) for name in steps[0]}
    return torch.cat(steps)


def chosen(observations: Any, rows: torch.Tensor) -> Any:
    if isinstance(observations, dict):
        return {name: part[rows] for name, part in observations.items()}
    return observations[rows]


def learn(
    envs: VectorEnv,
    agent: Agent,
    ella: HostElla | None,
    frames: int,
    seed: int,
    settings: Settings,
) -> Episodes:
    """Train `agent` for so many steps of all environments together. The environments reset
    themselves in the step that ends an episode (`AutoresetMode.SAME_STEP`)."""
    torch.manual_seed(seed)
    optimiser = torch.optim.Adam(agent.parameters(), settings.learning_rate, eps=1e-5)
    episodes = Episodes()
    observations, infos = envs.reset(seed=seed)
    missions = list(infos["mission"])
    first = np.ones(envs.num_envs, bool)
    if ella is not None:
        ella.start(envs.num_envs)

    done_frames = 0
    while done_frames < frames:
        seen, actions, log_probs, values, rewards, dones = [], [], [], [], [], []
        for _ in range(settings.rollout):
            batch = tensors(observations)
            with torch.no_grad():
                policy, value = agent(batch)
                action = policy.sample()
            after, reward, terminated, truncated, infos = envs.step(action.numpy())
            done, success = terminated | truncated, terminated & (reward > 0)
            done_frames += envs.num_envs

            bonus = np.zeros_like(reward)
            if ella is not None:
                bonus = ella.shape(
                    observations,  # before the action
                    missions,
                    first,
                    success,
                    done,
                    rewards=reward,
                    last_observations=with_last(after, infos),  # after it, before any reset
                )
            for index in np.flatnonzero(done).tolist():
                episodes.add(done_frames, bool(success[index]))
                missions[index] = infos["mission"][index]
            seen.append(batch)
            actions.append(action)
            log_probs.append(policy.log_prob(action))
            values.append(value)
            rewards.append(torch.as_tensor(reward + bonus, dtype=torch.float32))
            dones.append(torch.as_tensor(done, dtype=torch.float32))
            observations, first = after, done

        with torch.no_grad():
            _, next_value = agent(tensors(observations))
        advantages = [torch.zeros(envs.num_envs)] * settings.rollout
        running = torch.zeros(envs.num_envs)
        for step in reversed(range(settings.rollout)):
            going_on = 1 - dones[step]
            delta = rewards[step] + settings.discount * next_value * going_on - values[step]
            running = delta + settings.discount * settings.gae_lambda * going_on * running
            advantages[step], next_value = running, values[step]

        data = stacked(seen)
        flat_actions, old_log_probs = torch.cat(actions), torch.cat(log_probs)
        advantage = torch.cat(advantages)
        returns = advantage + torch.cat(values)
        for _ in range(settings.epochs):
            for rows in torch.randperm(len(advantage)).chunk(settings.minibatches):
                policy, value = agent(chosen(data, rows))
                ratio = (policy.log_prob(flat_actions[rows]) - old_log_probs[rows]).exp()
                gain = advantage[rows]
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
                loss = -torch.min(ratio * gain, clipped * gain).mean()
                loss = loss + settings.value * (value - returns[rows]).square().mean()
                loss = loss - settings.entropy * policy.entropy().mean()
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), settings.max_gradient_norm)
                optimiser.step()
    return episodes


def train(run: Run) -> Outcome:
    torch.set_num_threads(1)
    torch.manual_seed(run.seed)
    settings = Settings()
    envs = SyncVectorEnv(
        [lambda: make(run.env)] * settings.num_envs, autoreset_mode=AutoresetMode.SAME_STEP
    )
    ella = host_ella(run.env, run.seed, settings.discount) if run.shaped else None
    agent = Agent(GridFeatures(), 64, int(envs.single_action_space.n))
    episodes = learn(envs, agent, ella, run.frames, run.seed, settings)
    envs.close()
    return Outcome(episodes, ella)


if __name__ == "__main__":
    main("cleanrl_ppo", __doc__, train, (DOORKEY, UNLOCK), frames=500_000)
