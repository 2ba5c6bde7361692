"""How the offline classifiers are trained. Importing this module starts no JAX."""

from dataclasses import dataclass, field

from ella.errors import InputError
from ella.networks.settings import ActionFrequencyNetworkSettings, TerminationNetworkSettings
from ella.setting_checks import require_at_least, require_positive, require_within

COPIES = 70 + 35 + 35
"""Rows per episode and epoch in the released code: 70 copies of the last observation with its own
instruction, 35 of one earlier observation, and 35 other instructions on the last observation.
Here batches are drawn in those proportions instead."""


@dataclass(frozen=True)
class TerminationTrainingSettings:
    """How the termination classifier is trained."""

    episodes: int = 15_000
    """Expert episodes to learn from."""
    validation_episodes: int = 200
    """Expert episodes held out, of each layout; the evaluation that is best on them is kept."""
    locked_share: float = 0.25
    """Share of the expert episodes that have a locked room, where the task has doors but never
    locks one; 0 as in the released code, whose classifier sees no locked door while it trains."""
    carried_share: float = 0.0
    """Share of the expert's views in which the agent is given a random object to carry, in episodes
    of tasks that are not about picking up; 0 as in the released code, whose classifier sees no
    agent that carries something while it trains."""
    seed: int = 0
    """Random seed of the episodes, the network and the batches."""
    network: TerminationNetworkSettings = field(default_factory=TerminationNetworkSettings)
    batch: int = 2560
    """Pairs a step: half positive, a quarter earlier observations, a quarter mismatched
    instructions (files of labelled examples: half positive, half negative)."""
    epochs: int = 5
    """Passes over the data, a pass being 140 pairs an episode."""
    max_steps: int = 0
    """A cap on the number of steps; 0 for none."""
    learning_rate: float = 1e-4
    """Adam's step size."""
    adam_epsilon: float = 1e-5
    """Adam's epsilon."""
    entropy_coefficient: float = 0.01
    """Weight of the predictions' entropy in the loss, as in the released code."""
    statistics_momentum: float = 0.1
    """Share of each new batch in the running statistics used after training."""
    evaluate_every: int = 50
    """Steps between evaluations, the best of which is kept; fewer where there are few steps."""
    patience: int = 0
    """Evaluations without improvement after which training stops; 0 for never."""
    min_steps: int = 0
    """At least so many steps, also where few episodes make the passes short."""
    one_article: bool = False
    """Whether 'go to a red ball' and 'go to the red ball' are one label, since one view cannot tell
    them apart; the low-level language then has one instruction for both."""
    ordinary_views: int = 0
    """Views of random behaviour on which false alarms are counted. Validation then also counts
    other instructions on views before the end. 0 for none of this, as in the released code."""
    false_alarms: float = 0.0
    """False alarms of all instructions together that one ordinary view may have on average: the
    threshold is raised until it holds. 0 takes the more probable answer, as in the released
    code."""

    def __post_init__(self) -> None:
        of = "termination"
        counts = ("episodes", "validation_episodes", "epochs", "evaluate_every")
        require_at_least(self, 1, *counts, of=of)
        require_at_least(self, 4, "batch", of=of)
        require_positive(self, "learning_rate", of=of)
        require_within(self, 0, 1, "locked_share", "carried_share", of=of)
        or_none = ("max_steps", "patience", "min_steps", "ordinary_views", "false_alarms")
        require_at_least(self, 0, *or_none, of=of)
        if self.false_alarms > 0 and self.ordinary_views == 0:
            raise InputError("termination false_alarms needs ordinary_views to count them on")

    def steps(self, num_done: int) -> int:
        """Steps on data with that many positive examples."""
        steps = max(1, self.min_steps, round(self.epochs * num_done * COPIES / self.batch))
        return min(steps, self.max_steps) if self.max_steps > 0 else steps


@dataclass(frozen=True)
class ActionFrequencyTrainingSettings:
    """How LEARN's classifier is trained; the defaults are the released code's."""

    episodes: int = 15_000
    """Expert episodes to learn from."""
    validation_episodes: int = 200
    """Expert episodes held out, for the reported accuracy alone."""
    seed: int = 0
    """Random seed of the episodes, the network and the batches."""
    network: ActionFrequencyNetworkSettings = field(default_factory=ActionFrequencyNetworkSettings)
    """Sizes of the classifier."""
    batch: int = 1280
    """Pairs a step; each epoch drops its incomplete last batch."""
    epochs: int = 100
    """Passes over the data; the last network is used."""
    learning_rate: float = 1e-4
    """Adam's step size."""
    adam_epsilon: float = 1e-5
    """Adam's epsilon."""
    statistics_momentum: float = 0.1
    """Share of each new batch in the running statistics used after training."""

    def __post_init__(self) -> None:
        counts = ("episodes", "validation_episodes", "epochs", "batch")
        require_at_least(self, 1, *counts, of="action frequency")
        require_positive(self, "learning_rate", of="action frequency")
