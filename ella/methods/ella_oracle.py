"""ELLA with ground-truth relevance in place of the relevance classifier."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ella.methods.ella import EllaMethod
from ella.methods.registry import register
from ella.setting_checks import require_at_least

if TYPE_CHECKING:
    from ella.shaping.relevance import AbstractRelevance
    from ella.world.language import Language
    from ella.world.mixtures import Task


@register
@dataclass(frozen=True)
class ELLAOracle(EllaMethod):
    """ELLA with ground-truth relevance, read off the grammar."""

    name: ClassVar[str] = "ella-oracle"
    label: ClassVar[str] = "ELLA, oracle"
    colour: ClassVar[tuple[str, str]] = ("#b8860b", "#f0c043")
    order: ClassVar[int] = 30

    after_frames: int = 2_500_000
    """Frames of a seed for which every completion is paid for before ground truth takes over; 0
    for ground truth from the start."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self, 0, "after_frames")

    def judge(self, task: "Task", low_level: "Language") -> "AbstractRelevance":
        from ella.shaping.relevance import OracleRelevance

        return OracleRelevance(task, self.after_frames, low_level)
