"""What ELLA sees and pays in one episode, one step at a time."""

from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ella.episodes.payments import episode_trajectory
from ella.shaping.ella import EllaShaper, EllaState, EpisodeLedger, ella_shaper
from ella.shaping.oracle import low_level_of
from ella.shaping.relevance import OracleRelevance
from ella.shaping.termination import visible_termination
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
        self.language = low_level_of(spec).language
        self._judges = judges
        self._account = eqx.filter_jit(judges.shaper.account)

    def begin(self, timestep: Timestep) -> None:
        """Start an episode with the mission of `timestep`, a reset's."""
        count = self.language.num_ids
        nothing = jnp.zeros((1, count), bool)
        ledger = EpisodeLedger(nothing, nothing, jnp.zeros(1))
        self._state = replace(self._judges.state, ledger=ledger)
        self._is_first = True
        self.completed = np.zeros(count, bool)
        self.paid = np.zeros(count, bool)
        ids = timestep.observation.instruction_id[None]
        shaper, state = self._judges.shaper, self._judges.state
        self.relevance = np.asarray(shaper.relevance.probability(state.relevance, ids))[0]

    def step(self, before: Timestep, action: int, after: Timestep) -> tuple[list[str], float]:
        """(the low-level instructions a bonus is paid for, the bonus) of one step. What `before`
        shows completed is paid for with this step, and a success is charged with it."""
        trajectory = episode_trajectory([before, after], [action])
        trajectory = replace(trajectory, first=jnp.full((1, 1), self._is_first))
        self._state, account = self._account(self._state, trajectory)
        self._is_first = False
        earned = np.asarray(account.earned[0, 0])
        self.completed = np.asarray(account.completed[0, 0])
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
                "completed": bool(self.completed[i]),
                "paid": bool(self.paid[i]),
            }
            for i in order
        ]
