"""The named tasks. A task is a row of data: add a level by adding a row.

An installed package offers tasks by entry points of the group `ella.tasks`, each of which names a
`TaskSpec` under the task's own name.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import entry_points
from typing import Any

from ella.errors import InputError, unknown_name
from ella.settings_table import NOT_WRITTEN, updated
from ella.world.language import Language

ACTION_KINDS = ("goto", "open", "pickup", "putnext")
FORMS = ("single", "and", "each", "sequence")
NUM_MOVABLE_CLASSES = 18
PLUGINS = "ella.tasks"
"""The group of entry points in which packages offer tasks."""


@dataclass(frozen=True)
class TaskSpec:
    """One family of levels and its language."""

    name: str
    kinds: tuple[str, ...]
    """Action kinds a clause may have: goto, open, pickup, putnext."""
    rows: int = 1
    cols: int = 2
    """Rooms; neighbouring rooms share a wall."""
    room_size: int = 8
    """Cells along a room's side, walls included."""
    distractors: int = 8
    unique_objects: bool = False
    """No two distractors share both type and colour; sentences then always say 'the'."""
    lock_probability: float = 0.0
    """Chance that one room is locked, its key lying in another."""
    implicit_unlock: bool = False
    """Whether a target may lie only inside the locked room."""
    unblocking: bool = False
    """Whether objects may have to be moved out of the way; if not, every object must be
    reachable from the start through any door."""
    form: str = "single"
    """Sentence form. single: one clause; and: two clauses of any kind; each: one clause of
    each kind joined by 'and'; sequence: two clauses of any kind joined by 'then' or 'after'."""
    agent_first: bool = False
    """Place the agent before the objects and draw targets from the objects themselves rather
    than from the classes present (minigrid's GoToLocal and PutNextLocal)."""
    max_steps: int | None = None
    """A fixed horizon. By default it is navigations x room_size^2 x rooms, where putnext needs
    two navigations and every other clause one."""
    low_level: str | None = None
    """The task whose instructions support this one (the paper's G_l)."""
    brought: tuple["TaskSpec", ...] = field(default=(), metadata={NOT_WRITTEN: True})
    """Tasks that this one's run names and that are not known by those names here."""

    def __post_init__(self) -> None:
        if isinstance(self.kinds, str):
            raise InputError(
                f"task '{self.name}': kinds must be a tuple, as (\"{self.kinds}\",), got a str"
            )
        bad = [kind for kind in self.kinds if kind not in ACTION_KINDS]
        if bad:
            raise unknown_name("action kind", bad[0], ACTION_KINDS)
        if not self.kinds:
            raise InputError(f"task '{self.name}': needs at least one action kind")
        if self.form not in FORMS:
            raise unknown_name("sentence form", self.form, FORMS)
        if self.form == "each" and len(self.kinds) != 2:
            raise InputError(f"task '{self.name}': form 'each' needs exactly two action kinds")
        if self.rows < 1 or self.cols < 1 or self.room_size < 4:
            raise InputError(
                f"task '{self.name}': rows and cols must be >= 1 and room_size >= 4, got "
                f"{self.rows}, {self.cols} and {self.room_size}"
            )
        if not 0.0 <= self.lock_probability <= 1.0:
            raise InputError(
                f"task '{self.name}': lock_probability must lie in [0, 1], got "
                f"{self.lock_probability:g}"
            )
        if self.num_doors == 0 and (self.lock_probability > 0 or "open" in self.kinds):
            raise InputError(f"task '{self.name}': a single room has no door to lock or open")
        if self.agent_first and self.num_doors > 0:
            raise InputError(f"task '{self.name}': agent_first needs a single room")
        if self.agent_first and (self.form != "single" or len(self.kinds) != 1):
            raise InputError(f"task '{self.name}': agent_first needs one action kind, form single")
        if self.max_steps is not None and self.max_steps < 1:
            raise InputError(f"task '{self.name}': max_steps must be >= 1, got {self.max_steps}")
        self._check_room_for_objects()

    def _check_room_for_objects(self) -> None:
        targets = 2 if "putnext" in self.kinds and self.num_doors == 0 else 1
        if self.distractors < (targets if self.num_doors == 0 else 0):
            raise InputError(f"task '{self.name}': needs at least {targets} distractors as targets")
        if self.num_doors > 0 and self.distractors < 1 and set(self.kinds) != {"open"}:
            raise InputError(f"task '{self.name}': needs at least 1 distractor as a target")
        keys = int(self.lock_probability > 0)
        if self.unique_objects and self.distractors + keys > NUM_MOVABLE_CLASSES:
            raise InputError(
                f"task '{self.name}': at most {NUM_MOVABLE_CLASSES} unique objects exist, asked "
                f"for {self.distractors}" + " and a key" * keys
            )
        needs_door = self.kinds == ("open",) or (self.form == "each" and "open" in self.kinds)
        if (
            needs_door
            and self.num_doors == 1
            and self.lock_probability == 1
            and not self.implicit_unlock
        ):
            raise InputError(
                f"task '{self.name}': its only door always belongs to the locked room, so no door "
                "could be a target; set implicit_unlock, or a lock_probability below 1"
            )
        # The agent, the cell before it and the cells next to the provisional agent stay free.
        free = self.rows * self.cols * (self.room_size - 2) ** 2 - 6
        objects = self.distractors + keys
        if objects > free:
            raise InputError(
                f"task '{self.name}': {objects} objects do not fit into {max(free, 0)} free cells; "
                "use fewer distractors or larger rooms"
            )

    def find(self, name: str) -> "TaskSpec":
        """The task that this one's run calls so: one it brings, or one known by name."""
        return next((task for task in self.brought if task.name == name), None) or find(name)

    @property
    def width(self) -> int:
        return self.cols * (self.room_size - 1) + 1

    @property
    def height(self) -> int:
        return self.rows * (self.room_size - 1) + 1

    @property
    def num_doors(self) -> int:
        """Pairs of neighbouring rooms: the most doors a level can have."""
        return self.rows * (self.cols - 1) + self.cols * (self.rows - 1)

    @property
    def steps_per_navigation(self) -> int:
        return self.room_size**2 * self.rows * self.cols

    @property
    def quick_episode(self) -> float:
        """A lower estimate of the mean number of steps of the quickest possible episodes: every
        navigation walks the mean distance of two random cells inside the outer walls."""
        walk = (self.width - 2 + self.height - 2) / 3
        return min(self.language.mean_navigations * walk, min(self.horizons))

    @cached_property
    def language(self) -> Language:
        return Language(
            kinds=self.kinds,
            form=self.form,
            movable_articles_vary=not self.unique_objects,
            num_doors=self.num_doors,
        )

    @cached_property
    def horizons(self) -> tuple[int, ...]:
        """Every horizon H an episode can have, ascending."""
        if self.max_steps is not None:
            return (self.max_steps,)
        return tuple(n * self.steps_per_navigation for n in self.language.navigation_counts)


TASKS: dict[str, TaskSpec] = {
    spec.name: spec
    for spec in (
        TaskSpec("goto-room", ("goto",), cols=1, agent_first=True),
        TaskSpec("goto-maze", ("goto",)),
        TaskSpec("open-maze", ("open",)),
        TaskSpec("pick-maze", ("pickup",), lock_probability=0.5),
        TaskSpec("opengoto-maze", ("goto", "open"), distractors=5),
        TaskSpec(
            "putnext-room", ("putnext",), cols=1, agent_first=True, unique_objects=True,
            low_level="goto-room",
        ),
        TaskSpec("putnext-maze", ("putnext",), low_level="goto-maze"),
        TaskSpec(
            "unlock-maze", ("open",), lock_probability=1.0, implicit_unlock=True,
            low_level="pick-maze",
        ),
        TaskSpec(
            "openpick-maze", ("open", "pickup"), distractors=5, form="each",
            low_level="opengoto-maze",
        ),
        TaskSpec(
            "combo-maze", ("putnext", "pickup", "open"), lock_probability=0.5,
            low_level="goto-maze",
        ),
        TaskSpec(
            "sequence-maze", ("open", "pickup", "putnext"), form="sequence",
            low_level="goto-maze",
        ),
        TaskSpec(
            "sequence-room", ("pickup", "putnext"), cols=1, unique_objects=True, form="sequence",
            low_level="goto-room",
        ),
        TaskSpec(
            "goto-small", ("goto",), cols=1, room_size=6, distractors=3, agent_first=True
        ),
        TaskSpec(
            "pick-small", ("pickup",), room_size=5, distractors=2, unique_objects=True,
            lock_probability=0.5,
        ),
        TaskSpec(
            "unlock-small", ("open",), room_size=5, distractors=2, unique_objects=True,
            lock_probability=1.0, implicit_unlock=True, low_level="pick-small",
        ),
    )
}  # fmt: skip
"""The paper's tasks by name, one to practise sequences on, and small ones that two CPU cores learn
within minutes; `register` adds more."""


def register(spec: TaskSpec) -> TaskSpec:
    """Add a task to the named ones, so that every command and adapter knows it."""
    if TASKS.get(spec.name, spec) != spec:
        raise InputError(f"a different task named '{spec.name}' exists; choose another name")
    TASKS[spec.name] = spec
    return spec


def find(name: str, *, also: str = "") -> TaskSpec:
    """The task of that name, or an error with the nearest names. `also` is what else the name might
    have meant and does not."""
    if name not in TASKS:
        _load_plugins()
    if name not in TASKS:
        raise unknown_name("task", name, TASKS, also=also)
    return TASKS[name]


def all_tasks() -> Iterator[TaskSpec]:
    _load_plugins()
    yield from TASKS.values()


@cache
def _load_plugins() -> None:
    for point in entry_points(group=PLUGINS):
        found = point.load()
        if not isinstance(found, TaskSpec):
            raise InputError(
                f"entry point '{point.name}' of group {PLUGINS} must name an ella.TaskSpec, got "
                f"{point.value}"
            )
        if found.name != point.name:
            raise InputError(
                f"entry point '{point.name}' of group {PLUGINS} names a task called "
                f"'{found.name}'; use one name"
            )
        register(found)


def task_of(table: Any, *, where: str) -> TaskSpec:
    """The task of a JSON table of its fields; `where` is for errors."""
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise InputError(f"{where}: task: expected a table with a name")
    return updated(TaskSpec(table["name"], ("goto",)), table, where=f"{where}: task")
