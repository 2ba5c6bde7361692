"""Which low-level instructions are worth a bonus: learned online, or given by the oracle."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32, PRNGKeyArray, PyTree

from ella.measurement import Mean, Measurements
from ella.networks.relevance import relevance_classifier, relevance_matrix
from ella.schedule import steps_of, whole_iterations
from ella.shaping import relevance_dataset, relevance_training
from ella.shaping.oracle import low_level_of, oracle_relevance
from ella.shaping.relevance_dataset import RelevanceDataset
from ella.shaping.relevance_training import (
    Decompositions,
    RelevanceLearner,
)
from ella.shaping.settings import RelevanceSettings
from ella.trajectory import InstructionTable
from ella.world.environment import make
from ella.world.language import AbstractLanguage, Language
from ella.world.mixtures import Task

LOG_HALF = float(np.log(0.5))
NUM_LEVELS = 4096
"""Levels of a task whose instructions initial training and validation draw from."""
START_PROBLEM = (
    "the relevance classifier does not start with everything relevant; raise "
    "relevance.max_initial_rounds, relevance.training.max_initial_steps or "
    "relevance.initial_instructions"
)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EpisodeEnds:
    """The steps of a rollout at which episodes ended, and what these had completed."""

    ids: Int32[Array, "T B"]
    """The high-level instruction."""
    completed: Bool[Array, "T B L"]
    """Counts where the episode ended."""
    success: Bool[Array, "T B"]
    done: Bool[Array, "T B"]


class AbstractRelevance(eqx.Module):
    """Judges pairs of a high-level and a low-level instruction."""

    num_low_level: eqx.AbstractVar[int]

    def ready_to_learn(self) -> "AbstractRelevance":
        """The judge with what learning needs and judging does not; call it before `init`."""
        return self

    @abstractmethod
    def init(self, *, key: PRNGKeyArray) -> PyTree:
        """The state before training."""

    def state_shapes(self) -> PyTree:
        """The state as shapes, to put arrays into."""
        return jax.eval_shape(lambda: self.init(key=jax.random.key(0)))

    def start_problems(self, state: PyTree) -> dict[str, Bool[Array, ""]]:
        """As `AbstractRewardShaper.start_problems`."""
        return {}

    @abstractmethod
    def relevant(self, state: PyTree, instructions: InstructionTable) -> Bool[Array, "R L"]:
        """Which low-level instructions support each instruction of a rollout."""

    @abstractmethod
    def pays_everything(self, steps: Int32[Array, " T"], num_envs: int) -> Bool[Array, " T"]:
        """Whether, at these steps of each environment, every completion is paid for."""

    @abstractmethod
    def probability(self, state: PyTree, ids: Int32[Array, " N"]) -> Float[Array, "N L"]:
        """The probability of relevance of every pair."""

    def observe(self, state: PyTree, episodes: EpisodeEnds) -> PyTree:
        """Remember how the episodes of a rollout ended; called once per rollout."""
        return state

    @abstractmethod
    def fit(
        self,
        state: PyTree,
        dataset: RelevanceDataset,
        iteration: Int32[Array, ""],
        *,
        frames_per_iteration: int,
        key: PRNGKeyArray,
    ) -> tuple[PyTree, Measurements]:
        """Learn from the decompositions found so far; called once per iteration, each of
        `frames_per_iteration` frames."""


class OracleRelevance(AbstractRelevance):
    """True relevance, read off the grammar (`ella.shaping.oracle`)."""

    spec: Task = eqx.field(static=True)
    after_frames: int = eqx.field(static=True)
    """Frames of a seed for which every completion is paid for before ground truth takes over."""
    low_level: Language = eqx.field(static=True)
    num_low_level: int = eqx.field(static=True)

    def __init__(self, spec: Task, after_frames: int = 0, low_level: Language | None = None):
        self.spec = spec
        self.after_frames = after_frames
        self.low_level = low_level or low_level_of(spec).language
        self.num_low_level = self.low_level.num_ids

    def init(self, *, key: PRNGKeyArray) -> PyTree:
        return ()

    def relevant(self, state: PyTree, instructions: InstructionTable) -> Bool[Array, "R L"]:
        return oracle_relevance(self.spec, instructions.ids, self.low_level)

    def pays_everything(self, steps: Int32[Array, " T"], num_envs: int) -> Bool[Array, " T"]:
        return steps < steps_of(self.after_frames, num_envs)

    def probability(self, state: PyTree, ids: Int32[Array, " N"]) -> Float[Array, "N L"]:
        return oracle_relevance(self.spec, ids, self.low_level).astype(jnp.float32)

    def fit(
        self,
        state: PyTree,
        dataset: RelevanceDataset,
        iteration: Int32[Array, ""],
        *,
        frames_per_iteration: int,
        key: PRNGKeyArray,
    ) -> tuple[PyTree, Measurements]:
        return state, {}


class LearnedRelevance(AbstractRelevance):
    """The Siamese classifier, learned from successes while the policy learns.

    It starts by calling everything relevant. The instructions it starts with, and those its
    accuracy is measured on, are those of freshly generated levels: ids of the language are spread
    over kinds of missions quite differently (97 % put-next on combo-maze, where a third of the
    levels are).
    """

    settings: RelevanceSettings = eqx.field(static=True)
    language: AbstractLanguage = eqx.field(static=True)
    spec: Task = eqx.field(static=True)
    """Whose levels it starts with, and whose oracle labels measure accuracy."""
    low_level: Language = eqx.field(static=True)
    num_low_level: int = eqx.field(static=True)
    low_tokens: Int32[Array, "L m"]
    level_instructions: Int32[Array, " K"] | None
    """The instructions of K levels, as often as levels have them; None where nothing is learned."""
    num_different: int = eqx.field(static=True)
    """Different ones among them."""
    measure_unsolved: bool = eqx.field(static=True)
    """Whether accuracy is also measured on instructions that have never been solved."""

    def __init__(
        self,
        spec: Task,
        settings: RelevanceSettings | None = None,
        low_level: Language | None = None,
        *,
        measure_unsolved: bool = False,
        levels: Int32[np.ndarray, " K"] | None = None,
    ):
        """`ready_to_learn` gives one whose `levels` are drawn."""
        low = low_level or low_level_of(spec).language
        self.measure_unsolved = measure_unsolved
        self.low_level = low
        self.settings = settings or RelevanceSettings()
        self.language = spec.language
        self.spec = spec
        self.num_low_level = low.num_ids
        self.low_tokens = jax.device_put(low.all_tokens)

        self.level_instructions = None if levels is None else jax.device_put(levels)
        self.num_different = 0 if levels is None else np.unique(levels).size

    def ready_to_learn(self) -> "LearnedRelevance":
        return LearnedRelevance(
            self.spec,
            self.settings,
            self.low_level,
            measure_unsolved=self.measure_unsolved,
            levels=instructions_of_levels(self.spec, NUM_LEVELS),
        )

    @property
    def levels(self) -> Int32[Array, " K"]:
        """The instructions of levels, which `ready_to_learn` draws."""
        assert self.level_instructions is not None
        return self.level_instructions

    def init(self, *, key: PRNGKeyArray) -> RelevanceLearner:
        """A learner trained until it calls everything relevant to the instructions of levels."""
        settings = self.settings
        network_key, draw_key, train_key = jax.random.split(key, 3)
        learner = relevance_training.start(relevance_classifier(settings.network, key=network_key))
        ids = self.draw_initial(key=draw_key)
        different = jnp.unique(self.levels, size=self.num_different)
        data = Decompositions(
            tokens=self.language.tokens(ids),
            relevant=jnp.ones((ids.size, self.num_low_level), bool),
            used=jnp.ones(ids.size, bool),
        )

        def all_relevant(learner: RelevanceLearner) -> Bool[Array, ""]:
            return (self.log_probability(learner, different) > LOG_HALF).all()

        return learn_everything(
            settings, learner, data, self.low_tokens, all_relevant, key=train_key
        )

    def state_shapes(self) -> PyTree:
        # Tracing the beginning in full, with its training, takes a second.
        def untrained() -> RelevanceLearner:
            network = relevance_classifier(self.settings.network, key=jax.random.key(0))
            return relevance_training.start(network)

        return jax.eval_shape(untrained)

    def draw_initial(self, *, key: PRNGKeyArray) -> Int32[Array, " C"]:
        """The instructions of initial training: the first different ones of levels in random order,
        so that frequent ones are drawn more probably."""
        count = min(self.settings.initial_instructions, self.num_different)
        shuffled = jax.random.permutation(key, self.levels)
        _, first = jnp.unique(shuffled, return_index=True, size=self.num_different)
        return shuffled[jnp.sort(first)[:count]]

    def start_problems(self, state: RelevanceLearner) -> dict[str, Bool[Array, ""]]:
        called = self.log_probability(state, self.levels) > LOG_HALF
        return {START_PROBLEM: ~called.all()}

    def relevant(
        self, state: RelevanceLearner, instructions: InstructionTable
    ) -> Bool[Array, "R L"]:
        logs, _ = relevance_matrix(state.classifier, instructions.tokens, self.low_tokens)
        return logs > LOG_HALF

    def pays_everything(self, steps: Int32[Array, " T"], num_envs: int) -> Bool[Array, " T"]:
        return steps < steps_of(self.settings.everything_frames, num_envs)

    def probability(self, state: RelevanceLearner, ids: Int32[Array, " N"]) -> Float[Array, "N L"]:
        return jnp.exp(self.log_probability(state, ids))

    def fit(
        self,
        state: RelevanceLearner,
        dataset: RelevanceDataset,
        iteration: Int32[Array, ""],
        *,
        frames_per_iteration: int,
        key: PRNGKeyArray,
    ) -> tuple[RelevanceLearner, Measurements]:
        def update(learner: RelevanceLearner) -> tuple[RelevanceLearner, Measurements]:
            learner = learn_from_dataset(
                self.settings, learner, dataset, self.language.tokens, self.low_tokens, key=key,
            )  # fmt: skip
            return learner, self.validate(learner, dataset)

        def keep(learner: RelevanceLearner) -> tuple[RelevanceLearner, Measurements]:
            nothing = jax.eval_shape(self.validate, learner, dataset)
            return learner, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), nothing)

        every = whole_iterations(self.settings.update_every, frames_per_iteration)
        due = (iteration + 1) % every == 0
        return jax.lax.cond(due, update, keep, state)

    def validate(
        self,
        learner: RelevanceLearner,
        dataset: RelevanceDataset,
        log_threshold: float | Float[Array, " L"] = LOG_HALF,
    ) -> Measurements:
        """Agreement with the oracle on instructions of levels, as on a set with as many relevant as
        irrelevant pairs; with `measure_unsolved` also on those of them that D does not hold."""
        ids = self.levels[: self.settings.validation_instructions]
        called = self.log_probability(learner, ids) > log_threshold
        truth = oracle_relevance(self.spec, ids, self.low_level)
        recall, false_alarms = _agreement(called, truth)
        precision = recall / jnp.maximum(recall + false_alarms, 1e-6)
        one = jnp.ones(())
        measured = {
            "relevance_accuracy": Mean((recall + 1 - false_alarms) / 2, one),
            "relevance_precision": Mean(precision, one),
            "relevance_recall": Mean(recall, one),
        }
        if self.measure_unsolved:
            unsolved = ~relevance_dataset.is_seen(dataset, ids)
            recall, false_alarms = _agreement(called, truth, unsolved[:, None])
            some = unsolved.any().astype(jnp.float32)
            accuracy = some * (recall + 1 - false_alarms) / 2
            measured["relevance_accuracy_unsolved"] = Mean(accuracy, some)
        return measured

    def log_probability(
        self, learner: RelevanceLearner, ids: Int32[Array, " N"]
    ) -> Float[Array, "N L"]:
        tokens = self.language.tokens(ids)
        return relevance_matrix(learner.classifier, tokens, self.low_tokens)[0]


def _agreement(
    called: Bool[Array, "N L"], truth: Bool[Array, "N L"], where: Bool[Array, "N 1"] | bool = True
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """(recall, share of irrelevant pairs that are called relevant) of some rows."""
    recall = (called & truth & where).sum() / jnp.maximum((truth & where).sum(), 1)
    false_alarms = (called & ~truth & where).sum() / jnp.maximum((~truth & where).sum(), 1)
    return recall, false_alarms


def learn_everything(
    settings: RelevanceSettings,
    learner: RelevanceLearner,
    data: Decompositions,
    low_tokens: Int32[Array, "L m"],
    all_relevant: Callable[[RelevanceLearner], Bool[Array, ""]],
    *,
    key: PRNGKeyArray,
) -> RelevanceLearner:
    """The beginning: trained on `data`, in which all is relevant, until `all_relevant` agrees or
    `max_initial_rounds` have passed. The optimiser starts afresh afterwards."""

    def unfinished(carry: tuple[Array, RelevanceLearner]) -> Array:
        trained, learner = carry
        return (trained < settings.max_initial_rounds) & ((trained == 0) | ~all_relevant(learner))

    def train(carry: tuple[Array, RelevanceLearner]) -> tuple[Array, RelevanceLearner]:
        trained, learner = carry
        learner = relevance_training.learn_initially(
            learner, data, low_tokens, settings.training, key=jax.random.fold_in(key, trained)
        )
        return trained + 1, learner

    _, learner = jax.lax.while_loop(unfinished, train, (jnp.zeros((), jnp.int32), learner))
    return relevance_training.start(learner.classifier)


def learn_from_dataset(
    settings: RelevanceSettings,
    learner: RelevanceLearner,
    dataset: RelevanceDataset,
    tokens_of: Callable[[Int32[Array, " C"]], Int32[Array, "C n"]],
    low_tokens: Int32[Array, "L m"],
    *,
    key: PRNGKeyArray,
) -> RelevanceLearner:
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


@lru_cache(maxsize=64)
def instructions_of_levels(spec: Task, count: int) -> np.ndarray:
    """int32[count]: the instructions of that many levels of a task, always the same (host)."""
    drawn = make(spec).generate(jax.random.key(0), count)
    return np.asarray(drawn.instruction_id, np.int32)
