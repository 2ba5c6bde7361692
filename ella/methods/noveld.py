"""NovelD: novelty difference."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ella.errors import InputError
from ella.methods.method import BuildContext, Method
from ella.methods.registry import register
from ella.setting_checks import require_at_least, require_positive

if TYPE_CHECKING:
    from ella.shaping.noveld import NoveldShaper


@register
@dataclass(frozen=True)
class NovelD(Method):
    """NovelD: a bonus for steps from known into novel states, once an episode and state. The
    defaults are those of its release."""

    name: ClassVar[str] = "noveld"
    label: ClassVar[str] = "NovelD"
    colour: ClassVar[tuple[str, str]] = ("#7a5c43", "#c9a588")
    order: ClassVar[int] = 70

    coefficient: float = 0.5
    """The bonus for one unit of novelty, in units of the scaled reward."""
    known_share: float = 0.5
    """Alpha: the share of the earlier state's novelty that is taken off."""
    channels: tuple[int, int, int] = (32, 128, 512)
    """Of the random encoder's convolutions."""
    width: int = 1024
    """Of the random encoder's dense layers and the predictor's first two."""
    features: int = 128
    """Of the target's and the predictor's other layers."""
    learning_rate: float = 1e-4
    """Of Adam; one step per rollout."""
    max_gradient_norm: float = 40.0
    """Gradients of the predictor are scaled down to this norm."""

    def __post_init__(self) -> None:
        require_at_least(self, 0, "coefficient")
        require_positive(self, "learning_rate")
        require_at_least(self, 1, "width", "features")
        if len(self.channels) != 3 or min(self.channels) < 1:
            raise InputError(f"noveld.channels must be three sizes >= 1, got {self.channels}")

    def build(self, context: BuildContext) -> "NoveldShaper":
        from ella.shaping.noveld import NoveldShaper

        return NoveldShaper(horizon=max(context.task.horizons), **self.values())
