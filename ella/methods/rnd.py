"""RND: random network distillation."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ella.methods.method import BuildContext, Method
from ella.methods.registry import register
from ella.setting_checks import require_at_least, require_positive

if TYPE_CHECKING:
    from ella.shaping.rnd import RndShaper


@register
@dataclass(frozen=True)
class RND(Method):
    """RND: a bonus for views that a predictor of random features has not learned yet."""

    name: ClassVar[str] = "rnd"
    label: ClassVar[str] = "RND"
    colour: ClassVar[tuple[str, str]] = ("#56b4e9", "#9bd6fa")
    order: ClassVar[int] = 60

    coefficient: float = 1.0
    """The bonus for a view whose error is one standard deviation of the discounted sum of errors,
    in units of the scaled reward."""
    discount: float = 0.99
    """Of the sum of errors whose deviation is the unit."""
    clip: float = 5.0
    """Inputs lie within this many standard deviations of their mean."""
    features: int = 512
    """Of the target, and width of the predictor's dense layers."""
    learning_rate: float = 1e-4
    """Of Adam."""
    epochs: int = 4
    """Passes of the predictor over each rollout."""
    minibatches: int = 4
    """Steps in each pass; divides the frames of a rollout."""

    def __post_init__(self) -> None:
        require_at_least(self, 0, "coefficient")
        require_positive(self, "learning_rate")
        require_at_least(self, 1, "features", "epochs", "minibatches")

    def build(self, context: BuildContext) -> "RndShaper":
        from ella.shaping.rnd import RndShaper

        return RndShaper(**self.values())
