"""Plain PPO: no shaping."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ella.methods.method import BuildContext, Method
from ella.methods.registry import register

if TYPE_CHECKING:
    from ella.shaping.shaper import AbstractRewardShaper


@register
@dataclass(frozen=True)
class PPO(Method):
    """Plain PPO: no bonus."""

    name: ClassVar[str] = "ppo"
    label: ClassVar[str] = "PPO"
    colour: ClassVar[tuple[str, str]] = ("#0072b2", "#4fa8e0")
    order: ClassVar[int] = 0

    def build(self, context: BuildContext) -> "AbstractRewardShaper":
        from ella.shaping.shaper import NoShaping

        return NoShaping()
