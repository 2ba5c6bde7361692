"""RND: a bonus for views that a predictor of random features has not learned yet."""

from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int32, PRNGKeyArray, UInt8

from ella.errors import InputError
from ella.measurement import Measurements, mean_of
from ella.networks.novelty import ConvolutionalEncoder
from ella.shaping.running_moments import RunningMoments, merged, no_moments
from ella.shaping.shaper import AbstractRewardShaper, Number
from ella.trajectory import Trajectory, image_of

CHANNELS, STRIDES = (32, 32, 128), (2, 2, 2)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RndState:
    """What changes while one seed trains, and its own random target."""

    target: ConvolutionalEncoder
    predictor: ConvolutionalEncoder
    optimiser: optax.OptState
    views: RunningMoments
    """Of every number of a view, over all rollouts so far."""
    sums: Float[Array, " B"]
    """Discounted sums of errors; they continue across episode ends."""
    sum_moments: RunningMoments
    """Of those sums."""
    unit: Float[Array, ""]
    """Their standard deviation as of the last fit; 0 before there is one."""


class RndShaper(AbstractRewardShaper):
    """Pays for the predictor's squared error on the view after each action.

    The first two rollouts pay nothing: one tells how views are distributed, the next how errors
    are.
    """

    coefficient: Number
    """The bonus for an error of one unit, in units of the scaled reward."""
    discount: Number
    """Of the sum of errors whose deviation is the unit."""
    clip: Number
    """Inputs lie within this many standard deviations of their mean."""
    features: int = eqx.field(static=True)
    learning_rate: Number
    epochs: int = eqx.field(static=True)
    minibatches: int = eqx.field(static=True)
    """Steps in each epoch; divides the frames of a rollout."""

    def init(self, num_envs: int, *, key: PRNGKeyArray) -> RndState:
        target_key, predictor_key = jax.random.split(key)
        width = self.features
        predictor = ConvolutionalEncoder(CHANNELS, STRIDES, (width,) * 3, key=predictor_key)
        return RndState(
            target=ConvolutionalEncoder(CHANNELS, STRIDES, (width,), key=target_key),
            predictor=predictor,
            optimiser=optax.adam(self.learning_rate).init(predictor),
            views=no_moments((7, 7, 3)),
            sums=jnp.zeros(num_envs),
            sum_moments=no_moments(()),
            unit=jnp.zeros(()),
        )

    def shape(
        self, state: RndState, trajectory: Trajectory
    ) -> tuple[RndState, Float[Array, "T B"], Measurements]:
        inputs = self._inputs(state, image_of(trajectory.next_observation))
        errors = _errors(state.predictor, state.target(inputs), inputs)
        is_known = state.views.count > 0

        def step(
            carry: tuple[Array, RunningMoments], error: Float[Array, " B"]
        ) -> tuple[tuple[Array, RunningMoments], None]:
            sums, moments = carry
            sums = self.discount * sums + error
            return (sums, merged(moments, sums)), None

        before = (state.sums, state.sum_moments)
        after, _ = jax.lax.scan(step, before, errors)
        sums, moments = jax.tree.map(lambda new, old: jnp.where(is_known, new, old), after, before)
        is_paid = state.unit > 0
        bonus = self.coefficient * errors / jnp.where(is_paid, state.unit, 1.0)
        bonus = jnp.where(is_paid, bonus, 0.0)
        measurements = {"rnd_bonus": mean_of(bonus), "rnd_error": mean_of(errors)}
        return replace(state, sums=sums, sum_moments=moments), bonus, measurements

    def fit(
        self,
        state: RndState,
        trajectory: Trajectory,
        iteration: Int32[Array, ""],
        *,
        key: PRNGKeyArray,
    ) -> tuple[RndState, Measurements]:
        views = image_of(trajectory.next_observation).reshape(-1, 7, 7, 3)
        frames = views.shape[0]
        if frames % self.minibatches:
            raise InputError(
                f"rnd minibatches {self.minibatches} must divide the {frames} frames of a rollout"
            )
        has_errors = state.sum_moments.count > 0
        state = replace(
            state,
            views=merged(state.views, views.astype(jnp.float32)),
            unit=jnp.where(has_errors, state.sum_moments.deviation, 0.0),
        )
        inputs = self._inputs(state, views)
        targets = state.target(inputs)
        optimiser = optax.adam(self.learning_rate)

        def learn(
            carry: tuple[ConvolutionalEncoder, optax.OptState], rows: Int32[Array, " n"]
        ) -> tuple[tuple[ConvolutionalEncoder, optax.OptState], Float[Array, ""]]:
            predictor, optimiser_state = carry
            loss, gradient = jax.value_and_grad(
                lambda network: _errors(network, targets[rows], inputs[rows]).mean()
            )(predictor)
            changes, optimiser_state = optimiser.update(gradient, optimiser_state)
            return (optax.apply_updates(predictor, changes), optimiser_state), loss

        keys = jax.random.split(key, self.epochs)
        shuffled = jax.vmap(lambda one: jax.random.permutation(one, frames))(keys)
        rows = shuffled.reshape(self.epochs * self.minibatches, -1)
        (predictor, optimiser_state), losses = jax.lax.scan(
            learn, (state.predictor, state.optimiser), rows
        )
        learned = replace(state, predictor=predictor, optimiser=optimiser_state)
        return learned, {"rnd_loss": mean_of(losses)}

    def _inputs(
        self, state: RndState, image: UInt8[Array, "*rows 7 7 3"]
    ) -> Float[Array, "*rows 7 7 3"]:
        """Views in standard deviations from their mean, clipped."""
        centred = image.astype(jnp.float32) - state.views.mean
        return jnp.clip(centred / state.views.deviation, -self.clip, self.clip)


def _errors(
    predictor: ConvolutionalEncoder,
    targets: Float[Array, "*rows O"],
    inputs: Float[Array, "*rows 7 7 3"],
) -> Float[Array, "*rows"]:
    return jnp.square(predictor(inputs) - targets).mean(-1)
