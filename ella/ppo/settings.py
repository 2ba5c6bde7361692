"""Settings of recurrent PPO and of a mixture's curriculum."""

import math
from dataclasses import dataclass, field
from typing import Literal

from ella.errors import InputError
from ella.networks.settings import NetworkSettings
from ella.setting_checks import require_at_least, require_positive, require_within

MATMUL_PRECISIONS = {"tf32": "default", "float32": "highest"}
"""JAX's names. TF32 exists on GPUs only: elsewhere both mean full float32."""

_POSITIVE = (
    "learning_rate",
    "adam_epsilon",
    "clip_range",
    "value_clip_range",
    "max_gradient_norm",
    "reward_scale",
)
_NOT_NEGATIVE = ("entropy_coefficient", "value_coefficient")


@dataclass(frozen=True)
class PPOSettings:
    """One seed's settings. The defaults are those of the released code of the paper."""

    network: NetworkSettings = field(default_factory=NetworkSettings)
    """The policy network."""
    num_envs: int = 64
    """Environments per seed."""
    rollout_length: int = 40
    """Steps of every environment in one iteration."""
    bptt_length: int = 20
    """Steps gradients flow back through the memory; divides rollout_length."""
    epochs: int = 4
    """Passes over each rollout."""
    minibatch_frames: int = 1280
    """Frames of one gradient step: whole sequences of bptt_length, divides the rollout."""
    learning_rate: float = 1e-4
    """Adam's step size (the paper prints 7e-4, its scripts use 1e-4)."""
    decay_frames: int = 0
    """Frames over which the learning rate falls linearly to a tenth, where it stays; 0 keeps it
    constant."""
    frozen_frames: int = 0
    """Frames at the beginning in which the network is frozen but for the critic's head. For a
    network that starts from a trained agent: its values are those of another task, and until they
    are right gradients undo what the agent can do."""
    adam_epsilon: float = 1e-5
    """Adam's epsilon."""
    discount: float = 0.99
    """Gamma."""
    gae_lambda: float = 0.99
    """Lambda of generalised advantage estimation."""
    clip_range: float = 0.2
    """Clipping of the probability ratio."""
    value_clip_range: float = 0.2
    """Clipping of the value's change in one iteration, in units of the scaled reward. With many
    environments iterations are few, and a value that may move only so far in each is slow to
    follow."""
    normalise_advantages: bool = False
    """Whether the advantages of each rollout are shifted and scaled to mean 0 and deviation 1."""
    entropy_coefficient: float = 0.01
    """Weight of the entropy bonus."""
    value_coefficient: float = 0.5
    """Weight of the value loss."""
    detach_critic: bool = False
    """Whether the value loss changes the critic's head alone. Without it an agent that is trained
    further can lose what it can do: returns are scaled up, the value loss is by far the largest,
    and its gradient changes the memory to predict new values."""
    max_gradient_norm: float = 0.5
    """Gradients of a larger global norm are scaled down to it."""
    reward_scale: float = 20.0
    """The environment's reward is multiplied by this; shaping bonuses are added after."""
    bootstrap_truncation: bool = False
    """Whether an episode cut by its horizon counts the value of its last observation; off, a
    timeout is worth nothing, as in the original."""
    pool_size: int = 256
    """Levels kept for resets; each iteration makes at most so many attempts at new ones. Resets
    beyond them reuse levels (measured). 0 keeps as many as the quickest episodes could need and
    replaces all that were played."""
    matmul_precision: Literal["tf32", "float32"] = "tf32"
    """Precision of float32 matrix products on GPUs."""
    unroll: int = 4
    """Steps of the memory's loop compiled as one body; bptt_length leaves no loop."""

    def __post_init__(self) -> None:
        if self.matmul_precision not in MATMUL_PRECISIONS:
            raise InputError(
                f"matmul_precision must be tf32 or float32, got '{self.matmul_precision}'"
            )
        require_at_least(self, 1, "num_envs", "rollout_length", "bptt_length", "epochs", "unroll")
        require_at_least(self, 0, "pool_size", "decay_frames", "frozen_frames")
        require_positive(self, *_POSITIVE)
        require_at_least(self, 0, *_NOT_NEGATIVE)
        require_within(self, 0, 1, "discount", "gae_lambda")
        if self.rollout_length % self.bptt_length:
            raise InputError(
                f"bptt_length {self.bptt_length} must divide rollout_length {self.rollout_length}"
            )
        if self.minibatch_frames % self.bptt_length:
            raise InputError(
                f"minibatch_frames {self.minibatch_frames} must be a multiple of "
                f"bptt_length {self.bptt_length}"
            )
        if self.minibatch_frames < 1 or self.frames_per_iteration % self.minibatch_frames:
            raise InputError(
                f"minibatch_frames {self.minibatch_frames} must divide the "
                f"{self.frames_per_iteration} frames of a rollout (num_envs x rollout_length)"
            )

    @property
    def frames_per_iteration(self) -> int:
        """Frames one seed adds per iteration."""
        return self.num_envs * self.rollout_length

    @property
    def num_sequences(self) -> int:
        """Sequences of bptt_length in one rollout."""
        return self.frames_per_iteration // self.bptt_length

    @property
    def minibatch_sequences(self) -> int:
        """Sequences in one gradient step."""
        return self.minibatch_frames // self.bptt_length


@dataclass(frozen=True)
class CurriculumSettings:
    """How the levels of a mixture (`also`) are drawn. Without one nothing here is used."""

    learning_progress: bool = True
    """Whether a part's weight follows how much its success changes; off, weights stay as given."""
    floor: float = 0.1
    """Added to every part's change of success, so that none starves: at least
    floor / (1 + floor) of its share at the start."""
    recent_frames: int = 1_000_000
    """Frames after which an episode counts 1/e in the recent success of its part."""
    earlier_frames: int = 5_000_000
    """The same for the earlier success that the recent one is compared with."""

    def __post_init__(self) -> None:
        if not 0 < self.floor < math.inf:
            raise InputError(f"curriculum.floor must be > 0, got {self.floor:g}")
        if not 1 <= self.recent_frames < self.earlier_frames:
            raise InputError(
                "curriculum.recent_frames must be >= 1 and below curriculum.earlier_frames, got "
                f"{self.recent_frames} and {self.earlier_frames}"
            )
