"""What ELLA sees and pays in one episode, one step at a time."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from ella.compilation import jit_for_few_calls
from ella.episodes.explanation import judged
from ella.episodes.payments import empty_ledger, episode_trajectory
from ella.shaping.ella import Account, EllaShaper, EllaState, ella_shaper
from ella.shaping.oracle import low_level_of
from ella.shaping.relevance import OracleRelevance
from ella.shaping.termination import visible_termination
from ella.trajectory import InstructionTable, Trajectory
from ella.world.state import Timestep
from ella.world.tasks import TaskSpec


@dataclass(frozen=True)
class Judges:
    """ELLA of one seed of a run, or the ground truth where no run is watched."""

    shaper: EllaShaper
    state: EllaState
    are_learned: bool


def true_judges(spec: TaskSpec) -> Judges | None:
    """Ground-truth termination, as far as a view shows it, and ground-truth relevance; None for a
    task without low-level instructions."""
    if spec.low_level is None:
        return None
    judge = visible_termination(low_level_of(spec).language)
    shaper = ella_shaper(spec, judge, OracleRelevance(spec))
    return Judges(shaper, shaper.init(1, key=jax.random.key(0)), are_learned=False)


class LedgerView:
    """Completions and payments of the running episode; `begin` it with every reset."""

    def __init__(self, spec: TaskSpec, judges: Judges) -> None:
        self.language = judges.shaper.low_level or low_level_of(spec).language
        self._judges = judges

    def begin(self, timestep: Timestep) -> None:
        """Start an episode with the mission of `timestep`, a reset's."""
        count = self.language.num_ids
        shaper, state = self._judges.shaper, self._judges.state
        self._state = replace(state, ledger=empty_ledger(shaper, count))
        self._is_first = True
        self.completed = np.zeros(count, bool)
        self.paid = np.zeros(count, bool)
        seen = timestep.observation
        instructions = InstructionTable(
            *jax.device_put((np.asarray(seen.instruction_id)[None], np.asarray(seen.mission)[None]))
        )
        found = judged(shaper, state, instructions)
        self.relevance, self.relevant = (part[0] for part in found)

    def step(self, before: Timestep, action: int, after: Timestep) -> tuple[list[str], float]:
        """(the low-level instructions a bonus is paid for, the bonus) of one step. What `before`
        shows completed is paid for with this step, and a success is charged with it."""
        trajectory = episode_trajectory([before, after], [action])
        first = jax.device_put(np.full((1, 1), self._is_first))
        shaper, trajectory = self._judges.shaper, replace(trajectory, first=first)
        self._state, account = _account(shaper, self._state, trajectory)
        self._is_first = False
        account = jax.device_get(account)
        earned, self.completed = account.earned[0, 0], account.completed[0, 0]
        self.paid = self.paid | earned
        texts = [self.language.text(int(i)) for i in np.flatnonzero(earned)]
        return texts, float(account.bonus[0, 0])

    def rows(self) -> list[dict[str, Any]]:
        """Every low-level instruction, the most relevant first."""
        order = np.argsort(-self.relevance, kind="stable")
        return [
            {
                "text": self.language.text(int(i)),
                "relevance": round(float(self.relevance[i]), 3),
                "relevant": bool(self.relevant[i]),
                "completed": bool(self.completed[i]),
                "paid": bool(self.paid[i]),
            }
            for i in order
        ]


@jit_for_few_calls
def _account(
    shaper: EllaShaper, state: EllaState, trajectory: Trajectory
) -> tuple[EllaState, Account]:
    return shaper.account(state, trajectory)
