"""Means and deviations of all that has been seen so far."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

SMALLEST_DEVIATION = 1e-4
"""What never varies is not divided by less."""
MOST_BATCHES = 2**20
"""Everything before weighs as much as so many new batches at most: float32 would lose smaller
shares, and the moments would stand still."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RunningMoments:
    """Moments of a growing sample, exact for its first `MOST_BATCHES` batches."""

    count: Float[Array, ""]
    """Values so far, at most as many as `MOST_BATCHES + 1` batches have."""
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
    before = jnp.minimum(moments.count, float(number * MOST_BATCHES))
    kept = moments.squares * (before / jnp.maximum(moments.count, 1.0))
    count = before + number
    shift = mean - moments.mean
    return RunningMoments(
        count=count,
        mean=moments.mean + shift * (number / count),
        squares=kept + squares + jnp.square(shift) * (before * number / count),
    )
