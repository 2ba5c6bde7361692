"""Relevance for instructions that are met during training instead of being known beforehand."""

from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32, PRNGKeyArray

from ella.measurement import Mean, Measurements
from ella.networks.relevance import relevance_classifier, relevance_matrix
from ella.schedule import steps_of, whole_iterations
from ella.shaping import relevance_training
from ella.shaping.relevance import LOG_HALF, AbstractRelevance, learn_everything, learn_from_dataset
from ella.shaping.relevance_dataset import RelevanceDataset
from ella.shaping.relevance_training import Decompositions, RelevanceLearner
from ella.shaping.settings import RelevanceSettings
from ella.trajectory import InstructionTable

PADDING = 0
"""The token after a sentence's last word."""
STARTED = "started_with_everything"
"""A measurement of the first update: 1 if it started with everything relevant, 0 if not."""
CHUNK = 64
"""Sentences that are judged at a time."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class FreeTextLearner:
    """The sentences met by one seed, and the classifier that learns from them."""

    learner: RelevanceLearner
    sentences: Int32[Array, "num_ids n"]
    """High-level instructions by id; rows of padding are not in use."""
    learned: Bool[Array, " num_ids"]
    """Instructions that had succeeded at the last update and whose words all have a token. To any
    other every low-level instruction is relevant."""
    relevant: Bool[Array, "num_ids L"]
    """The classifier's judgement of every sentence, so that it need not read them at every step."""


class FreeTextRelevance(AbstractRelevance):
    """The Siamese classifier over sentences of any language.

    To an instruction that has never succeeded every low-level instruction is relevant, until the
    update after its first success. The first update begins by teaching the classifier just that for
    the sentences met so far, and it learns from successes from there on, as it does for a known
    language. The last token is that of words without one of their own: to instructions with such
    words everything stays relevant.
    """

    settings: RelevanceSettings = eqx.field(static=True)
    vocabulary: int = eqx.field(static=True)
    """Tokens lie below it; 0 is padding."""
    num_ids: int = eqx.field(static=True)
    """The most sentences that are remembered."""
    num_low_level: int = eqx.field(static=True)
    low_tokens: Int32[Array, "L n"]

    def init(self, *, key: PRNGKeyArray) -> FreeTextLearner:
        classifier = relevance_classifier(
            self.settings.network, vocabulary=self.vocabulary, key=key
        )
        return FreeTextLearner(
            learner=relevance_training.start(classifier),
            sentences=jnp.full((self.num_ids, self.low_tokens.shape[1]), PADDING, jnp.int32),
            learned=jnp.zeros(self.num_ids, bool),
            relevant=jnp.ones((self.num_ids, self.num_low_level), bool),
        )

    def relevant(
        self, state: FreeTextLearner, instructions: InstructionTable
    ) -> Bool[Array, "R L"]:
        return state.relevant[instructions.ids]

    def meet(
        self, state: FreeTextLearner, ids: Int32[Array, " N"], tokens: Int32[Array, "N n"]
    ) -> FreeTextLearner:
        """With new sentences in place of what had their ids; ids beyond the table are passed
        over."""
        return replace(
            state,
            sentences=state.sentences.at[ids].set(tokens, mode="drop"),
            learned=state.learned.at[ids].set(False, mode="drop"),
            relevant=state.relevant.at[ids].set(True, mode="drop"),
        )

    def pays_everything(self, steps: Int32[Array, " T"], num_envs: int) -> Bool[Array, " T"]:
        return steps < steps_of(self.settings.everything_frames, num_envs)

    def probability(self, state: FreeTextLearner, ids: Int32[Array, " N"]) -> Float[Array, "N L"]:
        logs, _ = relevance_matrix(state.learner.classifier, state.sentences[ids], self.low_tokens)
        return jnp.where(state.learned[ids, None], jnp.exp(logs), 1.0)

    def fit(
        self,
        state: FreeTextLearner,
        dataset: RelevanceDataset,
        iteration: Int32[Array, ""],
        *,
        frames_per_iteration: int,
        key: PRNGKeyArray,
    ) -> tuple[FreeTextLearner, Measurements]:
        teach_key, learn_key = jax.random.split(key)

        def update(state: FreeTextLearner) -> tuple[FreeTextLearner, Measurements]:
            is_first = state.learner.optimiser.count == 0
            learner, started = jax.lax.cond(
                is_first,
                lambda state: self._teach(state, key=teach_key),
                lambda state: (state.learner, jnp.zeros((), bool)),
                state,
            )
            learner = learn_from_dataset(
                self.settings,
                learner,
                dataset,
                lambda ids: state.sentences[ids],
                self.low_tokens,
                key=learn_key,
            )
            solved = (dataset.members != 0).any(-1)
            has_tokens = (state.sentences != self.vocabulary - 1).all(-1)
            new = replace(state, learner=learner, learned=solved & has_tokens)
            measured = Mean(started.astype(jnp.float32), is_first.astype(jnp.float32))
            return replace(new, relevant=self._judge_all(new)), {STARTED: measured}

        def keep(state: FreeTextLearner) -> tuple[FreeTextLearner, Measurements]:
            return state, {STARTED: Mean(jnp.zeros(()), jnp.zeros(()))}

        every = whole_iterations(self.settings.update_every, frames_per_iteration)
        due = (iteration + 1) % every == 0
        return jax.lax.cond(due, update, keep, state)

    def _teach(
        self, state: FreeTextLearner, *, key: PRNGKeyArray
    ) -> tuple[RelevanceLearner, Bool[Array, ""]]:
        """Teach that everything is relevant to some of the sentences met; whether that worked."""
        draw_key, train_key = jax.random.split(key)
        # If fewer were met, they are repeated: with fewer rows training would have fewer steps.
        count = self.settings.initial_instructions
        met = jnp.maximum(_num_sentences(state), 1)
        drawn = jax.random.randint(draw_key, (count,), 0, met)
        in_turn = jnp.arange(count, dtype=jnp.int32) % met
        tokens = state.sentences[jnp.where(met <= count, in_turn, drawn)]
        data = Decompositions(
            tokens=tokens,
            relevant=jnp.ones((count, self.num_low_level), bool),
            used=jnp.ones(count, bool),
        )

        def all_relevant(learner: RelevanceLearner) -> Bool[Array, ""]:
            logs, _ = relevance_matrix(learner.classifier, tokens, self.low_tokens)
            return (logs > LOG_HALF).all()

        learner = learn_everything(
            self.settings, state.learner, data, self.low_tokens, all_relevant, key=train_key
        )
        return learner, all_relevant(learner)

    def _judge_all(self, state: FreeTextLearner) -> Bool[Array, "num_ids L"]:
        """Every sentence in use, some at a time; to the others everything is relevant."""
        chunk = min(CHUNK, self.num_ids)

        def judge_some(index: Int32[Array, ""], rows: Bool[Array, "num_ids L"]) -> Array:
            start = jnp.minimum(index * chunk, self.num_ids - chunk)
            ids = start + jnp.arange(chunk, dtype=jnp.int32)
            found = self.probability(state, ids) > 0.5
            return jax.lax.dynamic_update_slice_in_dim(rows, found, start, axis=0)

        everything = jnp.ones((self.num_ids, self.num_low_level), bool)
        chunks = (_num_sentences(state) + chunk - 1) // chunk
        return jax.lax.fori_loop(0, chunks, judge_some, everything)


def _num_sentences(state: FreeTextLearner) -> Int32[Array, ""]:
    """They lie in front; every sentence has a word."""
    return (state.sentences[:, 0] != PADDING).sum(dtype=jnp.int32)
