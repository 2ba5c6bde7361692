"""What a method is: its settings, how its shaper is built, and how results show it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ella.errors import InputError, unknown_name
from ella.settings_table import updated

if TYPE_CHECKING:
    from ella.ppo.settings import PPOSettings
    from ella.shaping.shaper import AbstractRewardShaper
    from ella.world.mixtures import Task

PAPER = "paper"
PRESETS = (PAPER, "released", "onehot", "wide", "wide-8gb", "small", "laptop", "smoke")
"""Names of the settings that training can start from (`ella.training.presets`)."""
JOINER = "+"
"""Joins the names of a sum's parts."""

Colour = tuple[str, str]
"""On a light and on a dark background."""


@dataclass(frozen=True)
class BuildContext:
    """What a shaper is built for."""

    task: "Task"
    ppo: "PPOSettings"
    trained: bool = True
    """Off where other weights will replace the shaper's own, those of a stored run or of the
    offline stage: none runs then, and nothing is warned of."""
    only_judges: bool = False
    """On where nothing will be trained and what the shaper has learned will be put in: what only
    training needs may be left out."""
    seeds: tuple[int, ...] = (0,)
    """Random seeds of the agents that the shaper is for."""


@dataclass(frozen=True)
class Column:
    """A measured column that reports draw in a panel of its own."""

    name: str
    title: str
    is_share: bool = True
    """Whether it lies between 0 and 1."""


@dataclass(frozen=True)
class Panels:
    """What reports draw of a method besides success."""

    title: str
    caption: str
    about: str
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Method(ABC):
    """A way to shape the reward. A frozen dataclass: its fields are its settings.

    Subclasses import nothing that starts JAX at their top, so that help texts appear at once;
    `build` imports what it needs.
    """

    name: ClassVar[str]
    """On the command line and in config.json."""
    label: ClassVar[str]
    """In figures and tables."""
    colour: ClassVar[Colour | None] = None
    """None takes a spare colour."""
    order: ClassVar[int] = 100
    """Place in lists and legends, ascending."""
    panels: ClassVar[Panels | None] = None
    """What it measures that is worth a figure."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """By preset: a table of changes to the method's settings."""
    not_identity: ClassVar[tuple[str, ...]] = ()
    """Settings that may change when a run is resumed: training does not depend on them."""

    @classmethod
    def preset(cls, name: str, **given: Any) -> Self:
        """The method's settings in a preset, those that are given in their place:
        `ella.ELLA.preset("small", bonus=0.5)`."""
        if name not in PRESETS:
            raise unknown_name("preset", name, PRESETS)
        return replace(updated(cls(), cls.presets.get(name, {}), where=f"preset {name}"), **given)

    @abstractmethod
    def build(self, context: BuildContext) -> "AbstractRewardShaper":
        """The shaper of resolved settings, its offline stage run or taken from the cache."""

    def resolved(self, task: "Task") -> Self:
        """These settings with every default that depends on the task filled in."""
        return self

    def check_seeds(self, seeds: int) -> None:
        """Refuse these settings for a run of so many seeds."""
        return

    @property
    def parts(self) -> "tuple[Method, ...]":
        """The methods of a sum, or this one alone."""
        return (self,)

    def values(self) -> dict[str, Any]:
        """The settings by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __add__(self, other: "Method") -> "MethodSum":
        return MethodSum((*self.parts, *other.parts))


@dataclass(frozen=True)
class MethodSum(Method):
    """Several methods at once: their bonuses are added. Parts are kept in the order in which
    results list methods, so that `a + b` and `b + a` are one method."""

    summands: tuple[Method, ...]

    def __post_init__(self) -> None:
        parts = sorted(self.summands, key=lambda part: (part.order, part.name))
        object.__setattr__(self, "summands", tuple(parts))
        names = [part.name for part in parts]
        if len(set(names)) < len(names):
            raise InputError(f"method '{self.name}' names a part twice")

    @property
    def name(self) -> str:  # type: ignore[override]
        return JOINER.join(part.name for part in self.summands)

    @property
    def label(self) -> str:  # type: ignore[override]
        return f" {JOINER} ".join(part.label for part in self.summands)

    @property
    def parts(self) -> tuple[Method, ...]:
        return self.summands

    def resolved(self, task: "Task") -> "MethodSum":
        return MethodSum(tuple(part.resolved(task) for part in self.summands))

    def check_seeds(self, seeds: int) -> None:
        for part in self.summands:
            part.check_seeds(seeds)

    def build(self, context: BuildContext) -> "AbstractRewardShaper":
        from ella.shaping.shaper import Sum

        return Sum({part.name: part.build(context) for part in self.summands})
