"""Which low-level instructions are worth a bonus: learned online, or told by the oracle."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32, PRNGKeyArray, PyTree

from ella.errors import InputError
from ella.measurement import Mean, Measurements
from ella.networks.relevance import (
    RelevanceClassifier,
    RelevanceNetworkSettings,
    relevance_matrix,
)
from ella.shaping import relevance_dataset, relevance_training
from ella.shaping.oracle import low_level_of, oracle_relevance
from ella.shaping.relevance_dataset import RelevanceDataset
from ella.shaping.relevance_training import Decompositions, Learner, RelevanceTrainingSettings
from ella.trajectory import InstructionTable
from ella.world.grammar import Language
from ella.world.tasks import TaskSpec

LOG_HALF = float(np.log(0.5))
CANDIDATES = 4096
"""Instructions of a language that initial training and validation draw from, at most."""


class AbstractRelevance(eqx.Module):
    """Judges pairs of a high-level and a low-level instruction."""

    num_low_level: eqx.AbstractVar[int]

    @abstractmethod
    def init(self, *, key: PRNGKeyArray) -> PyTree:
        """The state before training."""

    @abstractmethod
    def relevant(self, state: PyTree, instructions: InstructionTable) -> Bool[Array, "R L"]:
        """Which low-level instructions support each instruction of a rollout."""

    @abstractmethod
    def pays_everything(self, steps: Int32[Array, " T"], num_envs: int) -> Bool[Array, " T"]:
        """Whether, at these steps of each environment, every completion is paid for."""

    @abstractmethod
    def probability(self, state: PyTree, ids: Int32[Array, " N"]) -> Float[Array, "N L"]:
        """The probability of relevance of every pair."""

    @abstractmethod
    def fit(
        self,
        state: PyTree,
        dataset: RelevanceDataset,
        iteration: Int32[Array, ""],
        *,
        key: PRNGKeyArray,
    ) -> tuple[PyTree, Measurements]:
        """Learn from the decompositions found so far; called once per iteration."""


@dataclass(frozen=True)
class OracleSettings:
    """The oracle in place of the relevance classifier."""

    after_frames: int = 2_500_000
    """Frames of a seed for which every completion is paid for before the oracle takes over;
    0 for the oracle from the start."""

    def __post_init__(self) -> None:
        if self.after_frames < 0:
            raise InputError(f"after_frames must not be negative, not {self.after_frames}")


class OracleRelevance(AbstractRelevance):
    """True relevance, read off the grammar (`ella.shaping.oracle`)."""

    spec: TaskSpec = eqx.field(static=True)
    settings: OracleSettings = eqx.field(static=True)
    num_low_level: int = eqx.field(static=True)

    def __init__(self, spec: TaskSpec, settings: OracleSettings | None = None):
        self.spec = spec
        self.settings = settings or OracleSettings()
        self.num_low_level = low_level_of(spec).language.num_ids

    def init(self, *, key: PRNGKeyArray) -> PyTree:
        return ()

    def relevant(self, state: PyTree, instructions: InstructionTable) -> Bool[Array, "R L"]:
        return oracle_relevance(self.spec, instructions.ids)

    def pays_everything(self, steps: Int32[Array, " T"], num_envs: int) -> Bool[Array, " T"]:
        return steps < -(-self.settings.after_frames // num_envs)

    def probability(self, state: PyTree, ids: Int32[Array, " N"]) -> Float[Array, "N L"]:
        return oracle_relevance(self.spec, ids).astype(jnp.float32)

    def fit(
        self,
        state: PyTree,
        dataset: RelevanceDataset,
        iteration: Int32[Array, ""],
        *,
        key: PRNGKeyArray,
    ) -> tuple[PyTree, Measurements]:
        return state, {}


@dataclass(frozen=True)
class RelevanceSettings:
    """The relevance classifier and its training."""

    network: RelevanceNetworkSettings = field(default_factory=RelevanceNetworkSettings)
    training: RelevanceTrainingSettings = field(default_factory=RelevanceTrainingSettings)
    update_every: int = 50
    """Iterations between updates."""
    initial_instructions: int = 100
    """High-level instructions the classifier is first taught to call everything relevant to."""
    max_initial_rounds: int = 5
    """Initial training is repeated, up to so many times, until every pair checked is called
    relevant; 1 trains once, as the released code does."""
    validation_instructions: int = 256
    """High-level instructions on which accuracy is measured against the oracle."""

    def __post_init__(self) -> None:
        for name in (
            "update_every", "initial_instructions", "max_initial_rounds",
            "validation_instructions",
        ):  # fmt: skip
            if getattr(self, name) < 1:
                raise InputError(f"relevance {name} must be positive, not {getattr(self, name)}")


class LearnedRelevance(AbstractRelevance):
    """The Siamese classifier, learned from successes while the policy learns.

    It starts by calling everything relevant.
    """

    settings: RelevanceSettings = eqx.field(static=True)
    language: Language = eqx.field(static=True)
    oracle_spec: TaskSpec | None = eqx.field(static=True)
    """The task whose oracle labels measure accuracy; None for languages without an oracle."""
    num_low_level: int = eqx.field(static=True)
    low_tokens: Int32[Array, "L m"]
    candidates: Int32[Array, " K"]
    """Ids that initial training and validation draw from."""

    def __init__(self, spec: TaskSpec, settings: RelevanceSettings | None = None):
        low = low_level_of(spec).language
        self.settings = settings or RelevanceSettings()
        self.language = spec.language
        self.oracle_spec = spec
        self.num_low_level = low.num_ids
        self.low_tokens = low.tokens(jnp.arange(low.num_ids))
        self.candidates = jnp.asarray(some_instructions(spec.language, CANDIDATES))

    def init(self, *, key: PRNGKeyArray) -> Learner:
        """A learner trained until it calls every pair of the candidates relevant."""
        settings = self.settings
        network_key, draw_key, train_key = jax.random.split(key, 3)
        learner = relevance_training.start(RelevanceClassifier(settings.network, key=network_key))
        count = min(settings.initial_instructions, self.candidates.size)
        ids = jax.random.choice(draw_key, self.candidates, (count,), replace=False)
        data = Decompositions(
            tokens=self.language.tokens(ids),
            relevant=jnp.ones((count, self.num_low_level), bool),
            used=jnp.ones(count, bool),
        )

        def all_relevant(learner: Learner) -> Bool[Array, ""]:
            return (self._log_probability(learner, self.candidates) > LOG_HALF).all()

        return learn_everything(
            settings, learner, data, self.low_tokens, all_relevant, key=train_key
        )

    def relevant(self, state: Learner, instructions: InstructionTable) -> Bool[Array, "R L"]:
        logs, _ = relevance_matrix(state.classifier, instructions.tokens, self.low_tokens)
        return logs > LOG_HALF

    def pays_everything(self, steps: Int32[Array, " T"], num_envs: int) -> Bool[Array, " T"]:
        return jnp.zeros_like(steps, bool)

    def probability(self, state: Learner, ids: Int32[Array, " N"]) -> Float[Array, "N L"]:
        return jnp.exp(self._log_probability(state, ids))

    def fit(
        self,
        state: Learner,
        dataset: RelevanceDataset,
        iteration: Int32[Array, ""],
        *,
        key: PRNGKeyArray,
    ) -> tuple[Learner, Measurements]:
        def update(learner: Learner) -> tuple[Learner, Measurements]:
            learner = learn_from_dataset(
                self.settings, learner, dataset, self.language.tokens, self.low_tokens, key=key
            )
            return learner, self.validate(learner)

        def keep(learner: Learner) -> tuple[Learner, Measurements]:
            nothing = jax.eval_shape(self.validate, learner)
            return learner, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), nothing)

        due = (iteration + 1) % self.settings.update_every == 0
        return jax.lax.cond(due, update, keep, state)

    def validate(self, learner: Learner) -> Measurements:
        """Agreement with the oracle, as on a set with as many relevant as irrelevant pairs."""
        if self.oracle_spec is None:
            return {}
        ids = self.candidates[: self.settings.validation_instructions]
        called = self._log_probability(learner, ids) > LOG_HALF
        truth = oracle_relevance(self.oracle_spec, ids)
        recall = (called & truth).sum() / jnp.maximum(truth.sum(), 1)
        false_alarms = (called & ~truth).sum() / jnp.maximum((~truth).sum(), 1)
        precision = recall / jnp.maximum(recall + false_alarms, 1e-6)
        one = jnp.ones(())
        return {
            "relevance_accuracy": Mean((recall + 1 - false_alarms) / 2, one),
            "relevance_precision": Mean(precision, one),
            "relevance_recall": Mean(recall, one),
        }

    def _log_probability(self, learner: Learner, ids: Int32[Array, " N"]) -> Float[Array, "N L"]:
        tokens = self.language.tokens(ids)
        return relevance_matrix(learner.classifier, tokens, self.low_tokens)[0]


def learn_everything(
    settings: RelevanceSettings,
    learner: Learner,
    data: Decompositions,
    low_tokens: Int32[Array, "L m"],
    all_relevant: Callable[[Learner], Bool[Array, ""]],
    *,
    key: PRNGKeyArray,
) -> Learner:
    """The beginning: trained on `data`, in which all is relevant, until `all_relevant` agrees or
    `max_initial_rounds` have passed. The optimiser starts afresh afterwards."""

    def unfinished(carry: tuple[Array, Learner]) -> Array:
        trained, learner = carry
        return (trained < settings.max_initial_rounds) & ((trained == 0) | ~all_relevant(learner))

    def train(carry: tuple[Array, Learner]) -> tuple[Array, Learner]:
        trained, learner = carry
        learner = relevance_training.learn_initially(
            learner, data, low_tokens, settings.training, key=jax.random.fold_in(key, trained)
        )
        return trained + 1, learner

    _, learner = jax.lax.while_loop(unfinished, train, (jnp.zeros((), jnp.int32), learner))
    return relevance_training.start(learner.classifier)


def learn_from_dataset(
    settings: RelevanceSettings,
    learner: Learner,
    dataset: RelevanceDataset,
    tokens_of: Callable[[Int32[Array, " C"]], Int32[Array, "C n"]],
    low_tokens: Int32[Array, "L m"],
    *,
    key: PRNGKeyArray,
) -> Learner:
    """One online update from D."""
    training = settings.training
    sample_key, train_key = jax.random.split(key)
    capacity = min(training.max_instructions, dataset.members.shape[0])
    ids, used = relevance_dataset.sample_seen(dataset, capacity, key=sample_key)
    data = Decompositions(
        tokens=tokens_of(ids),
        relevant=relevance_dataset.decompositions(dataset, ids, low_tokens.shape[0]),
        used=used,
    )
    return relevance_training.learn(learner, data, low_tokens, training, key=train_key)


def some_instructions(language: Language, limit: int) -> np.ndarray:
    """Up to `limit` instructions of a language in a fixed random order (host, int32)."""
    rng = np.random.default_rng(0)
    if language.num_ids <= 2**16:
        return rng.permutation(language.instruction_ids)[:limit]
    drawn = np.unique(rng.integers(0, language.num_ids, 2 * limit, dtype=np.int32))
    return rng.permutation(drawn[language.is_valid(drawn)])[:limit]
