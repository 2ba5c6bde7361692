"""Relevance as a belief: what most successes of an instruction complete.

An intersection over successes has no steady state: a relevant instruction that a success misses,
because the termination classifier did, is lost for good. Here the classifier learns P(completed |
success, instruction) from the recent successes. A low-level instruction is relevant where that
probability exceeds one half and, with base rates, the rate at which all episodes complete it:
what fires whatever the agent does tells nothing about success.

Completions are rare, so they are weighted until they count half of all pairs, which makes learning
quicker; the logit is shifted back by the logarithm of that weight, so that it stays one of
P(completed | success, instruction).

A single success is a noisy label, so below `fewest_successes` the classifier learns from D
instead: its rows are fewer but cleaner, and relevant and irrelevant ones count half each.
"""

from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32, PRNGKeyArray, PyTree

from ella.measurement import Measurements
from ella.networks.relevance import relevance_matrix
from ella.schedule import whole_iterations
from ella.shaping import recent_successes, relevance_dataset, relevance_training
from ella.shaping.recent_successes import FiringRates, RecentSuccesses
from ella.shaping.relevance import (
    AbstractRelevance,
    EpisodeEnds,
    LearnedRelevance,
)
from ella.shaping.relevance_dataset import RelevanceDataset
from ella.shaping.relevance_training import Decompositions, RelevanceLearner
from ella.trajectory import InstructionTable

LEAST_SHARE = 0.01
"""Bounds the weight of completions where there are hardly any, or hardly anything else."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Beliefs:
    """What changes while one seed trains."""

    learner: RelevanceLearner
    successes: RecentSuccesses
    rates: FiringRates
    shift: Float[Array, ""]
    """What weighting has added to logits; 0 before the first update and while D is learned from."""


class BelievedRelevance(AbstractRelevance):
    """The relevance classifier, learned from recent successes instead of intersections."""

    learned: LearnedRelevance
    """Where the classifier starts, and how it is validated."""
    num_low_level: int = eqx.field(static=True)

    def __init__(self, learned: LearnedRelevance):
        self.learned = learned
        self.num_low_level = learned.num_low_level

    def ready_to_learn(self) -> "BelievedRelevance":
        return BelievedRelevance(self.learned.ready_to_learn())

    def init(self, *, key: PRNGKeyArray) -> Beliefs:
        return self._without_episodes(self.learned.init(key=key))

    def state_shapes(self) -> PyTree:
        return jax.eval_shape(self._without_episodes, self.learned.state_shapes())

    def _without_episodes(self, learner: RelevanceLearner) -> Beliefs:
        capacity = self.learned.settings.recent_successes
        return Beliefs(
            learner=learner,
            successes=recent_successes.empty(capacity, self.num_low_level),
            rates=recent_successes.no_episodes(self.num_low_level),
            shift=jnp.zeros(()),
        )

    def start_problems(self, state: Beliefs) -> dict[str, Bool[Array, ""]]:
        return self.learned.start_problems(state.learner)

    def relevant(self, state: Beliefs, instructions: InstructionTable) -> Bool[Array, "R L"]:
        classifier, low_tokens = state.learner.classifier, self.learned.low_tokens
        logs, _ = relevance_matrix(classifier, instructions.tokens, low_tokens)
        return logs > self._log_threshold(state)

    def pays_everything(self, steps: Int32[Array, " T"], num_envs: int) -> Bool[Array, " T"]:
        return self.learned.pays_everything(steps, num_envs)

    def probability(self, state: Beliefs, ids: Int32[Array, " N"]) -> Float[Array, "N L"]:
        weighted = self.learned.probability(state.learner, ids)
        return weighted / (weighted + (1 - weighted) * jnp.exp(state.shift))

    def observe(self, state: Beliefs, episodes: EpisodeEnds) -> Beliefs:
        return replace(
            state,
            successes=recent_successes.record(
                state.successes, episodes.ids, episodes.completed, episodes.success
            ),
            rates=recent_successes.count_episodes(state.rates, episodes.completed, episodes.done),
        )

    def fit(
        self,
        state: Beliefs,
        dataset: RelevanceDataset,
        iteration: Int32[Array, ""],
        *,
        frames_per_iteration: int,
        key: PRNGKeyArray,
    ) -> tuple[Beliefs, Measurements]:
        def measured(state: Beliefs) -> Measurements:
            return self.learned.validate(state.learner, dataset, self._log_threshold(state))

        def update(state: Beliefs) -> tuple[Beliefs, Measurements]:
            sample_key, train_key = jax.random.split(key)
            data = self._labels(state.successes, dataset, key=sample_key)
            learner = relevance_training.learn(
                state.learner,
                data,
                self.learned.low_tokens,
                self.learned.settings.training,
                key=train_key,
            )
            assert data.weights is not None
            irrelevant, relevant = data.weights
            shift = jnp.where(irrelevant < 0, 0.0, jnp.log(relevant / irrelevant))
            rates = recent_successes.updated(state.rates)
            new = Beliefs(learner, state.successes, rates, shift)
            return new, measured(new)

        def keep(state: Beliefs) -> tuple[Beliefs, Measurements]:
            nothing = jax.eval_shape(measured, state)
            return state, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), nothing)

        every = whole_iterations(self.learned.settings.update_every, frames_per_iteration)
        due = (iteration + 1) % every == 0
        return jax.lax.cond(due, update, keep, state)

    def _log_threshold(self, state: Beliefs) -> Float[Array, " L"]:
        """The logarithm of what the network's p must exceed."""
        least = jnp.full(self.num_low_level, 0.5)
        if self.learned.settings.base_rates:
            least = jnp.maximum(least, state.rates.rate)
        return jax.nn.log_sigmoid(jax.scipy.special.logit(least) + state.shift)

    def _labels(
        self, successes: RecentSuccesses, dataset: RelevanceDataset, *, key: PRNGKeyArray
    ) -> Decompositions:
        """Single successes, or D while there are too few of them."""
        settings, tokens_of = self.learned.settings, self.learned.language.tokens
        capacity = successes.ids.size
        few = successes.count < settings.fewest_successes
        wanted = min(settings.training.max_instructions, dataset.members.shape[0], capacity)
        ids, used = relevance_dataset.sample_seen(dataset, wanted, key=key)
        missing = capacity - wanted
        rows = relevance_dataset.decompositions(dataset, ids, self.num_low_level)
        in_ring = jnp.arange(capacity) < successes.count
        completed = recent_successes.completions(successes, self.num_low_level)
        ids = jnp.where(few, jnp.pad(ids, (0, missing)), successes.ids)
        share = (completed & in_ring[:, None]).sum() / jnp.maximum(
            self.num_low_level * successes.count, 1
        )
        share = jnp.clip(share, LEAST_SHARE, 1 - LEAST_SHARE)
        return Decompositions(
            tokens=tokens_of(ids),
            relevant=jnp.where(few, jnp.pad(rows, ((0, missing), (0, 0))), completed),
            used=jnp.where(few, jnp.pad(used, (0, missing)), in_ring),
            weights=jnp.where(few, -1.0, 0.5 / jnp.stack([1 - share, share])),
        )
