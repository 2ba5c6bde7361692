"""Measurements that are taken on the device and averaged later."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Mean:
    """A weighted mean that is still two sums, so that means over many iterations are exact."""

    total: Float[Array, "*batch"]
    count: Float[Array, "*batch"]


Measurements = dict[str, Mean]
"""Named means of one iteration; names are lower-case with underscores."""


def mean_of(values: Array, where: Array | None = None) -> Mean:
    """The mean of all elements of `values` (those where `where` holds)."""
    values = jnp.asarray(values, jnp.float32)
    if where is None:
        return Mean(values.sum(), jnp.asarray(values.size, jnp.float32))
    weights = jnp.asarray(where, jnp.float32)
    return Mean((values * weights).sum(), weights.sum())


def count_of(values: Array) -> Mean:
    """A number counted per iteration: its mean over iterations is the count per iteration."""
    return Mean(jnp.asarray(values, jnp.float32).sum(), jnp.ones((), jnp.float32))
