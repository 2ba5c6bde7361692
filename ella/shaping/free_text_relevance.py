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
    """The classifier of one seed, and the sentences it has met."""

    learner: RelevanceLearner
    sentences: Int32[Array, "num_ids n"]
    """High-level instructions by id; rows of padding are not in use."""
    taught: Bool[Array, " vocabulary"]
    """Words it has learned from. If an instruction contains other words, every low-level
    instruction counts as relevant, as at the start of training."""
    relevant: Bool[Array, "num_ids L"]
    """Its judgement of every sentence met, so that it need not read them at every step."""


class FreeTextRelevance(AbstractRelevance):
    """The Siamese classifier over sentences of any language.

    Everything is relevant until the first update. Then the classifier is taught just that for the
    sentences met so far, and learns from successes from there on, as it does for a known language.
    If an instruction contains unseen words, every low-level instruction counts as relevant until
    the classifier has learned from it. The last token is that of words without one of their own,
    and always counts as unseen.
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
            taught=jnp.zeros(self.vocabulary, bool).at[PADDING].set(True),
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
            relevant=state.relevant.at[ids].set(self._judge(state, tokens), mode="drop"),
        )

    def pays_everything(self, steps: Int32[Array, " T"], num_envs: int) -> Bool[Array, " T"]:
        return steps < steps_of(self.settings.everything_frames, num_envs)

    def probability(self, state: FreeTextLearner, ids: Int32[Array, " N"]) -> Float[Array, "N L"]:
        return self.probability_of(state, state.sentences[ids])

    def probability_of(
        self, state: FreeTextLearner, tokens: Int32[Array, "N n"]
    ) -> Float[Array, "N L"]:
        """As `probability`, of any sentences."""
        logs, _ = relevance_matrix(state.learner.classifier, tokens, self.low_tokens)
        return jnp.where(state.taught[tokens].all(-1, keepdims=True), jnp.exp(logs), 1.0)

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
            # Only padding is known before the first update, but also after others where every
            # instruction has words beyond the vocabulary; from those the optimiser has steps.
            is_first = (state.taught.sum() == 1) & (state.learner.optimiser.count == 0)
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
                levels=_met(state, self.num_ids),
            )
            met = jnp.arange(self.num_ids) < _num_met(state)
            solved = (dataset.members != 0).any(-1)
            learned_from = jnp.where(is_first, met, solved)[:, None]
            words = jnp.where(learned_from, state.sentences, PADDING)
            taught = state.taught.at[words.reshape(-1)].set(True).at[self.vocabulary - 1].set(False)
            new = replace(state, learner=learner, taught=taught)
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
        met = jnp.maximum(_num_met(state), 1)
        drawn = jax.random.randint(draw_key, (count,), 0, met)
        tokens = state.sentences[jnp.where(met <= count, _met(state, count), drawn)]
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

    def _judge(self, state: FreeTextLearner, tokens: Int32[Array, "R n"]) -> Bool[Array, "R L"]:
        return self.probability_of(state, tokens) > 0.5

    def _judge_all(self, state: FreeTextLearner) -> Bool[Array, "num_ids L"]:
        """Every sentence in use, some at a time; the others are relevant to everything."""
        chunk = min(CHUNK, self.num_ids)

        def judge_some(index: Int32[Array, ""], rows: Bool[Array, "num_ids L"]) -> Array:
            start = jnp.minimum(index * chunk, self.num_ids - chunk)
            tokens = jax.lax.dynamic_slice_in_dim(state.sentences, start, chunk)
            found = self._judge(state, tokens)
            return jax.lax.dynamic_update_slice_in_dim(rows, found, start, axis=0)

        everything = jnp.ones((self.num_ids, self.num_low_level), bool)
        chunks = (_num_met(state) + chunk - 1) // chunk
        return jax.lax.fori_loop(0, chunks, judge_some, everything)


def _num_met(state: FreeTextLearner) -> Int32[Array, ""]:
    """Sentences in use, which come first; every sentence has a word."""
    return (state.sentences[:, 0] != PADDING).sum(dtype=jnp.int32)


def _met(state: FreeTextLearner, count: int) -> Int32[Array, " count"]:
    """So many ids of sentences met, in turn."""
    return jnp.arange(count, dtype=jnp.int32) % jnp.maximum(_num_met(state), 1)
