"""What the report knows about single methods: their order and colours, the columns they measure,
and which settings are theirs. Everything else in the report treats all methods alike."""

from dataclasses import dataclass
from typing import Any

from ella.methods.registry import paper_bonus

Colour = tuple[str, str]
"""On a light and on a dark background."""

METHOD_COLOURS: dict[str, Colour] = {
    "ppo": ("#0072b2", "#4fa8e0"),
    "learn": ("#009e73", "#2cc79a"),
    "ella": ("#d55e00", "#ff8533"),
    "ella-oracle": ("#b8860b", "#f0c043"),
    "ride": ("#a0498a", "#dd8fc4"),
    "ella+ride": ("#3f3f3f", "#d8d8d8"),
    "rnd": ("#56b4e9", "#9bd6fa"),
    "noveld": ("#7a5c43", "#c9a588"),
}
"""In the order in which methods are listed."""
BASELINE = "ppo"
"""The method others are compared with unless another is named."""


@dataclass(frozen=True)
class Column:
    """A column of the metrics that has panels of its own."""

    name: str
    title: str
    is_share: bool = True
    """Whether it lies between 0 and 1."""


@dataclass(frozen=True)
class PanelGroup:
    """Panels of what a method measures besides success."""

    name: str
    """Of the figure's files."""
    title: str
    caption: str
    about: str
    columns: tuple[Column, ...]


PANEL_GROUPS = (
    PanelGroup(
        name="ella",
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
    ),
)
_SECTIONS = frozenset({"ella", "learn", "ride", "rnd", "noveld"})
_BONUS = "ella.bonus"


def foreign_sections(method: str) -> frozenset[str]:
    """Sections of the settings that belong to methods that take no part in `method`."""
    return _SECTIONS - {part.split("-")[0] for part in method.split("+")}


def resolved(settings: dict[str, Any], task: str) -> dict[str, Any]:
    """Settings by dotted name, with the task's default where a configuration says null."""
    if settings.get(_BONUS) is None:
        return {**settings, _BONUS: paper_bonus(task)}
    return settings


def is_default_of_task(name: str, value: Any, task: str) -> bool:
    """Whether a setting has a default that depends on the task, and `value` is that one: the same
    choice on every task, although the numbers differ."""
    return name == _BONUS and value == paper_bonus(task)
