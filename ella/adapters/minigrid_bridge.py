"""Levels of this world in the real minigrid, so that the same policy can be played in both.

Needs the package: `pip install minigrid==3.2.0`.
"""

from typing import Any

import numpy as np

from ella.errors import InputError
from ella.world.encoding import COLOUR_NAMES, TYPE_NAMES
from ella.world.grammar import Clause, Phrase, Sentence, parse
from ella.world.state import AFTER, AND, BEFORE, GOTO, OPEN_DOOR, PICK_UP, SINGLE
from ella.world.tasks import TaskSpec


def minigrid_environment(spec: TaskSpec) -> Any:
    """A minigrid environment (gymnasium API) of the task's size.

    `environment.reset(options={"level": description})` starts the level that
    `ella.world.describe(state)` gave for a state at the beginning of its episode.
    """
    try:
        from minigrid.core.roomgrid import RoomGrid
        from minigrid.core.world_object import WorldObj
        from minigrid.envs.babyai.core import verifier
        from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel
    except ImportError as error:
        raise InputError(
            "playing in minigrid needs the package: pip install minigrid==3.2.0"
        ) from error

    class BridgedLevel(RoomGridLevel):
        """A level that is given instead of drawn."""

        def __init__(self) -> None:
            self.level: dict[str, Any] | None = None
            super().__init__(
                room_size=spec.room_size,
                num_rows=spec.rows,
                num_cols=spec.cols,
                max_steps=spec.max_steps,
            )

        def reset(self, *, options: dict[str, Any] | None = None, **kwargs: Any) -> Any:
            if options is None or "level" not in options:
                raise InputError("reset needs options={'level': description}")
            self.level = options["level"]
            return super().reset(**kwargs)

        def _gen_grid(self, width: int, height: int) -> None:
            level = self.level
            assert level is not None
            RoomGrid._gen_grid(self, width, height)
            triples = np.asarray(level["grid"])
            if triples.shape[:2] != (width, height):
                raise InputError(
                    f"the level is {triples.shape[0]} x {triples.shape[1]} cells, task "
                    f"'{spec.name}' has {width} x {height}"
                )
            if level["carrying"] is not None or int(level["step_count"]) != 0:
                raise InputError("only the beginning of an episode can be taken to minigrid")
            for x in range(width):
                for y in range(height):
                    cell = WorldObj.decode(*(int(number) for number in triples[x, y]))
                    self.grid.set(x, y, cell)
                    if cell is not None:
                        cell.init_pos = cell.cur_pos = (x, y)
            x, y = level["agent_pos"]
            self.agent_pos = (int(x), int(y))
            self.agent_dir = int(level["agent_dir"])
            self.instrs = _instruction(parse(level["mission"]), verifier)
            self.surface = self.instrs.surface(self)
            self.mission = self.surface

    return BridgedLevel()


def _instruction(sentence: Sentence, verifier: Any) -> Any:
    """Minigrid's instruction objects of a sentence."""
    clauses = [_clause(clause, verifier) for clause in sentence.clauses]
    if sentence.form == SINGLE:
        return clauses[0]
    joined = {
        AND: verifier.AndInstr,
        BEFORE: verifier.BeforeInstr,
        AFTER: verifier.AfterInstr,
    }[sentence.form]
    return joined(*clauses)


def _clause(clause: Clause, verifier: Any) -> Any:
    described = [_description(phrase, verifier) for phrase in clause.phrases]
    if clause.kind == GOTO:
        return verifier.GoToInstr(described[0])
    if clause.kind == OPEN_DOOR:
        return verifier.OpenInstr(described[0])
    if clause.kind == PICK_UP:
        return verifier.PickupInstr(described[0])
    return verifier.PutNextInstr(*described)


def _description(phrase: Phrase, verifier: Any) -> Any:
    return verifier.ObjDesc(TYPE_NAMES[phrase.type], COLOUR_NAMES[phrase.colour])
