"""ELLA with the published method's weak points mended, each by a part of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ella.methods.ella import SMALL_RELEVANCE, EllaMethod, learned_judge
from ella.methods.method import Column, Panels
from ella.methods.registry import register
from ella.networks.settings import RelevanceNetworkSettings
from ella.offline.settings import TerminationTrainingSettings
from ella.shaping.settings import RelevanceSettings, RelevanceTrainingSettings

if TYPE_CHECKING:
    from ella.shaping.relevance import AbstractRelevance
    from ella.world.language import Language
    from ella.world.mixtures import Task

PUBLISHED: Mapping[str, Mapping[str, Any]] = {
    "solvency": {"solvency": None},
    "windows": {
        "relevance": {
            "network": {"comparison": "l1"}, "training": {"max_initial_steps": 300},
            "max_initial_rounds": 5,
        }
    },
    "unsolved": {"relevance": {"training": {"unsolved_share": 0.0}}},
    "beliefs": {"relevance": {"labels": "intersections"}},
    "last-state": {"last_state": False},
    "calibration": {
        "termination": {
            "one_article": False, "ordinary_views": 0, "false_alarms": 0.0, "min_steps": 0,
            "carried_share": 0.0,
        }
    },
}  # fmt: skip
"""By part: the settings that put the published method's choice in its place. With all of them the
method is `ella`."""


@register
@dataclass(frozen=True)
class ELLASolvent(EllaMethod):
    """ELLA with solvent successes, relevance that composes and is learned as a belief, and a
    calibrated termination classifier; docs/solvency.md describes every part and how to switch it
    off."""

    name: ClassVar[str] = "ella-solvent"
    label: ClassVar[str] = "ELLA, solvent"
    colour: ClassVar[tuple[str, str]] = ("#8c2d04", "#ffb08a")
    order: ClassVar[int] = 25
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "small": {
            "termination": {
                **EllaMethod.presets["small"]["termination"],
                "min_steps": 0, "ordinary_views": 8192,
            },
            "relevance": SMALL_RELEVANCE,
        },
        "laptop": {
            **EllaMethod.presets["laptop"],
            "termination": {
                **EllaMethod.presets["laptop"]["termination"],
                "min_steps": 0, "ordinary_views": 8192,
            },
            "relevance": {"training": {"learning_rate": 1e-3}, "update_every": 6_400},
        },
        "smoke": {
            "termination": {
                **EllaMethod.presets["smoke"]["termination"],
                "min_steps": 0, "ordinary_views": 512,
            }
        },
    }  # fmt: skip
    panels: ClassVar[Panels] = Panels(
        title="Decompositions of the solvent ELLA",
        caption="what the solvent ELLA calls relevant",
        about="What the method calls relevant, against the ground truth on instructions of the "
        "task and on those that have never been solved, and how many successes owe more than they "
        "are charged.",
        columns=(
            Column("relevance_accuracy", "accuracy of relevance"),
            Column("relevance_accuracy_unsolved", "accuracy of relevance,\nnever solved"),
            Column("relevance_recall", "recall of relevance"),
            Column("insolvent_successes", "successes that owe\nmore than they may"),
        ),
    )

    last_state: bool = True
    """Whether what a success's last action completed counts among what the success completed; the
    released code never looks at the state after an episode's last action."""
    solvency: float | None = 0.9
    """The most a success is charged for its bonuses, as a share of its scaled reward; none for no
    limit, as in the paper."""
    termination: TerminationTrainingSettings = field(
        default_factory=lambda: TerminationTrainingSettings(
            min_steps=1_000,
            carried_share=0.25,
            one_article=True,
            ordinary_views=32_768,
            false_alarms=1e-3,
        )
    )
    """The termination classifier, trained offline."""
    relevance: RelevanceSettings = field(
        default_factory=lambda: RelevanceSettings(
            network=RelevanceNetworkSettings(comparison="windows"),
            # Short rounds end as soon as everything is relevant; a saturated network learns late.
            training=RelevanceTrainingSettings(unsolved_share=0.25, max_initial_steps=20),
            max_initial_rounds=100,
            labels="beliefs",
        )
    )
    """The relevance classifier, trained online."""

    def judge(self, task: "Task", low_level: "Language") -> "AbstractRelevance":
        return learned_judge(task, low_level, self.relevance, measure_unsolved=True)

    def taught_judge(self, task: "Task", low_level: "Language") -> "AbstractRelevance":
        return learned_judge(task, low_level, self.relevance, measure_unsolved=True, learns=False)
