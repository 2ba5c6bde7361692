"""Learning from a rollout: several epochs of shuffled minibatches."""

from dataclasses import dataclass, replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int32, PRNGKeyArray

from ella.measurement import Mean, Measurements, mean_of
from ella.networks.actor_critic import ActorCritic, RunningStatistics
from ella.ppo.loss import Sequences, ppo_loss, present_instructions
from ella.ppo.settings import PPOSettings

FINAL_SHARE = 0.1
"""Of the learning rate, once it has decayed."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PolicyLearner:
    """What learning changes: the policy network, its optimiser and its running statistics."""

    network: ActorCritic
    optimiser: optax.OptState
    statistics: RunningStatistics


def make_optimiser(
    config: PPOSettings, learning_rate: float | Float[Array, ""] | None = None
) -> optax.GradientTransformation:
    """Adam behind a clip of the global gradient norm; by default with the settings' rate."""
    rate = config.learning_rate if learning_rate is None else learning_rate
    return optax.chain(
        optax.clip_by_global_norm(config.max_gradient_norm),
        optax.adam(rate, eps=config.adam_epsilon),
    )


def learning_rate_at(config: PPOSettings, iteration: Int32[Array, ""]) -> float | Float[Array, ""]:
    """The learning rate of an iteration: constant, or falling linearly to `FINAL_SHARE`."""
    if not config.decay_frames:
        return config.learning_rate
    done = iteration.astype(jnp.float32) * (config.frames_per_iteration / config.decay_frames)
    return config.learning_rate * (1 - (1 - FINAL_SHARE) * jnp.minimum(done, 1.0))


def is_frozen(config: PPOSettings, iteration: Int32[Array, ""]) -> Bool[Array, ""] | None:
    """Whether the network is frozen in an iteration; None where it never is."""
    if not config.frozen_frames:
        return None
    # Rounded up, and compared as iterations: frames may exceed 32 bits.
    return iteration < -(-config.frozen_frames // config.frames_per_iteration)


def update(
    config: PPOSettings,
    learner: PolicyLearner,
    tokens: Int32[Array, "R T"],
    sequences: Sequences,
    *,
    learning_rate: float | Float[Array, ""] | None = None,
    frozen: Bool[Array, ""] | None = None,
    capacity: int | None = None,
    key: PRNGKeyArray,
) -> tuple[PolicyLearner, Measurements]:
    """All epochs over one rollout's sequences.

    With a `capacity`, each minibatch embeds only the instructions that occur in it, so many at
    most; frames with any other are left out of its loss, and their share is measured.

    Running statistics are exponential moving averages over these minibatches only: what acting
    would have added has decayed below one part in a million by the end of the update, at the
    default sizes.

    Where `frozen`, all gradients are computed and update Adam's moments, but only the critic's head
    changes.
    """
    keys = jax.random.split(key, config.epochs)
    shuffled = jax.vmap(lambda k: jax.random.permutation(k, config.num_sequences))(keys)
    minibatches = shuffled.reshape(-1, config.minibatch_sequences)
    step = partial(gradient_step, config, learning_rate=learning_rate, frozen=frozen)

    def learn(
        learner: PolicyLearner, indices: Int32[Array, " N"]
    ) -> tuple[PolicyLearner, dict[str, Array]]:
        minibatch = sequences.take(indices)
        if capacity is None:
            return step(learner, tokens, minibatch)
        present, rows, known = present_instructions(tokens, minibatch.instruction_row, capacity)
        minibatch = replace(minibatch, instruction_row=rows)
        learner, found = step(learner, present, minibatch, counted=known)
        return learner, {**found, "frames_left_out": jnp.mean(~known)}

    learner, found = jax.lax.scan(learn, learner, minibatches)
    # Only the first minibatch meets the very policy that acted.
    first_deviation = found.pop("ratio_deviation")[0]
    measurements: Measurements = {name: mean_of(values) for name, values in found.items()}
    measurements["ratio_deviation"] = mean_of(first_deviation)
    return learner, measurements


def gradient_step(
    config: PPOSettings,
    learner: PolicyLearner,
    tokens: Int32[Array, "R T"],
    sequences: Sequences,
    *,
    learning_rate: float | Float[Array, ""] | None = None,
    frozen: Bool[Array, ""] | None = None,
    counted: Bool[Array, "L N"] | None = None,
) -> tuple[PolicyLearner, dict[str, Float[Array, ""]]]:
    """One minibatch: the new learner, and what was measured."""
    (loss, (parts, moments)), gradient = jax.value_and_grad(ppo_loss, has_aux=True)(
        learner.network, config, tokens, sequences, counted
    )
    # Materialised once: the norm and Adam would each add up the parts of every convolution's
    # gradient again, which takes 5 % of an iteration of the wide preset.
    gradient = jax.lax.optimization_barrier(gradient)
    changes, optimiser = make_optimiser(config, learning_rate).update(
        gradient, learner.optimiser, learner.network
    )
    if frozen is not None:
        changes = without_frozen(changes, frozen)
    learned = PolicyLearner(
        network=optax.apply_updates(learner.network, changes),
        optimiser=optimiser,
        statistics=learner.statistics.updated(moments, config.network.statistics_momentum),
    )
    return learned, {"loss": loss, "gradient_norm": optax.tree.norm(gradient), **vars(parts)}


def without_frozen(changes: ActorCritic, frozen: Bool[Array, ""]) -> ActorCritic:
    """Changes of the parameters; where `frozen`, of the critic's head alone."""
    kept = jax.tree.map(lambda change: jnp.where(frozen, 0.0, change), changes)
    return eqx.tree_at(lambda network: network.critic, kept, changes.critic)


def explained_variance(value: Float[Array, "T B"], returns: Float[Array, "T B"]) -> Mean:
    """1 - Var(returns - value) / Var(returns): 1 is perfect, 0 no better than a constant."""
    return mean_of(1 - jnp.var(returns - value) / jnp.maximum(jnp.var(returns), 1e-8))
