"""How relevance is learned. Importing this module starts no JAX."""

from dataclasses import dataclass, field, replace
from typing import Literal

from ella.errors import InputError
from ella.networks.settings import RelevanceNetworkSettings
from ella.setting_checks import require_at_least, require_positive

UNLIMITED = 1_000_000


@dataclass(frozen=True)
class RelevanceTrainingSettings:
    """One way to train the relevance classifier."""

    sampling: Literal["pairs", "rows"] = "rows"
    """How an update goes through D: few drawn pairs at a time, as released (pairs), or many
    instructions at a time against all low-level ones, weighted to the same loss (rows)."""
    batch: int = 128
    """Pairs a step (pairs) or high-level instructions a step (rows)."""
    learning_rate: float = 1e-4
    """Of Adam, for a step of the released schedule (12 steps per instruction and update)."""
    adam_epsilon: float = 1e-8
    """Adam's epsilon; the released code has 1e-5."""
    max_learning_rate: float = 1e-3
    """The most a step that stands for several may have (rows)."""
    draws: int = 20
    """Relevant, and as many irrelevant, pairs drawn per instruction and epoch (pairs)."""
    epochs: int = 3
    """Passes over the data per online update (pairs)."""
    initial_epochs: int = 20
    """Passes over the initial pairs, all of them relevant (pairs)."""
    max_steps: int = 100
    """The most steps an online update may take."""
    max_initial_steps: int = 300
    """The most steps a round of initial training may take."""
    max_instructions: int = 2048
    """The most high-level instructions an update learns from; more are sampled evenly."""

    def __post_init__(self) -> None:
        require_at_least(
            self, 1, "batch", "draws", "epochs", "initial_epochs", "max_steps",
            "max_initial_steps", "max_instructions", of="relevance",
        )  # fmt: skip
        require_positive(self, "learning_rate", "max_learning_rate", "adam_epsilon", of="relevance")


RELEASED_TRAINING = RelevanceTrainingSettings(
    sampling="pairs",
    batch=10,
    adam_epsilon=1e-5,
    max_steps=UNLIMITED,
    max_initial_steps=UNLIMITED,
)
"""The released code's schedule, step for step: 12 steps of ten pairs per instruction and update."""
PRINTED_TRAINING = replace(RELEASED_TRAINING, max_steps=3)
"""The paper's words: three gradient steps an update."""
RELEASED_NETWORK = RelevanceNetworkSettings(initialisation="unit-rows")
"""Initialised as in the released code."""


@dataclass(frozen=True)
class RelevanceSettings:
    """The relevance classifier and its training."""

    network: RelevanceNetworkSettings = field(default_factory=RelevanceNetworkSettings)
    training: RelevanceTrainingSettings = field(default_factory=RelevanceTrainingSettings)
    update_every: int = 128_000
    """Frames between updates, rounded to the nearest whole number of iterations, at least 1; the
    paper's 50 iterations of 2,560 frames."""
    everything_frames: int = 0
    """Frames of a seed in which every completion is paid for, while the classifier learns already;
    0 as in the paper, whose oracle has 2.5 million of them."""
    initial_instructions: int = 100
    """Different high-level instructions the classifier is first taught to call everything relevant
    to, drawn from levels."""
    max_initial_rounds: int = 5
    """Initial training is repeated, up to so many times, until every low-level instruction is
    called relevant to the instructions of 4,096 levels; a run whose classifier does not get there
    does not start. 1 trains once, as the released code does."""
    validation_instructions: int = 256
    """Levels on whose instructions accuracy is measured against the oracle."""
    labels: Literal["intersections", "beliefs"] = "intersections"
    """intersections: relevant is what every success of an instruction completed (D, the paper's);
    beliefs: what most successes complete, learned from the recent ones."""
    recent_successes: int = 8192
    """Successes that are remembered (beliefs)."""
    fewest_successes: int = 1024
    """Below so many remembered successes, learning is from D (beliefs)."""
    base_rates: bool = True
    """Whether a low-level instruction must also be completed more often in successes than in all
    recent episodes (beliefs)."""

    def __post_init__(self) -> None:
        require_at_least(
            self, 1, "update_every", "initial_instructions", "max_initial_rounds",
            "validation_instructions", of="relevance",
        )  # fmt: skip
        require_at_least(self, 0, "everything_frames", of="relevance")
        self._check_beliefs()

    def _check_beliefs(self) -> None:
        if self.labels not in ("intersections", "beliefs"):
            raise InputError(
                f"relevance labels must be intersections or beliefs, got '{self.labels}'"
            )
        if not 1 <= self.fewest_successes <= self.recent_successes:
            raise InputError(
                "relevance fewest_successes must lie between 1 and recent_successes "
                f"({self.recent_successes}), got {self.fewest_successes}"
            )
        if self.labels == "beliefs" and self.training.sampling == "pairs":
            raise InputError("relevance labels beliefs need sampling rows")
