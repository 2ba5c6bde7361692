"""How the relevance classifier learns from decompositions.

Two ways to the same balanced cross-entropy, in which every instruction of the data counts the
same and its relevant and irrelevant low-level instructions count half each:

pairs   draws 20 relevant and 20 irrelevant pairs per instruction and takes them a few at a time
        (the released code: 12 steps of 10 pairs per instruction and update);
rows    takes many instructions at a time against all low-level ones, weighted so that the loss is
        the expectation of the draw: few steps instead of thousands, each with the learning rate
        of all the steps it stands for, up to `max_learning_rate`.

Rows, our default, learn relevance in fewer updates than the released schedule does
(tests/shaping/test_relevance_pace.py).

Rows may also be single successes instead of decompositions. Then relevant pairs have one weight in
all rows and irrelevant ones another, so that the odds p / (1 - p) tend to those with which
successes complete the low-level instruction, times a known number.

The pace matters: while everything is still called relevant, every completion is paid for, and
that early encouragement is part of what makes ELLA work.
"""

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int32, PRNGKeyArray, PyTree

from ella.networks.relevance import AbstractRelevanceClassifier, relevance_matrix
from ella.shaping.settings import RelevanceTrainingSettings

RELEASED_BATCH = 10
"""Pairs a step in the released code."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Decompositions:
    """Training data: high-level instructions and their relevant low-level ones."""

    tokens: Int32[Array, "C n"]
    relevant: Bool[Array, "C L"]
    used: Bool[Array, " C"]
    """Rows in use come first."""
    weights: Float[Array, " 2"] | None = None
    """What an irrelevant and a relevant pair count; None or negative ones for what balances each
    row."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Pairs:
    """An epoch of pairs in random order."""

    row: Int32[Array, " P"]
    """Row of the high-level instruction in the data."""
    low: Int32[Array, " P"]
    """The low-level instruction."""
    relevant: Bool[Array, " P"]
    count: Int32[Array, ""]
    """How many of the pairs, from the front, are to be used."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RelevanceLearner:
    """The classifier and its optimiser's state."""

    classifier: AbstractRelevanceClassifier
    optimiser: PyTree


def start(classifier: AbstractRelevanceClassifier) -> RelevanceLearner:
    """A learner whose optimiser remembers nothing."""
    return RelevanceLearner(classifier, optax.scale_by_adam().init(classifier))


def learn(
    learner: RelevanceLearner,
    data: Decompositions,
    low_tokens: Int32[Array, "L m"],
    settings: RelevanceTrainingSettings,
    *,
    key: PRNGKeyArray,
) -> RelevanceLearner:
    """One online update from `data`; nothing changes where no row is in use."""
    if settings.sampling == "pairs":

        def epoch(key: PRNGKeyArray) -> Pairs:
            return draw_pairs(data, settings.draws, key=key)

        return _learn_pairs(
            learner, data, low_tokens, settings, epoch, settings.epochs, settings.max_steps, key
        )
    count = data.used.sum(dtype=jnp.int32)
    released_steps = settings.epochs * 2 * settings.draws * count // RELEASED_BATCH
    return _learn_rows(learner, data, low_tokens, settings, released_steps, settings.max_steps, key)


def learn_initially(
    learner: RelevanceLearner,
    data: Decompositions,
    low_tokens: Int32[Array, "L m"],
    settings: RelevanceTrainingSettings,
    *,
    key: PRNGKeyArray,
) -> RelevanceLearner:
    """One round of initial training on `data` in which every pair is relevant and every row used:
    each pair once an epoch."""
    rows, num_low_level = data.relevant.shape
    if settings.sampling == "pairs":

        def epoch(key: PRNGKeyArray) -> Pairs:
            order = jax.random.permutation(key, rows * num_low_level)
            return Pairs(
                row=order // num_low_level,
                low=order % num_low_level,
                relevant=jnp.ones(order.size, bool),
                count=jnp.asarray(order.size, jnp.int32),
            )

        epochs, most = settings.initial_epochs, settings.max_initial_steps
        return _learn_pairs(learner, data, low_tokens, settings, epoch, epochs, most, key)
    released_steps = jnp.asarray(
        settings.initial_epochs * rows * num_low_level // RELEASED_BATCH, jnp.int32
    )
    return _learn_rows(
        learner, data, low_tokens, settings, released_steps, settings.max_initial_steps, key
    )


def row_loss(
    classifier: AbstractRelevanceClassifier,
    tokens: Int32[Array, "R n"],
    relevant: Bool[Array, "R L"],
    used: Bool[Array, " R"],
    low_tokens: Int32[Array, "L m"],
    pair_weights: Float[Array, " 2"] | None = None,
) -> Float[Array, ""]:
    """Cross-entropy of some instructions against all low-level ones, weighted as in
    `Decompositions.weights`."""
    log_relevant, log_irrelevant = relevance_matrix(classifier, tokens, low_tokens)
    num_relevant = relevant.sum(-1, keepdims=True)
    num_irrelevant = (~relevant).sum(-1, keepdims=True)
    weights = jnp.where(
        relevant, 1 / jnp.maximum(num_relevant, 1), 1 / jnp.maximum(num_irrelevant, 1)
    )
    if pair_weights is not None:
        given = pair_weights[relevant.astype(jnp.int32)]
        weights = jnp.where(pair_weights[0] < 0, weights, given)
    weights = jnp.where(used[:, None], weights, 0.0)
    losses = -jnp.where(relevant, log_relevant, log_irrelevant)
    return (weights * losses).sum() / jnp.maximum(weights.sum(), 1e-6)


def pair_loss(
    classifier: AbstractRelevanceClassifier,
    high: Int32[Array, "P n"],
    low: Int32[Array, "P m"],
    relevant: Bool[Array, " P"],
    used: Bool[Array, " P"],
) -> Float[Array, ""]:
    """Cross-entropy of some pairs."""
    log_relevant, log_irrelevant = jax.vmap(classifier.compare)(
        classifier.embed_high(high), classifier.embed_low(low)
    )
    losses = -jnp.where(relevant, log_relevant, log_irrelevant)
    count = used.sum(dtype=losses.dtype)
    return jnp.where(used, losses, 0.0).sum() / jnp.maximum(count, 1)


def draw_pairs(data: Decompositions, draws: int, *, key: PRNGKeyArray) -> Pairs:
    """Per instruction, `draws` relevant and `draws` irrelevant low-level instructions, with
    replacement; none of a sort that an instruction does not have."""
    pick_key, order_key = jax.random.split(key)
    rows = data.used.size
    label = jnp.arange(2 * draws) < draws
    wanted = data.relevant[:, None, :] == label[:, None]
    so_far = jnp.cumsum(wanted, axis=-1)
    available = so_far[..., -1]
    rank = jax.random.randint(pick_key, available.shape, 0, jnp.maximum(available, 1))
    low = jnp.argmax(so_far > rank[..., None], axis=-1)
    usable = data.used[:, None] & (available > 0)
    order = jnp.argsort(
        jnp.where(usable, jax.random.uniform(order_key, usable.shape), 2.0).reshape(-1)
    )
    row = jnp.broadcast_to(jnp.arange(rows)[:, None], usable.shape).reshape(-1)[order]
    labels = jnp.broadcast_to(label, usable.shape).reshape(-1)[order]
    low = low.reshape(-1)[order].astype(jnp.int32)
    return Pairs(row, low, labels, usable.sum(dtype=jnp.int32))


def _improve(
    learner: RelevanceLearner,
    learning_rate: float | Float[Array, ""],
    adam_epsilon: float,
    loss: Callable[..., Array],
    *args: Array | None,
) -> RelevanceLearner:
    gradient = eqx.filter_grad(loss)(learner.classifier, *args)
    adam = optax.scale_by_adam(eps=adam_epsilon)
    directions, optimiser = adam.update(gradient, learner.optimiser)
    updates = jax.tree.map(lambda direction: -learning_rate * direction, directions)
    return RelevanceLearner(eqx.apply_updates(learner.classifier, updates), optimiser)


def _learn_pairs(
    learner: RelevanceLearner,
    data: Decompositions,
    low_tokens: Int32[Array, "L m"],
    settings: RelevanceTrainingSettings,
    draw_epoch: Callable[[PRNGKeyArray], Pairs],
    epochs: int,
    max_steps: int,
    key: PRNGKeyArray,
) -> RelevanceLearner:
    def epoch(
        index: Int32[Array, ""], carry: tuple[RelevanceLearner, Array]
    ) -> tuple[RelevanceLearner, Array]:
        learner, taken = carry
        pairs = draw_epoch(jax.random.fold_in(key, index))
        steps = jnp.minimum(-(-pairs.count // settings.batch), max_steps - taken)

        def step(carry: tuple[Array, RelevanceLearner]) -> tuple[Array, RelevanceLearner]:
            at, learner = carry
            indices = at * settings.batch + jnp.arange(settings.batch)
            used = indices < pairs.count
            indices = jnp.minimum(indices, pairs.row.size - 1)
            learner = _improve(
                learner, settings.learning_rate, settings.adam_epsilon, pair_loss,
                data.tokens[pairs.row[indices]], low_tokens[pairs.low[indices]],
                pairs.relevant[indices], used,
            )  # fmt: skip
            return at + 1, learner

        _, learner = jax.lax.while_loop(
            lambda carry: carry[0] < steps, step, (jnp.zeros((), jnp.int32), learner)
        )
        return learner, taken + steps

    return jax.lax.fori_loop(0, epochs, epoch, (learner, jnp.zeros((), jnp.int32)))[0]


def _learn_rows(
    learner: RelevanceLearner,
    data: Decompositions,
    low_tokens: Int32[Array, "L m"],
    settings: RelevanceTrainingSettings,
    released_steps: Int32[Array, ""],
    max_steps: int,
    key: PRNGKeyArray,
) -> RelevanceLearner:
    """At most `max_steps` steps in place of `released_steps`."""
    steps = jnp.minimum(released_steps, max_steps)
    scale = released_steps / jnp.maximum(steps, 1)
    learning_rate = jnp.minimum(settings.learning_rate * scale, settings.max_learning_rate)
    batch = min(settings.batch, data.used.size)
    count = data.used.sum(dtype=jnp.int32)

    def step(carry: tuple[Array, RelevanceLearner]) -> tuple[Array, RelevanceLearner]:
        at, learner = carry
        step_key = jax.random.fold_in(key, at)
        drawn = jax.random.randint(step_key, (batch,), 0, jnp.maximum(count, 1))
        rows = jnp.where(count <= batch, jnp.arange(batch), drawn)
        learner = _improve(
            learner, learning_rate, settings.adam_epsilon, row_loss,
            data.tokens[rows], data.relevant[rows], data.used[rows], low_tokens, data.weights,
        )  # fmt: skip
        return at + 1, learner

    return jax.lax.while_loop(
        lambda carry: carry[0] < steps, step, (jnp.zeros((), jnp.int32), learner)
    )[1]
