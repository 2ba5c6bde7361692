"""Means and deviations of all that has been seen so far."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

SMALLEST_DEVIATION = 1e-4
"""What never varies is not divided by less."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RunningMoments:
    """Exact moments of a growing sample."""

    count: Float[Array, ""]
    mean: Float[Array, "*shape"]
    squares: Float[Array, "*shape"]
    """Sum of squared distances from the mean."""

    @property
    def deviation(self) -> Float[Array, "*shape"]:
        """The standard deviation; 1 before anything has been seen."""
        variance = self.squares / jnp.maximum(self.count, 1.0)
        deviation = jnp.maximum(jnp.sqrt(variance), SMALLEST_DEVIATION)
        return jnp.where(self.count > 0, deviation, 1.0)


def no_moments(shape: tuple[int, ...]) -> RunningMoments:
    return RunningMoments(jnp.zeros(()), jnp.zeros(shape), jnp.zeros(shape))


def merged(moments: RunningMoments, values: Float[Array, " n *shape"]) -> RunningMoments:
    """With n more values."""
    number = values.shape[0]
    mean = values.mean(0)
    squares = jnp.square(values - mean).sum(0)
    count = moments.count + number
    shift = mean - moments.mean
    return RunningMoments(
        count=count,
        mean=moments.mean + shift * (number / count),
        squares=moments.squares + squares + jnp.square(shift) * (moments.count * number / count),
    )
