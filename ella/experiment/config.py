"""What a training run can be told, apart from its task."""

import math
from dataclasses import dataclass, field

from ella.errors import InputError
from ella.ppo.settings import PPOConfig


@dataclass(frozen=True)
class LogSettings:
    """What a run writes down, and how often."""

    every: int = 20
    """Iterations between two log lines; all of them are one compiled call."""
    checkpoint_every: int = 200
    """Iterations between two checkpoints, rounded up to whole log lines."""
    keep: int = 2
    """Checkpoints kept: the newest ones."""
    tensorboard: bool = True
    """Whether to write TensorBoard events, one directory per seed."""
    wandb: str | None = None
    """Weights & Biases project to log to; needs the wandb package."""

    def __post_init__(self) -> None:
        for name in ("every", "checkpoint_every", "keep"):
            if getattr(self, name) < 1:
                raise InputError(f"log.{name} must be at least 1, not {getattr(self, name)}")


@dataclass(frozen=True)
class Settings:
    """A training run. The defaults are the paper's."""

    method: str = "ppo"
    """Reward shaping: ppo (none), ella, ella-oracle, or several joined by '+'."""
    seeds: int = 1
    """Agents trained side by side, each from its own random seed."""
    frames: int = 10_000_000
    """Environment steps of each seed, rounded up to whole iterations. One frame is one step of one
    environment of one seed."""
    seed: int = 0
    """The first random seed; the others follow it."""
    devices: int = 0
    """Devices to spread the seeds over, 0 for all. Each device trains whole seeds; if the seeds do
    not divide evenly, fewer devices are used."""
    ppo: PPOConfig = field(default_factory=PPOConfig)
    """The learner."""
    log: LogSettings = field(default_factory=LogSettings)
    """Log lines and checkpoints."""

    def __post_init__(self) -> None:
        for name in ("seeds", "frames"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.devices < 0:
            raise InputError(f"devices must not be negative, not {self.devices}")
        if not 0 <= self.seed <= 2**32 - self.seeds:
            raise InputError(f"seed must lie between 0 and 2^32 - seeds, not {self.seed}")

    @property
    def seed_numbers(self) -> tuple[int, ...]:
        """The random seed of each agent."""
        return tuple(range(self.seed, self.seed + self.seeds))

    @property
    def iterations(self) -> int:
        """Iterations in the whole run."""
        return math.ceil(self.frames / self.ppo.frames_per_iteration)
