"""ELLA: exploration through learned language abstraction."""

import logging
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ella.errors import InputError
from ella.methods.method import BuildContext, Column, Method, Panels
from ella.methods.registry import register
from ella.offline.settings import TerminationTrainingSettings
from ella.setting_checks import require_at_least, require_within
from ella.settings_table import to_json
from ella.shaping.settings import RELEASED_NETWORK, RELEASED_TRAINING, RelevanceSettings

if TYPE_CHECKING:
    from ella.ppo.settings import PPOSettings
    from ella.shaping.ella import EllaShaper
    from ella.shaping.relevance import AbstractRelevance
    from ella.shaping.termination import AbstractTermination
    from ella.world.language import Language
    from ella.world.mixtures import Task

logger = logging.getLogger(__name__)

PAPER_BONUS = {"openpick-maze": 0.5, "sequence-maze": 0.5}
"""The paper's lambda where it is not `DEFAULT_BONUS`."""
DEFAULT_BONUS = 0.25
OPTIMAL_STEPS = {
    "putnext-room": 40, "putnext-maze": 40, "unlock-maze": 40, "combo-maze": 40, "unlock-small": 21,
}  # fmt: skip
"""The most steps of an optimal solution. Of the paper's tasks, what its lambda of 0.25 rests on, as
it states for putnext-room; no number of steps allows its 0.5 on the other tasks. Of unlock-small,
the most that the expert needed on 8,192 levels."""

LEAST_REWARD = 0.1
"""What the environment pays for a success at the horizon."""

SMALL_NETWORK = {"variant": "onehot", "width": 32, "instruction_width": 32, "head_width": 32}
LAPTOP_NETWORK = {**SMALL_NETWORK, "width": 16, "instruction_width": 16, "blocks": 1}
SMALL_RELEVANCE = {"update_every": 32_000}
RELEASED_RELEVANCE = {
    "network": to_json(RELEASED_NETWORK), "training": to_json(RELEASED_TRAINING),
}  # fmt: skip
LAPTOP_RELEVANCE = {
    "network": {"hidden_size": 32, "output_size": 32},
    "training": {"learning_rate": 1e-3},
    "update_every": 6_400,
}


@dataclass(frozen=True)
class EllaMethod(Method):
    """What ELLA is with any judge of relevance."""

    not_identity: ClassVar[tuple[str, ...]] = ("optimal_steps", "max_completions")
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "small": {
            "termination": {
                "episodes": 1000, "batch": 128, "epochs": 1, "max_steps": 250,
                "learning_rate": 1e-3, "network": SMALL_NETWORK,
            }
        },
        "laptop": {
            "bonus": 0.5,
            "termination": {
                "episodes": 2000, "batch": 256, "epochs": 1, "max_steps": 800,
                "learning_rate": 2e-3, "network": LAPTOP_NETWORK,
            },
        },
        "smoke": {
            "termination": {
                "episodes": 64, "validation_episodes": 16, "batch": 64, "max_steps": 20,
                "evaluate_every": 10,
                "network": {"width": 16, "instruction_width": 16, "head_width": 16},
            }
        },
    }  # fmt: skip

    bonus: float | None = None
    """Lambda, in units of the scaled reward; by default the paper's for the task: 0.25, and 0.5
    for openpick-maze and sequence-maze."""
    recheck: bool = True
    """Whether a low-level instruction that was not relevant when first completed can still be paid
    for once it is (the released code); off, relevance counts at the first completion only."""
    neutralise: bool = True
    """Whether a success takes the episode's bonuses back with its last reward."""
    last_state: bool = False
    """Whether what a success's last action completed counts among what the success completed; the
    released code never looks at the state after an episode's last action."""
    solvency: float | None = None
    """The most a success is charged for its bonuses, as a share of its scaled reward; none for no
    limit, as in the paper."""
    low_level: tuple[str, ...] = ()
    """Tasks whose instructions together are the low-level ones; by default the task's own low-level
    task."""
    optimal_steps: int | None = None
    """The most steps an optimal solution is assumed to need; a bonus beyond the bound that follows
    is warned of. By default what the paper's lambda rests on, 40, for unlock-small 21, and the
    longest horizon for openpick-maze, sequence-maze and tasks of your own."""
    max_completions: int | None = None
    """The most low-level instructions one episode is assumed to complete, for the same bound; all
    by default."""
    termination: TerminationTrainingSettings = field(default_factory=TerminationTrainingSettings)
    """The termination classifier, trained offline."""
    own_classifier: bool = False
    """Whether the run's random seed is added to the classifier's. Runs of one seed each then have
    classifiers of their own, and intervals over them cover that choice too."""
    examples: Path | None = None
    """File of labelled examples to train the termination classifier from, instead of the expert."""

    def __post_init__(self) -> None:
        require_at_least(self, 0, "bonus")
        require_at_least(self, 1, "optimal_steps", "max_completions")
        require_within(self, 0, 1, "solvency")

    def resolved(self, task: "Task") -> Self:
        longest, count = max(task.horizons), self.low_level_of(task).num_instructions
        bonus = self.usual_bonus(task) if self.bonus is None else self.bonus
        steps = self.optimal_steps or min(OPTIMAL_STEPS.get(task.name, longest), longest)
        completions = self.max_completions or count
        return replace(self, bonus=bonus, optimal_steps=steps, max_completions=completions)

    def check_seeds(self, seeds: int) -> None:
        if self.own_classifier and seeds > 1:
            raise InputError(
                f"the {seeds} seeds of a run share its termination classifier; for classifiers of "
                f"their own (--{self.name}.own-classifier) train runs of one seed: --seeds 1 "
                "--seed N"
            )

    def usual_bonus(self, task: "Task") -> float:
        """Lambda where none is named: the paper's."""
        return PAPER_BONUS.get(task.name, DEFAULT_BONUS)

    def low_level_of(self, task: "Task") -> "Language":
        """The low-level instructions that these settings pay for on a task."""
        from ella.shaping.low_level import low_level_language, low_level_tasks

        return low_level_language(
            low_level_tasks(task, self.low_level), self.termination.one_article
        )

    def build(self, context: BuildContext) -> "EllaShaper":
        from ella.offline.termination import find_termination
        from ella.shaping.low_level import low_level_tasks

        if context.only_judges:
            return self._judging(context)
        method, task, ppo = self.resolved(context.task), context.task, context.ppo
        if context.trained and (warning := method.bound_warning(task, ppo)):
            logger.warning(warning)
        offline = method.termination
        if method.own_classifier:
            offline = replace(offline, seed=offline.seed + context.seeds[0])
        termination = find_termination(
            low_level_tasks(task, method.low_level),
            offline,
            examples=method.examples,
            trained=context.trained,
        )
        counted = termination.record.get("false_alarms")
        if counted and (warning := method.false_alarm_warning(task, ppo, counted)):
            logger.warning(warning)
        judge = method.judge(task, method.low_level_of(task)).ready_to_learn()
        return method._shaper(context, termination.prepared(ppo.network.compute_dtype), judge)

    def _judging(self, context: BuildContext) -> "EllaShaper":
        """The shaper without its termination classifier, in whose place is what a view shows."""
        from ella.shaping.termination import visible_termination

        method = self.resolved(context.task)
        low_level = method.low_level_of(context.task)
        judge = method.judge(context.task, low_level)
        return method._shaper(context, visible_termination(low_level), judge)

    def _shaper(
        self,
        context: BuildContext,
        termination: "AbstractTermination",
        relevance: "AbstractRelevance",
    ) -> "EllaShaper":
        """Of these resolved settings."""
        from ella.shaping.ella import ella_shaper

        assert self.bonus is not None
        return ella_shaper(
            context.task,
            termination,
            relevance,
            bonus=self.bonus,
            discount=context.ppo.discount,
            reward_scale=context.ppo.reward_scale,
            recheck=self.recheck,
            neutralise=self.neutralise,
            last_state=self.last_state,
            solvency=self.solvency,
            low_level=self.low_level_of(context.task),
            num_envs=context.ppo.num_envs,
        )

    @abstractmethod
    def judge(self, task: "Task", low_level: "Language") -> "AbstractRelevance":
        """Decides which low-level instructions are relevant."""

    def bound(self, task: "Task", ppo: "PPOSettings", steps: int) -> float:
        """The largest lambda if optimal solutions need at most that many steps."""
        from ella.shaping.bound import task_bound

        bound = task_bound(
            task, ppo.discount, ppo.reward_scale, steps, self.max_completions,
            self.low_level_of(task).num_instructions,
        )  # fmt: skip
        return bound if self.solvency is None else self.solvency * bound

    def bound_warning(self, task: "Task", ppo: "PPOSettings") -> str | None:
        """One line if lambda exceeds the bound under the assumptions in these resolved settings."""
        assert self.bonus is not None
        assert self.optimal_steps is not None
        bound, at_best = (self.bound(task, ppo, steps) for steps in (self.optimal_steps, 1))
        if self.bonus <= bound:
            return None
        is_longest = self.optimal_steps == max(task.horizons)
        assumed = f"{self.optimal_steps} steps" + " (the longest horizon)" * is_longest
        remedy = (
            f"--{self.name}.optimal-steps assumes another number"
            if self.bonus <= at_best
            else f"no number of steps allows it (1 step: {at_best:.3g}), only fewer low-level "
            f"completions an episode (--{self.name}.max-completions)"
        )
        return (
            f"the bonus {self.bonus:g} exceeds {bound:.3g}, below which optimal policies stay "
            "optimal in a deterministic world that the agent sees whole, if solutions take at most "
            f"{assumed}; {remedy}"
        )

    def false_alarm_warning(
        self, task: "Task", ppo: "PPOSettings", counted: Mapping[str, float]
    ) -> str | None:
        """One line if bonuses paid by mistake would dominate: if random behaviour completes more
        low-level instructions by mistake than rightly, or if a whole episode's mistakes are worth
        more than the least a success brings."""
        assert self.bonus is not None
        longest = max(task.horizons)
        per_step = counted["false_completions"] / counted["steps_per_episode"]
        mistakes = min(per_step * longest, self.low_level_of(task).num_instructions)
        least = LEAST_REWARD * ppo.reward_scale
        if counted["false_completions"] <= counted["true_completions"] and (
            self.bonus * mistakes <= least
        ):
            return None
        return (
            f"the termination classifier pays by mistake: {counted['false_completions']:.2g} false "
            f"and {counted['true_completions']:.2g} true completions in an ordinary episode, "
            f"bonuses of {self.bonus * mistakes:.2g} in {longest} steps where a late success "
            f"brings {least:g}; train it on more episodes, or lower --{self.name}.termination."
            "false-alarms"
        )


@register
@dataclass(frozen=True)
class ELLA(EllaMethod):
    """ELLA: a bonus for completing relevant low-level instructions, relevance being learned from
    successes."""

    name: ClassVar[str] = "ella"
    label: ClassVar[str] = "ELLA"
    colour: ClassVar[tuple[str, str]] = ("#d55e00", "#ff8533")
    order: ClassVar[int] = 20
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        **{
            name: {**table, "relevance": SMALL_RELEVANCE if name == "small" else LAPTOP_RELEVANCE}
            for name, table in EllaMethod.presets.items()
        },
        "released": {"relevance": RELEASED_RELEVANCE},
    }
    panels: ClassVar[Panels] = Panels(
        title="ELLA's decompositions",
        caption="what ELLA calls relevant",
        about="What the method calls relevant: the size of an instruction's decomposition, and how "
        "the relevance classifier compares with the ground truth on instructions of the task.",
        columns=(
            Column("decomposition_size", "low-level instructions\nper instruction", False),
            Column("relevance_accuracy", "accuracy of relevance"),
            Column("relevance_precision", "precision of relevance"),
            Column("relevance_recall", "recall of relevance"),
        ),
    )

    relevance: RelevanceSettings = field(default_factory=RelevanceSettings)
    """The relevance classifier, trained online."""

    def judge(self, task: "Task", low_level: "Language") -> "AbstractRelevance":
        return learned_judge(task, low_level, self.relevance)


def learned_judge(
    task: "Task",
    low_level: "Language",
    settings: RelevanceSettings,
    *,
    measure_unsolved: bool = False,
) -> "AbstractRelevance":
    """Relevance that is learned from successes, by the settings' labels."""
    from ella.shaping.beliefs import BelievedRelevance
    from ella.shaping.relevance import LearnedRelevance

    learned = LearnedRelevance(task, settings, low_level, measure_unsolved=measure_unsolved)
    return BelievedRelevance(learned) if settings.labels == "beliefs" else learned
