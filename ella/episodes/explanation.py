"""Looking inside: what ELLA holds relevant to an instruction, and why."""

from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Array, Bool, Float, Int32, PyTree

from ella.compilation import jit_for_few_calls
from ella.shaping import relevance_dataset
from ella.shaping.ella import EllaShaper, EllaState
from ella.shaping.oracle import low_level_of, oracle_relevance
from ella.shaping.relevance import AbstractRelevance
from ella.trajectory import InstructionTable
from ella.world.language import Language
from ella.world.tasks import TaskSpec

MOST_LISTED = 4
"""Low-level instructions named in one line of text."""


@dataclass(frozen=True)
class Judgement:
    """One low-level instruction as seen from a high-level one."""

    text: str
    probability: float
    """The relevance judge's; 0 or 1 for an oracle."""
    relevant: bool
    """Whether it is paid for: the judge has a threshold of its own."""
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
        return tuple(one.text for one in self.judgements if one.relevant)

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
    low = shaper.low_level or low_level_of(spec).language
    found = _look_up(shaper, state, spec, low, np.array([instruction_id], np.int32))
    probability, relevant, members, truth = (np.asarray(part)[0] for part in found)
    told = [relevant, members, truth]
    judgements = [
        Judgement(low.text(i), float(probability[i]), *(bool(part[i]) for part in told))
        for i in range(low.num_ids)
    ]
    judgements.sort(key=lambda judgement: -judgement.probability)
    return Explanation(language.text(instruction_id), bool(members.any()), tuple(judgements))


@partial(jit_for_few_calls, static_argnums=(2, 3))
def _look_up(
    shaper: EllaShaper,
    state: EllaState,
    spec: TaskSpec,
    low: Language,
    ids: Int32[Array, " N"],
) -> tuple[Float[Array, "N L"], Bool[Array, "N L"], Bool[Array, "N L"], Bool[Array, "N L"]]:
    """(probability of relevance, whether it is paid for, membership in D, true relevance) of every
    pair."""
    instructions = InstructionTable(ids, spec.language.tokens(ids))
    members = relevance_dataset.decompositions(state.dataset, ids, low.num_ids)
    return *_judge(shaper, state, instructions), members, oracle_relevance(spec, ids, low)


def spread_instructions(language: Language, most: int) -> np.ndarray:
    """int32[N]: ids of at most that many instructions, evenly spaced over a language."""
    ids = np.unique(np.linspace(0, language.num_ids - 1, 4 * most).astype(np.int32))
    ids = ids[language.is_valid(ids)]
    return ids[np.unique(np.linspace(0, len(ids) - 1, min(most, len(ids))).astype(int))]


def relevance_map(shaper: EllaShaper, state: EllaState, ids: np.ndarray) -> np.ndarray:
    """float32[N, L] probabilities of relevance for a heat map; `state` is one seed's."""
    return np.asarray(_probability(shaper.relevance, state.relevance, ids))


@jit_for_few_calls
def _probability(
    relevance: AbstractRelevance, state: PyTree, ids: Int32[Array, " N"]
) -> Float[Array, "N L"]:
    return relevance.probability(state, ids)


def judged(
    shaper: EllaShaper, state: EllaState, instructions: InstructionTable
) -> tuple[np.ndarray, np.ndarray]:
    """(float32[N, L] probabilities of relevance, bool[N, L] what is paid for) of instructions;
    `state` is one seed's."""
    probability, relevant = _judge_once(shaper, state, instructions)
    return np.asarray(probability), np.asarray(relevant)


def _judge(
    shaper: EllaShaper, state: EllaState, instructions: InstructionTable
) -> tuple[Float[Array, "N L"], Bool[Array, "N L"]]:
    relevance = shaper.relevance
    everything = relevance.pays_everything(state.steps[None], shaper.num_envs or 1)
    relevant = relevance.relevant(state.relevance, instructions) | everything[:, None]
    return relevance.probability(state.relevance, instructions.ids), relevant


_judge_once = jit_for_few_calls(_judge)
