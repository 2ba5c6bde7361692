"""The episode that a page shows: who acts, on which level, and what ELLA makes of it."""

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from ella import agents
from ella.episodes.episode import Actor, expert_actor, seed_key
from ella.episodes.trained import trained_actor
from ella.errors import InputError, unknown_name
from ella.runs.policies import load_policy
from ella.runs.restore import has_ella, learned_ella, newest_policy
from ella.studio.ledger_view import Judges, LedgerView, true_judges
from ella.training.policy import Policy
from ella.world import compiled, describe, load, make
from ella.world.encoding import ACTION_NAMES, cell_of, decode_cells
from ella.world.grammar import parse
from ella.world.render import frame
from ella.world.state import Timestep
from ella.world.tasks import TaskSpec, find

MAX_EVENTS = 200
"""The newest lines of the log that a page is sent."""


@dataclass(frozen=True)
class Cast:
    """A task and who acts in it: a trained policy, or the expert where there is none."""

    spec: TaskSpec
    agent: str
    """What the page calls who acts."""
    policy: Policy | None
    judges: Judges | None


def cast_of(name: str, seed_index: int = 0) -> Cast:
    """A run by its directory, an agent as `agent:NAME`, a policy by its file, or a task by its
    name."""
    folder = agents.located(name)
    if seed_index and not folder.is_dir():
        raise InputError(f"{name} is no run to choose a seed of; leave out --seed-index")
    if folder.is_file():
        policy = load_policy(folder)
        return Cast(policy.spec, _trained(policy), policy, true_judges(policy.spec))
    if not folder.is_dir():
        if len(folder.parts) > 1:
            raise InputError(f"{name} is neither a run, a policy file nor a task's name")
        spec = find(name, also=agents.NO_RUN)
        return Cast(spec, "expert", None, true_judges(spec))
    policy = newest_policy(folder, seed_index)
    judges: Judges | None
    if has_ella(folder):
        learned = learned_ella(folder, seed_index)
        judges = Judges(learned.shaper, learned.state, are_learned=True)
    else:
        judges = true_judges(policy.spec)
    return Cast(policy.spec, _trained(policy), policy, judges)


def _trained(policy: Policy) -> str:
    return f"trained agent after {policy.frames:,} frames"


class StudioSession:
    """One episode at a time. Not safe for several threads: the server calls it under a lock."""

    _first: Timestep
    """The episode's reset."""
    _timestep: Timestep
    _actor: Actor
    _outcome: str
    """Empty while the episode runs."""
    _events: list[dict[str, Any]]
    _total: float
    """Bonuses of the episode, charges included."""

    def __init__(self, name: str, seed_indices: Mapping[str, int]) -> None:
        """Begin with the cast `name`. `seed_indices` has all names to choose from, with the index
        of the seed that acts."""
        self._seed_indices = dict(seed_indices)
        self._casts: dict[str, Cast] = {}
        self.choose(name)

    def choose(self, name: str) -> None:
        """Another task or run, on its first level."""
        if name not in self._seed_indices:
            raise unknown_name("task or run", name, self._seed_indices)
        if name not in self._casts:
            self._casts[name] = cast_of(name, self._seed_indices[name])
        self._name, self._cast = name, self._casts[name]
        self._world = make(self._cast.spec)
        judges = self._cast.judges
        self._ledger = None if judges is None else LedgerView(self._cast.spec, judges)
        self.new_level(0)

    def new_level(self, seed: int) -> None:
        """A freshly generated level."""
        self._seed = seed
        self._begin(compiled.reset(self._world, seed_key(seed)))

    def instruct(self, text: str) -> None:
        """The level from its start with another instruction of the task."""
        instruction = " ".join(text.lower().split())
        self._world.language.find(instruction)
        self._check_objects(instruction)
        start = {
            name: value
            for name, value in describe(self._first.state).items()
            if name not in ("max_steps", "step_count")
        }
        state = load(self._world, {**start, "mission": instruction})
        observation = self._world.observe(state)
        self._begin(replace(self._first, state=state, observation=observation))

    def restart(self) -> None:
        """The same level and instruction from the start."""
        self._begin(self._first)

    def step(self, action: int | None) -> None:
        """One action, or the agent's own choice; nothing once the episode has ended."""
        if action is not None and not 0 <= action < len(ACTION_NAMES):
            raise InputError(f"action must lie in 0..{len(ACTION_NAMES) - 1}, got {action}")
        if self._outcome:
            return
        # The agent sees every step, also those it does not choose: it has a memory.
        suggested = self._actor(self._timestep)
        chosen = suggested if action is None else action
        before = self._timestep
        after = compiled.step(self._world, before.state, np.int32(chosen))
        self._timestep = after
        who = "agent" if action is None else "you"
        self._log(f"{who}: {ACTION_NAMES[chosen]}", "action")
        if self._ledger is not None:
            self._pay(before, chosen, after)
        if bool(after.terminated):
            self._outcome = f"solved, reward {float(after.reward):.2f}"
        elif bool(after.truncated):
            self._outcome = "out of steps"
        if self._outcome:
            self._log(self._outcome, "outcome")

    def snapshot(self) -> dict[str, Any]:
        """Everything a page shows, as JSON."""
        now = describe(self._timestep.state)
        judges = self._cast.judges
        return {
            "name": self._name,
            "names": list(self._seed_indices),
            "agent": self._cast.agent,
            "seed": self._seed,
            "mission": now["mission"],
            "step": now["step_count"],
            "max_steps": now["max_steps"],
            "carrying": " ".join(reversed(now["carrying"])) if now["carrying"] else "",
            "outcome": self._outcome,
            "picture": _picture(frame(now, view=np.asarray(self._timestep.observation.image))),
            "total": round(self._total, 4),
            "judged_by": "" if judges is None else _judged_by(judges),
            "low_level": [] if self._ledger is None else self._ledger.rows(),
            "events": self._events[-MAX_EVENTS:],
            "actions": list(ACTION_NAMES),
        }

    def _begin(self, timestep: Timestep) -> None:
        self._first = self._timestep = timestep
        self._events = []
        self._outcome = ""
        self._total = 0.0
        self._actor = self._new_actor()
        if self._ledger is not None:
            self._ledger.begin(timestep)

    def _new_actor(self) -> Actor:
        policy = self._cast.policy
        if policy is None:
            return expert_actor(self._world)
        return trained_actor(policy, jax.random.fold_in(jax.random.key(1), self._seed))

    def _pay(self, before: Timestep, action: int, after: Timestep) -> None:
        assert self._ledger is not None
        texts, bonus = self._ledger.step(before, action, after)
        self._total += bonus
        if texts:
            self._log(f"completed and paid for: {' / '.join(texts)}", "payment", bonus)
        if bonus < 0:
            self._log("success: the episode's bonuses are taken back", "charge", bonus)

    def _log(self, text: str, kind: str, bonus: float = 0.0) -> None:
        step = int(self._timestep.state.step_count)
        self._events.append({"step": step, "text": text, "kind": kind, "bonus": round(bonus, 4)})

    def _check_objects(self, instruction: str) -> None:
        """An instruction about things that this level does not have cannot be followed."""
        grid = np.asarray(decode_cells(self._first.state.cells)).reshape(-1, 3)
        present = {int(cell_of(int(type_), int(colour))) for type_, colour, _ in grid}
        for clause in parse(instruction).clauses:
            for phrase in clause.phrases:
                if phrase.object_class not in present:
                    name = phrase.text.partition(" ")[2]
                    raise InputError(f"this level has no {name}: try another level")


def _judged_by(judges: Judges) -> str:
    return "the run's classifiers" if judges.are_learned else "ground truth"


def _picture(pixels: np.ndarray) -> str:
    """A PNG as a data address."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
