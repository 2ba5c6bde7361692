"""What a training run can be told, apart from its task."""

import math
from dataclasses import dataclass, field
from pathlib import Path

from ella.errors import InputError
from ella.offline.settings import ActionFrequencyTrainingSettings, TerminationTrainingSettings
from ella.ppo.settings import PPOSettings
from ella.shaping.noveld import NoveldSettings
from ella.shaping.relevance import OracleSettings, RelevanceSettings
from ella.shaping.ride import RideSettings
from ella.shaping.rnd import RndSettings


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
class EllaOptions:
    """ELLA: a bonus for completing relevant low-level instructions."""

    bonus: float | None = None
    """Lambda, in units of the scaled reward; by default the paper's for the task (0.25, and 0.5
    for openpick-maze and sequence-maze)."""
    recheck: bool = True
    """Whether a low-level instruction that was not relevant when first completed can still be paid
    for once it is (the released code); off, relevance counts at the first completion only."""
    neutralise: bool = True
    """Whether a success takes the episode's bonuses back with its last reward."""
    last_state: bool = False
    """Whether what a success's last action carried out counts among what the success completed; the
    released code never looks at the state after an episode's last action."""
    optimal_steps: int | None = None
    """The most steps an optimal solution is assumed to need; a bonus beyond the bound that follows
    is warned of. By default what the paper's lambda rests on, 40, and the horizon for
    openpick-maze, sequence-maze and tasks of your own."""
    max_completions: int | None = None
    """The most low-level instructions one episode is assumed to complete, for the same bound; all
    by default."""
    termination: TerminationTrainingSettings = field(default_factory=TerminationTrainingSettings)
    """The termination classifier, trained offline."""
    examples: Path | None = None
    """File of labelled examples to train the termination classifier from, instead of the expert."""
    relevance: RelevanceSettings = field(default_factory=RelevanceSettings)
    """The relevance classifier, trained online (ella)."""
    oracle: OracleSettings = field(default_factory=OracleSettings)
    """True relevance in its place (ella-oracle)."""

    def __post_init__(self) -> None:
        if self.bonus is not None and not 0 <= self.bonus < math.inf:
            raise InputError(f"ella.bonus must not be negative, not {self.bonus:g}")


@dataclass(frozen=True)
class LearnOptions:
    """LEARN: a potential from how well the actions so far fit the instruction."""

    coefficient: float = 0.01
    """Of the potential's change, in units of the scaled reward."""
    training: ActionFrequencyTrainingSettings = field(
        default_factory=ActionFrequencyTrainingSettings
    )
    """The action frequency classifier, trained offline."""


@dataclass(frozen=True)
class Settings:
    """A training run. The defaults are the paper's."""

    method: str = "ppo"
    """Reward shaping: ppo (none), ella, ella-oracle, learn, ride, rnd, noveld, or several joined by
    '+'."""
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
    ppo: PPOSettings = field(default_factory=PPOSettings)
    """The learner."""
    ella: EllaOptions = field(default_factory=EllaOptions)
    """Methods ella and ella-oracle."""
    learn: LearnOptions = field(default_factory=LearnOptions)
    """Method learn."""
    ride: RideSettings = field(default_factory=RideSettings)
    """Method ride."""
    rnd: RndSettings = field(default_factory=RndSettings)
    """Method rnd."""
    noveld: NoveldSettings = field(default_factory=NoveldSettings)
    """Method noveld."""
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

    @property
    def total_frames(self) -> int:
        """Frames of each seed in the whole run: whole iterations."""
        return self.iterations * self.ppo.frames_per_iteration
