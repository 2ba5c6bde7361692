"""NovelD: a bonus for steps from known into novel states, once an episode and state."""

from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int32, PRNGKeyArray, UInt8

from ella.measurement import Measurements, mean_of
from ella.networks.novelty import ConvolutionalEncoder, DenseLayers
from ella.shaping.shaper import AbstractRewardShaper, Number
from ella.shaping.visits import Visits, count_visits, no_visits
from ella.trajectory import Trajectory, image_of

STRIDES = (1, 2, 2)
SMALLEST_SQUARE = 1e-12
"""Below it a distance has no gradient: the root's would not be finite."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NoveldState:
    """What changes while one seed trains, and its own random networks."""

    encoder: ConvolutionalEncoder
    """Random and fixed; target and predictor see views through it."""
    target: DenseLayers
    predictor: DenseLayers
    optimiser: optax.OptState
    visits: Visits


class NoveldShaper(AbstractRewardShaper):
    """Pays for max(novelty after - alpha * novelty before, 0) where the episode has not
    visited the state before; novelty is the distance of the predictor from the target."""

    horizon: int = eqx.field(static=True)
    """The length of the longest episode."""
    coefficient: Number
    """The bonus for one unit of novelty, in units of the scaled reward."""
    known_share: Number
    """Alpha: the share of the earlier state's novelty that is taken off."""
    channels: tuple[int, int, int] = eqx.field(static=True)
    width: int = eqx.field(static=True)
    features: int = eqx.field(static=True)
    learning_rate: Number
    max_gradient_norm: Number

    def init(self, num_envs: int, *, key: PRNGKeyArray) -> NoveldState:
        width, features = self.width, self.features
        encoder_key, target_key, predictor_key = jax.random.split(key, 3)
        predictor = DenseLayers(
            (width, width, width, features, features, features), key=predictor_key
        )
        return NoveldState(
            encoder=ConvolutionalEncoder(self.channels, STRIDES, (width, width), key=encoder_key),
            target=DenseLayers((width, *(features,) * 4), key=target_key),
            predictor=predictor,
            optimiser=self._optimiser().init(predictor),
            visits=no_visits(num_envs, self.horizon),
        )

    def shape(
        self, state: NoveldState, trajectory: Trajectory
    ) -> tuple[NoveldState, Float[Array, "T B"], Measurements]:
        images = [image_of(trajectory.observation), image_of(trajectory.next_observation)]
        encoded = _encode(state, jnp.stack(images))
        before, after = _novelty(state.predictor, state.target(encoded), encoded)
        visits, counted = count_visits(state.visits, trajectory)
        is_new = counted == 1
        gained = jnp.maximum(after - self.known_share * before, 0.0)
        bonus = self.coefficient * jnp.where(is_new, gained, 0.0)
        measurements = {
            "noveld_bonus": mean_of(bonus),
            "noveld_novelty": mean_of(after),
            "noveld_first_visits": mean_of(is_new),
        }
        return replace(state, visits=visits), bonus, measurements

    def fit(
        self,
        state: NoveldState,
        trajectory: Trajectory,
        iteration: Int32[Array, ""],
        *,
        key: PRNGKeyArray,
    ) -> tuple[NoveldState, Measurements]:
        encoded = _encode(state, image_of(trajectory.next_observation))
        targets = state.target(encoded)

        def loss_of(predictor: DenseLayers) -> Float[Array, ""]:
            return _novelty(predictor, targets, encoded).mean()

        loss, gradient = jax.value_and_grad(loss_of)(state.predictor)
        changes, optimiser = self._optimiser().update(gradient, state.optimiser)
        predictor = optax.apply_updates(state.predictor, changes)
        return replace(state, predictor=predictor, optimiser=optimiser), {
            "noveld_loss": mean_of(loss)
        }

    def _optimiser(self) -> optax.GradientTransformation:
        return optax.chain(
            optax.clip_by_global_norm(self.max_gradient_norm),
            optax.adam(self.learning_rate),
        )


def _encode(state: NoveldState, image: UInt8[Array, "*rows 7 7 3"]) -> Float[Array, "*rows W"]:
    return jax.nn.relu(state.encoder(image.astype(jnp.float32)))


def _novelty(
    predictor: DenseLayers, targets: Float[Array, "*rows F"], encoded: Float[Array, "*rows W"]
) -> Float[Array, "*rows"]:
    squared = jnp.square(predictor(encoded) - targets).sum(-1)
    return jnp.sqrt(jnp.maximum(squared, SMALLEST_SQUARE))
