"""Looking inside: what ELLA holds relevant to an instruction, and why."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from ella.shaping import relevance_dataset
from ella.shaping.ella import EllaShaper, EllaState
from ella.shaping.oracle import low_level_of, oracle_relevance
from ella.world.language import Language
from ella.world.tasks import TaskSpec

RELEVANT = 0.5
MOST_LISTED = 4
"""Low-level instructions named in one line of text."""


@dataclass(frozen=True)
class Judgement:
    """One low-level instruction as seen from a high-level one."""

    text: str
    probability: float
    """The relevance judge's; 0 or 1 for an oracle. Relevant if above `RELEVANT`."""
    in_dataset: bool
    """Whether every success so far, as far as D remembers, completed it."""
    oracle: bool
    """Whether it truly supports the high-level instruction."""


@dataclass(frozen=True)
class Explanation:
    """All low-level instructions, the most relevant first."""

    instruction: str
    seen: bool
    """Whether D holds the instruction: it has been solved, and something was completed."""
    judgements: tuple[Judgement, ...]

    @property
    def paid_for(self) -> tuple[str, ...]:
        """The low-level instructions that earn the bonus."""
        return tuple(one.text for one in self.judgements if one.probability > RELEVANT)

    def __str__(self) -> str:
        paid = self.paid_for
        if len(paid) == len(self.judgements):
            listed = f"everything ({len(paid)} low-level instructions)"
        else:
            listed = ", ".join(paid[:MOST_LISTED]) or "nothing"
            listed += f" and {len(paid) - MOST_LISTED} more" * (len(paid) > MOST_LISTED)
        return f"for '{self.instruction}' ELLA pays for: {listed}"


def explain(spec: TaskSpec, shaper: EllaShaper, state: EllaState, text: str) -> Explanation:
    """What ELLA makes of one instruction. `state` is one seed's; an unknown text is an error."""
    language = spec.language
    instruction_id = language.find(text)
    ids = jnp.asarray([instruction_id])
    probability = relevance_map(shaper, state, np.array([instruction_id]))[0]
    members = relevance_dataset.decompositions(state.dataset, ids, probability.size)[0]
    low = shaper.low_level or low_level_of(spec).language
    truth = oracle_relevance(spec, ids, low)[0]
    judgements = [
        Judgement(low.text(i), float(probability[i]), bool(members[i]), bool(truth[i]))
        for i in range(low.num_ids)
    ]
    judgements.sort(key=lambda judgement: -judgement.probability)
    return Explanation(language.text(instruction_id), bool(members.any()), tuple(judgements))


def spread_instructions(language: Language, most: int) -> np.ndarray:
    """int32[N]: ids of at most that many instructions, evenly spaced over a language."""
    ids = np.unique(np.linspace(0, language.num_ids - 1, 4 * most).astype(np.int32))
    ids = ids[language.is_valid(ids)]
    return ids[np.unique(np.linspace(0, len(ids) - 1, min(most, len(ids))).astype(int))]


def relevance_map(shaper: EllaShaper, state: EllaState, ids: np.ndarray) -> np.ndarray:
    """float32[N, L] probabilities of relevance for a heat map; `state` is one seed's."""
    return np.asarray(shaper.relevance.probability(state.relevance, jnp.asarray(ids)))
