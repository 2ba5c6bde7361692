"""LEARN: language-action reward network."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ella.methods.method import BuildContext, Method
from ella.methods.registry import register
from ella.offline.settings import ActionFrequencyTrainingSettings
from ella.setting_checks import require_at_least

if TYPE_CHECKING:
    from ella.shaping.learn import LearnShaper


@register
@dataclass(frozen=True)
class LEARN(Method):
    """LEARN: a potential from how well the actions so far fit the instruction."""

    name: ClassVar[str] = "learn"
    label: ClassVar[str] = "LEARN"
    colour: ClassVar[tuple[str, str]] = ("#009e73", "#2cc79a")
    order: ClassVar[int] = 10
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "small": {
            "training": {
                "episodes": 2000, "batch": 256, "epochs": 20, "learning_rate": 1e-3,
                "network": {"width": 32},
            }
        },
        "laptop": {
            "training": {
                "episodes": 2000, "batch": 256, "epochs": 20, "learning_rate": 2e-3,
                "network": {"width": 16},
            }
        },
        "smoke": {
            "training": {
                "episodes": 64, "validation_episodes": 16, "batch": 64, "epochs": 2,
                "network": {"width": 16},
            }
        },
    }  # fmt: skip

    coefficient: float = 0.01
    """Of the potential's change, in units of the scaled reward."""
    training: ActionFrequencyTrainingSettings = field(
        default_factory=ActionFrequencyTrainingSettings
    )
    """The action frequency classifier, trained offline."""

    def __post_init__(self) -> None:
        require_at_least(self, 0, "coefficient")

    def build(self, context: BuildContext) -> "LearnShaper":
        from ella.offline.train_action_frequency import action_frequency_model
        from ella.shaping.learn import LearnShaper
        from ella.shaping.oracle import low_level_of

        model = action_frequency_model(
            low_level_of(context.task), self.training, trained=context.trained
        )
        return LearnShaper(model, self.coefficient, context.ppo.discount)
