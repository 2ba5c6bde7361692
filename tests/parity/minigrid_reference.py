"""The real minigrid as the reference: its levels, its steps, its words."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")

import numpy as np
from minigrid.core.grid import Grid
from minigrid.core.world_object import Ball, Box, Key, WorldObj
from minigrid.envs.babyai import GoToLocal, PutNextLocal
from minigrid.envs.babyai.core.levelgen import LevelGen
from minigrid.envs.babyai.core.verifier import (
    OBJ_TYPES,
    AfterInstr,
    AndInstr,
    BeforeInstr,
    GoToInstr,
    ObjDesc,
    OpenInstr,
    PickupInstr,
    PutNextInstr,
)

from ella.world.encoding import COLOUR_NAMES, TYPE_NAMES
from ella.world.grammar import Clause, parse
from ella.world.state import AFTER, AND, BEFORE, GOTO, OPEN_DOOR, PICK_UP
from ella.world.tasks import TaskSpec

NUM_ACTIONS = 7

EVERY_VERB = ("goto-room", "sequence-maze")
"""Tasks that together have every verb, one and several rooms, and locks. Quick tests look at these,
thorough ones at all tasks."""


class ColouredLevel(LevelGen):
    """LevelGen whose phrases always name a colour, with the two sentence forms it lacks, and on
    request without two objects of one class."""

    def __init__(self, form: str, unique_objects: bool, **kwargs: Any) -> None:
        self.form, self.unique_objects = form, unique_objects
        super().__init__(**kwargs)

    def add_distractors(self, *args: Any, **kwargs: Any) -> Any:
        return super().add_distractors(*args, **{**kwargs, "all_unique": self.unique_objects})

    def rand_obj(self, types: Any = OBJ_TYPES, **kwargs: Any) -> ObjDesc:
        while True:
            found = super().rand_obj(types=types, **kwargs)
            if found.color is not None:
                return found

    def rand_instr(self, action_kinds: Any, instr_kinds: Any, depth: int = 0) -> Any:
        def clause(kinds: Any) -> Any:
            return LevelGen.rand_instr(self, kinds, ["action"], depth)

        if self.form == "single":
            return clause(action_kinds)
        if self.form == "each":
            return AndInstr(*[clause([kind]) for kind in action_kinds])
        pair = clause(action_kinds), clause(action_kinds)
        if self.form == "and":
            return AndInstr(*pair)
        return self._rand_elem([BeforeInstr, AfterInstr])(*pair)


def reference_environment(spec: TaskSpec) -> Any:
    """Minigrid's environment for a task."""
    if spec.agent_first:
        if spec.kinds == ("goto",):
            return GoToLocal(room_size=spec.room_size, num_dists=spec.distractors)
        assert spec.kinds == ("putnext",)
        return PutNextLocal(room_size=spec.room_size, num_objs=spec.distractors)
    return ColouredLevel(
        form=spec.form,
        unique_objects=spec.unique_objects,
        room_size=spec.room_size,
        num_rows=spec.rows,
        num_cols=spec.cols,
        num_dists=spec.distractors,
        locked_room_prob=spec.lock_probability,
        locations=False,
        unblocking=spec.unblocking,
        implicit_unlock=spec.implicit_unlock,
        action_kinds=spec.kinds,
        max_steps=spec.max_steps,
    )


@contextlib.contextmanager
def without_output() -> Iterator[None]:
    """Keep minigrid's 'Sampling rejected' lines off the screen."""
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def describe_reference(env: Any) -> dict[str, Any]:
    """What `ella.world.describe` would say about a minigrid environment."""
    carried = env.carrying
    return {
        "grid": env.grid.encode(),
        "agent_pos": tuple(int(number) for number in env.agent_pos),
        "agent_dir": int(env.agent_dir),
        "carrying": None if carried is None else (carried.type, carried.color),
        "mission": env.mission,
        "step_count": int(env.step_count),
        "max_steps": int(env.max_steps),
    }


def start_level(env: Any, description: Mapping[str, Any]) -> dict[str, Any]:
    """Put a described level into a minigrid environment that was reset once before; returns its
    first observation."""
    triples = np.asarray(description["grid"])
    env.grid = Grid(*triples.shape[:2])
    for x, y in np.ndindex(triples.shape[:2]):
        thing = WorldObj.decode(*(int(number) for number in triples[x, y]))
        env.grid.set(x, y, thing)
        if thing is not None:
            thing.init_pos = thing.cur_pos = (x, y)
    env.agent_pos = tuple(description["agent_pos"])
    env.agent_dir = description["agent_dir"]
    env.carrying = None
    env.step_count = 0
    env.instrs = _instruction(description["mission"])
    env.mission = env.surface = env.instrs.surface(env)
    env.instrs.reset_verifier(env)
    env.max_steps = description.get("max_steps") or (
        env.num_navs_needed(env.instrs) * env.room_size**2 * env.num_rows * env.num_cols
    )
    return env.gen_obs()


def _instruction(text: str) -> Any:
    sentence = parse(text)
    clauses = [_clause(clause) for clause in sentence.clauses]
    joined = {AND: AndInstr, BEFORE: BeforeInstr, AFTER: AfterInstr}.get(sentence.form)
    return joined(*clauses) if joined else clauses[0]


def _clause(clause: Clause) -> Any:
    described = [ObjDesc(TYPE_NAMES[p.type], COLOUR_NAMES[p.colour]) for p in clause.phrases]
    single = {GOTO: GoToInstr, OPEN_DOOR: OpenInstr, PICK_UP: PickupInstr}.get(clause.kind)
    return (single or PutNextInstr)(*described)


Driver = Callable[[np.random.Generator, Any], int | None]
"""Chooses the next action in a minigrid environment; None ends the recording."""


def uniform(rng: np.random.Generator, env: Any) -> int:
    """Every action equally often."""
    return int(rng.integers(NUM_ACTIONS))


def handling(rng: np.random.Generator, env: Any) -> int:
    """Picks, drops, toggles and opens whenever there is something to do it with."""
    front = env.grid.get(*env.front_pos)
    actions = env.actions
    if rng.random() < 0.25:
        return uniform(rng, env)
    if front is None:
        if env.carrying is not None and rng.random() < 0.3:
            return int(actions.drop)
        return int(actions.forward)
    if front.type == "door":
        return int(actions.toggle if rng.random() < 0.5 else actions.forward)
    if isinstance(front, Key | Ball | Box) and env.carrying is None and rng.random() < 0.8:
        return int(actions.pickup)
    if front.type == "box" and rng.random() < 0.05:
        return int(actions.toggle)
    return int(actions.left if rng.random() < 0.5 else actions.right)


DRIVERS: dict[str, Driver] = {"uniform": uniform, "handling": handling}


@dataclass(frozen=True)
class Episode:
    """One recorded episode of N actions; observations have N + 1 rows."""

    description: dict[str, Any]
    actions: np.ndarray
    images: np.ndarray
    directions: np.ndarray
    missions: list[str]
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


def scripted(actions: Any) -> Driver:
    """Takes the given actions one after another."""
    remaining = iter([int(action) for action in actions])
    return lambda rng, env: next(remaining, None)


def record(
    env: Any,
    first: Mapping[str, Any],
    driver: Driver,
    rng: np.random.Generator,
    steps_after_end: int = 0,
) -> Episode:
    """Play from a fresh observation to the episode's end, and `steps_after_end` further."""
    description = describe_reference(env)
    observations, outcomes, actions = [first], [], []
    left = steps_after_end
    ended = False
    while not ended or left > 0:
        action = driver(rng, env)
        if action is None:
            break
        left -= ended
        observation, reward, terminated, truncated, _ = env.step(env.actions(action))
        ended = ended or terminated or truncated
        actions.append(action)
        observations.append(observation)
        outcomes.append((reward, terminated, truncated))
    return Episode(
        description=description,
        actions=np.array(actions, np.int32),
        images=np.stack([o["image"] for o in observations]),
        directions=np.array([o["direction"] for o in observations]),
        missions=[o["mission"] for o in observations],
        rewards=np.array([o[0] for o in outcomes]),
        terminated=np.array([o[1] for o in outcomes]),
        truncated=np.array([o[2] for o in outcomes]),
    )


def record_batch(
    spec: TaskSpec,
    driver_name: str,
    seed: int,
    *,
    min_steps: int,
    levels: Sequence[Mapping[str, Any]] | None = None,
    scripts: Sequence[Any] | None = None,
) -> list[Episode]:
    """Episodes of one task until `min_steps` steps are made (or the given levels are used up).

    Levels are minigrid's own unless `levels` gives them; with `scripts`, one list of actions per
    level, the driver is not asked.
    """
    rng = np.random.default_rng(seed)
    env = reference_environment(spec)
    episodes: list[Episode] = []
    made = 0
    with without_output():
        env.reset(seed=seed)
        while made < min_steps and (levels is None or len(episodes) < len(levels)):
            index = len(episodes)
            first = env.reset()[0] if levels is None else start_level(env, levels[index])
            driver = DRIVERS[driver_name] if scripts is None else scripted(scripts[index])
            extra = int(rng.integers(1, 4)) if rng.random() < 0.25 and scripts is None else 0
            episodes.append(record(env, first, driver, rng, extra))
            made += len(episodes[-1].actions)
    return episodes
