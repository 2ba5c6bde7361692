"""RIDE: a bonus for actions that change what the agent can influence."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int32, PRNGKeyArray

from ella.measurement import Measurements, mean_of
from ella.networks.impact import ImpactNetworks, impact_networks
from ella.shaping.shaper import AbstractRewardShaper, Number
from ella.shaping.visits import Visits, count_visits, no_visits
from ella.trajectory import Trajectory, image_of

SMALLEST_SQUARE = 1e-12
"""Below it a distance has no gradient: the root's would not be finite."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RideState:
    """What changes while one seed trains."""

    networks: ImpactNetworks
    optimiser: optax.OptState
    visits: Visits | None
    """None without episodic counts."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DynamicsErrors:
    """How the dynamics models do, for each step."""

    distance: Float[Array, "T B"]
    """Between the predicted and the true next embedding."""
    surprise: Float[Array, "T B"]
    """Negative log-probability of the action under the inverse model."""
    recognised: Float[Array, "T B"]
    """1 where the inverse model's best guess is the action."""


class RideShaper(AbstractRewardShaper):
    """Pays for the distance between the embeddings of two views one step apart.

    At an episode's end the second view is the true last one, not that of the next episode. No
    language enters.
    """

    horizon: int = eqx.field(static=True)
    """The length of the longest episode."""
    coefficient: Number
    """The bonus for one unit of change, in units of the scaled reward."""
    episodic_counts: bool = eqx.field(static=True)
    """Whether the bonus is divided by the root of the episode's visits to the state."""
    forward_coefficient: Number
    inverse_coefficient: Number
    """Weights of the two models' losses."""
    learning_rate: Number
    decay: Number
    epsilon: Number
    """Of RMSprop."""
    max_gradient_norm: Number
    """Of each of the three networks."""
    input_scale: float = eqx.field(static=True)
    """The numbers of a view are divided by it."""

    def init(self, num_envs: int, *, key: PRNGKeyArray) -> RideState:
        networks = impact_networks(self.input_scale, key=key)
        return RideState(
            networks=networks,
            optimiser=self._optimiser().init(networks),
            visits=no_visits(num_envs, self.horizon) if self.episodic_counts else None,
        )

    def shape(
        self, state: RideState, trajectory: Trajectory
    ) -> tuple[RideState, Float[Array, "T B"], Measurements]:
        # A step changes few cells, so embeddings are subtracted that are nearly equal.
        with jax.default_matmul_precision("highest"):
            now, after = _embed(state.networks, trajectory)
        bonus = self.coefficient * jnp.linalg.norm(after - now, axis=-1)
        visits = state.visits
        if visits is not None:
            visits, counted = count_visits(visits, trajectory)
            bonus = bonus / jnp.sqrt(counted.astype(bonus.dtype))
        measurements = {"ride_bonus": mean_of(bonus)}
        return RideState(state.networks, state.optimiser, visits), bonus, measurements

    def fit(
        self,
        state: RideState,
        trajectory: Trajectory,
        iteration: Int32[Array, ""],
        *,
        key: PRNGKeyArray,
    ) -> tuple[RideState, Measurements]:
        (_, errors), gradient = jax.value_and_grad(self.dynamics_loss, has_aux=True)(
            state.networks, trajectory
        )
        clip = optax.clip_by_global_norm(self.max_gradient_norm)
        gradient = ImpactNetworks(
            *(
                clip.update(part, clip.init(part))[0]
                for part in (gradient.embedding, gradient.forward, gradient.inverse)
            )
        )
        changes, optimiser = self._optimiser().update(gradient, state.optimiser)
        networks = optax.apply_updates(state.networks, changes)
        measurements = {
            "ride_forward_error": mean_of(errors.distance),
            "ride_inverse_loss": mean_of(errors.surprise),
            "ride_inverse_accuracy": mean_of(errors.recognised),
        }
        return RideState(networks, optimiser, state.visits), measurements

    def dynamics_loss(
        self, networks: ImpactNetworks, trajectory: Trajectory
    ) -> tuple[Float[Array, ""], DynamicsErrors]:
        """The models' weighted losses, summed over time and averaged over environments. Both
        embeddings learn from both."""
        now, after = _embed(networks, trajectory)
        error = networks.predict(now, trajectory.action) - after
        squared = jnp.square(error).sum(-1)
        distance = jnp.sqrt(jnp.maximum(squared, SMALLEST_SQUARE))
        scores = jax.nn.log_softmax(networks.recognise(now, after))
        taken = jax.nn.one_hot(trajectory.action, scores.shape[-1], dtype=scores.dtype)
        surprise = -(scores * taken).sum(-1)
        loss = self.forward_coefficient * distance + self.inverse_coefficient * surprise
        recognised = (scores.argmax(-1) == trajectory.action).astype(jnp.float32)
        return loss.mean(1).sum(), DynamicsErrors(distance, surprise, recognised)

    def _optimiser(self) -> optax.GradientTransformation:
        return optax.rmsprop(
            self.learning_rate, decay=self.decay, eps=self.epsilon, eps_in_sqrt=False
        )


def _embed(networks: ImpactNetworks, trajectory: Trajectory) -> tuple[Array, Array]:
    """Embeddings of the views before and after each action."""
    both = networks.embedding(
        jnp.stack([image_of(trajectory.observation), image_of(trajectory.next_observation)])
    )
    return both[0], both[1]
