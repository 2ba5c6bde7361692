"""Settings of a training run, apart from its task. Importing this module starts no JAX."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from ella.errors import InputError, unknown_name
from ella.methods.method import PAPER, Method
from ella.methods.ppo import PPO
from ella.methods.registry import all_methods, classes_of, summed
from ella.ppo.settings import CurriculumSettings, PPOSettings
from ella.schedule import whole_iterations
from ella.setting_checks import require_at_least
from ella.settings_table import to_json, updated

if TYPE_CHECKING:
    from ella.world.mixtures import Task
    from ella.world.tasks import TaskSpec


NO_OPTION = "no_option"
"""Marks a field that is no option of its own on the command line."""
MAX_FRAMES = 10**15
MAX_SEEDS = 2**16
"""Far more than fit on a device; larger numbers would fill the memory before they are refused."""
"""Of a seed: more than any machine trains."""


@dataclass(frozen=True)
class LogSettings:
    """What a run writes down, and how often."""

    every: int = 51_200
    """Frames of a seed between two log lines, rounded to the nearest whole number of iterations, at
    least 1; all of them are one compiled call."""
    checkpoint_every: int = 512_000
    """Frames of a seed between two checkpoints, rounded likewise, and up to whole log lines."""
    keep: int = 2
    """Checkpoints kept: the newest ones."""
    tensorboard: bool = True
    """Whether to write TensorBoard events, one directory per seed."""
    wandb: str | None = None
    """Weights & Biases project to log to; needs the wandb package."""

    def __post_init__(self) -> None:
        for name in ("every", "checkpoint_every", "keep"):
            if getattr(self, name) < 1:
                raise InputError(f"log.{name} must be >= 1, got {getattr(self, name)}")


@dataclass(frozen=True)
class TrainingSettings:
    """A training run. The defaults are the paper's."""

    method: Method = field(default_factory=PPO, metadata={NO_OPTION: True})
    """Reward shaping; a sum of methods adds their bonuses."""
    seeds: int = 1
    """Agents trained side by side, each from its own random seed."""
    frames: int = 10_000_000
    """Environment steps of each seed, rounded up to whole iterations. One frame is one step of one
    environment of one seed."""
    until: float | None = None
    """Success rate at which training ends before all frames are trained: once every seed has it at
    three log lines in a row."""
    seed: int = 0
    """The first random seed; the others follow it."""
    devices: int = 0
    """Devices to spread the seeds over, 0 for all. Each device trains whole seeds; if the seeds do
    not divide evenly, fewer devices are used."""
    also: tuple[str, ...] = ()
    """Further tasks to train on in the same batch, as TASK or TASK:WEIGHT; the trained task has
    weight 1. The agent is evaluated on the trained task alone."""
    start_from: str | None = None
    """A run, a policy file or agent:NAME: every seed starts from that agent's network, not from a
    new one. The networks' settings must be the same."""
    ppo: PPOSettings = field(default_factory=PPOSettings)
    """The learner."""
    curriculum: CurriculumSettings = field(default_factory=CurriculumSettings)
    """How levels are drawn where several tasks are trained on."""
    log: LogSettings = field(default_factory=LogSettings)
    """Log lines and checkpoints."""

    def __post_init__(self) -> None:
        require_at_least(self, 1, "seeds", "frames")
        if self.frames > MAX_FRAMES:
            raise InputError(f"frames must be <= {MAX_FRAMES:g}")
        if self.seeds > MAX_SEEDS:
            raise InputError(f"seeds must be <= {MAX_SEEDS:,}, got {self.seeds:,}")
        require_at_least(self, 0, "devices")
        if self.until is not None and not 0 < self.until <= 1:
            raise InputError(f"until is a success rate in (0, 1], got {self.until}")
        if not 0 <= self.seed <= 2**32 - self.seeds:
            raise InputError(f"seed must lie in [0, 2^32 - seeds], got {self.seed}")

    def resolved(self, task: "TaskSpec") -> "TrainingSettings":
        """These settings with every default that depends on the task filled in."""
        self.method.check_seeds(self.seeds)
        return replace(self, method=self.method.resolved(self.trained_task(task)))

    def trained_task(self, target: "TaskSpec") -> "Task":
        """What levels are drawn from: the target, mixed with the tasks of `also`."""
        from ella.world.mixtures import with_also

        return with_also(target, self.also)

    @property
    def seed_numbers(self) -> tuple[int, ...]:
        """The random seed of each agent."""
        return tuple(range(self.seed, self.seed + self.seeds))

    @property
    def iterations(self) -> int:
        """Iterations in the whole run."""
        return math.ceil(self.frames / self.ppo.frames_per_iteration)

    @property
    def log_iterations(self) -> int:
        """Iterations between two log lines."""
        return whole_iterations(self.log.every, self.ppo.frames_per_iteration)

    @property
    def checkpoint_iterations(self) -> int:
        """The fewest iterations between two checkpoints; they are written after log lines."""
        return whole_iterations(self.log.checkpoint_every, self.ppo.frames_per_iteration)

    @property
    def total_frames(self) -> int:
        """Frames of each seed in the whole run: whole iterations."""
        return self.iterations * self.ppo.frames_per_iteration


PLAIN_FIELDS = tuple(one.name for one in fields(TrainingSettings) if one.name != "method")
"""Settings that are not the method's."""


def to_table(settings: TrainingSettings) -> dict[str, Any]:
    """JSON values: `method` is a name, and each method in use has a table of that name."""
    table = {name: to_json(getattr(settings, name)) for name in PLAIN_FIELDS}
    methods = {part.name: to_json(part) for part in settings.method.parts if fields(part)}
    return {"method": settings.method.name, **table, **methods}


def from_table(
    table: Mapping[str, Any], default: TrainingSettings | None = None, *, where: str
) -> TrainingSettings:
    """`default` with what a table names. Tables of methods that are not in use are not read, so
    that one file may hold settings of several methods; `where` is for errors."""
    default = default or TrainingSettings()
    known = ("method", *PLAIN_FIELDS, *all_methods())
    for name in table:
        if name not in known:
            raise InputError(f"{where}: {unknown_name('setting', name, known)}")
    plain = {name: table[name] for name in PLAIN_FIELDS if name in table}
    settings = updated(default, plain, where=where)
    name = table.get("method", default.method.name)
    if not isinstance(name, str):
        raise InputError(f"{where}: method: {name!r} is not a name")
    method = with_method(settings, name).method
    parts = tuple(
        updated(part, table.get(part.name, {}), where=f"{where}: {part.name}")
        if fields(part)
        else part
        for part in method.parts
    )
    return replace(settings, method=summed(parts))


def with_method(settings: TrainingSettings, name: str, preset: str = PAPER) -> TrainingSettings:
    """The settings with the method of that name; parts it had already keep their settings, the
    others start from the preset's."""
    before = {part.name: part for part in settings.method.parts}
    parts = tuple(
        before.get(part_name) or part_class.preset(preset)
        for part_name, part_class in classes_of(name).items()
    )
    return replace(settings, method=summed(parts))
