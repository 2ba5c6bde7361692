"""RIDE: rewarding impact-driven exploration."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ella.methods.method import BuildContext, Method
from ella.methods.registry import register
from ella.setting_checks import require_at_least, require_positive

if TYPE_CHECKING:
    from ella.shaping.ride import RideShaper


@register
@dataclass(frozen=True)
class RIDE(Method):
    """RIDE: a bonus for actions that change what the agent can influence. Losses, rates and sizes
    are the original's, with which its embedding shrinks until nothing is paid; see docs/methods.md
    for settings with which it does not."""

    name: ClassVar[str] = "ride"
    label: ClassVar[str] = "RIDE"
    colour: ClassVar[tuple[str, str]] = ("#a0498a", "#dd8fc4")
    order: ClassVar[int] = 40

    coefficient: float = 0.1
    """Lambda_R: the bonus for one unit of change, in units of the scaled reward. The paper tunes it
    within 0.1, 0.5 and 1."""
    episodic_counts: bool = False
    """Whether the bonus is divided by the root of how often the episode has visited the state, as
    in the original; the paper does not mention it."""
    forward_coefficient: float = 10.0
    """Weight of the forward model's loss."""
    inverse_coefficient: float = 0.1
    """Weight of the inverse model's loss."""
    learning_rate: float = 1e-4
    """Of RMSprop; one step per rollout."""
    decay: float = 0.99
    """Of RMSprop's mean of squares."""
    epsilon: float = 1e-5
    """Of RMSprop."""
    max_gradient_norm: float = 40.0
    """Gradients of each of the three networks are scaled down to this norm."""

    input_scale: float = 255.0
    """The numbers of a view are divided by this before they are embedded: the original's 255 is for
    bytes of pictures, while those of a view are at most 10."""

    def __post_init__(self) -> None:
        require_at_least(self, 0, "coefficient")
        require_positive(self, "learning_rate", "input_scale")

    def build(self, context: BuildContext) -> "RideShaper":
        from ella.shaping.ride import RideShaper

        return RideShaper(horizon=max(context.task.horizons), **self.values())
