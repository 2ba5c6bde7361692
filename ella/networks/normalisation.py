"""Normalisation with batch statistics while acting and learning, and its alternatives.

Activations are [T, B, ..., C]: time, rows (environments), positions, channels. The statistics
couple the rows of a batch, so here, and in the trunk built on it, a call takes all rows at once.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from ella.networks.linear import widened
from ella.networks.settings import Kind

EPSILON = 1e-5


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Moments:
    """Means and variances per channel."""

    mean: Float[Array, "*T C"]
    variance: Float[Array, "*T C"]


def in_order(x: Array) -> Array:
    """`x` and its gradient in row-major layout.

    On a GPU, XLA's reductions want the summed axes minor-most, matrix products do not: left to
    itself it transposes the activations between any two products.
    """
    ordered = with_layout_constraint(x, Layout(tuple(range(x.ndim))))
    # Behind the barrier both moments of a product's result share one pass over it.
    return jax.lax.optimization_barrier(ordered)


class Normalisation(eqx.Module):
    """Scale and shift per channel, after subtracting a mean and dividing by a deviation."""

    weight: Float[Array, " C"]
    bias: Float[Array, " C"]
    kind: Kind = eqx.field(static=True)

    def __init__(self, channels: int, kind: Kind):
        self.weight = jnp.ones(channels)
        self.bias = jnp.zeros(channels)
        self.kind = kind

    @property
    def uses_batch(self) -> bool:
        """Whether other rows of the batch enter, so that acting alone needs running statistics."""
        return self.kind in ("batch", "minibatch")

    def __call__(
        self, x: Float[Array, "T B *P C"], running: Moments | None
    ) -> tuple[Array, Moments]:
        """relu(normalised x), and the batch's moments as `affine` returns them."""
        x = in_order(x)
        scale, shift, moments = self.affine(x, running)
        return _scaled_relu(x, scale, shift), moments

    def pooled(
        self, x: Float[Array, "T B *P W C"], running: Moments | None
    ) -> tuple[Array, Moments]:
        """The maximum over axis W of relu(normalised x), and the batch's moments.

        Scale, shift and relu are monotone in every channel, so they come after the choice of the
        highest, or where the scale is negative of the lowest: 1.73 times as fast as before it
        (benchmarks/network_kernels.py).
        """
        x = in_order(x)
        scale, shift, found = self.affine(x, running)
        return _after_choice(_signed_maximum(x, self.signs(x.dtype)), scale, shift), found

    def pooled_windows(
        self, x: Float[Array, "G T B W C"], running: Moments | None
    ) -> tuple[Float[Array, "T B G C"], Moments]:
        """`pooled`, of G windows that come first."""
        x = in_order(x)
        scale, shift, found = self.affine(x, running, time=1)
        chosen = _after_choice(_signed_maximum(x, self.signs(x.dtype)), scale, shift)
        return jnp.moveaxis(chosen, 0, 2), found

    def chosen(self, x: Float[Array, "T B *P W C"]) -> Float[Array, "T B *P C"]:
        """Of axis W the values that `pooled` chooses."""
        x = in_order(x)
        return _signed_maximum(x, self.signs(x.dtype))

    def given(
        self,
        chosen: Float[Array, "T B *P C"],
        mean: Float[Array, "T C"],
        square: Float[Array, "T C"],
        width: int,
    ) -> tuple[Array, Moments]:
        """`pooled` from values that `chosen` has already pooled over `width` each, and the per-step
        means of all values and of their squares, computed elsewhere. No gradient of the means flows
        back through the values."""
        if self.kind == "minibatch":
            mean, square = (part.mean(0, keepdims=True) for part in (mean, square))
        biased = jnp.maximum(square - jnp.square(mean), 0.0)
        count = width * chosen.size // chosen.shape[-1] // len(mean)
        scale, shift, found = self._affine_of_batch(mean, biased, count, chosen.ndim - 1)
        return _after_choice(chosen, scale, shift), found

    def signs(self, dtype: DTypeLike) -> Float[Array, " C"]:
        """Of the scale."""
        return jax.lax.stop_gradient(jnp.where(self.weight < 0, -1, 1).astype(dtype))

    def affine(
        self, x: Float[Array, "..."], running: Moments | None, *, time: int = 0
    ) -> tuple[Array, Array, Moments]:
        """(scale, shift) with which `scale * x + shift` is normalised, broadcastable to `x`, and
        the moments [T, C] of the batch with unbiased variances, as running statistics need them.

        Given `running`, those are used instead of the batch's. Axes before `time` are positions
        like those after the rows.
        """
        if running is not None and self.uses_batch:
            mean, variance = running.mean, running.variance
            found = Moments(mean[None], variance[None])
        elif self.uses_batch:
            scale, shift, found = self._affine_of_batch(
                *self.batch_moments(x, time), x.ndim - 2 - time
            )
            pad = (1,) * time
            return scale.reshape(*pad, *scale.shape), shift.reshape(*pad, *shift.shape), found
        else:
            wide = widened(x)
            identity = jnp.zeros((x.shape[time], x.shape[-1]), wide.dtype)
            found = Moments(identity, identity + 1)
            if self.kind == "none":
                ones = jnp.ones((1,) * x.ndim, wide.dtype)
                return ones * self.weight, ones * self.bias, found
            axes = (*range(time), *range(time + 2, x.ndim))
            mean, variance = _mean_and_variance(wide, axes)
        scale, shift = self._affine_of(mean, variance)
        pad = (1,) * (x.ndim - scale.ndim)
        return scale.reshape(*pad, *scale.shape), shift.reshape(*pad, *shift.shape), found

    def running_affine(self, running: Moments) -> tuple[Float[Array, " C"], Float[Array, " C"]]:
        """(scale, shift) where running statistics are used."""
        return self._affine_of(running.mean, running.variance)

    def _affine_of_batch(
        self, mean: Float[Array, "T C"], biased: Float[Array, "T C"], count: int, between: int
    ) -> tuple[Array, Array, Moments]:
        """(scale, shift) [T, ..., C] with so many axes `between`, and the unbiased moments."""
        found = Moments(mean, biased * (count / max(count - 1, 1)))
        shape = (mean.shape[0], *(1,) * between, mean.shape[-1])
        return *self._affine_of(mean.reshape(shape), biased.reshape(shape)), found

    def _affine_of(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        scale = self.weight * jax.lax.rsqrt(variance + EPSILON)
        return scale, self.bias - mean * scale

    def batch_moments(self, x: Float[Array, "..."], time: int = 0) -> tuple[Array, Array, int]:
        """(mean, biased variance) [T, C], or [1, C] over the whole minibatch, and their count."""
        by_step = self.kind == "batch"
        axes = tuple(axis for axis in range(x.ndim - 1) if axis != time or not by_step)
        mean, variance = _mean_and_variance(widened(x), axes)
        channels = x.shape[-1]
        count = x.size // channels // (x.shape[time] if by_step else 1)
        return mean.reshape(-1, channels), variance.reshape(-1, channels), count


@jax.custom_vjp
def _signed_maximum(x: Float[Array, "*P W C"], signs: Float[Array, " C"]) -> Float[Array, "*P C"]:
    """Over axis W the maximum in channels whose sign is 1, the minimum where it is -1.

    Of equal values the first is chosen, and alone has a gradient. The backward pass needs to know
    only which one was chosen, not `x`, the largest array of the network: 1.88 times as fast as
    `jnp.max` (benchmarks/network_kernels.py).
    """
    return _choose(x, signs)[0]


def _choose(x: Array, signs: Array) -> tuple[Array, Array]:
    """(the signed maximum, the position int8 of the value chosen)."""
    highest = x[..., 0, :] * signs
    position = jnp.zeros(highest.shape, jnp.int8)
    for index in range(1, x.shape[-2]):
        other = x[..., index, :] * signs
        position = jnp.where(other > highest, jnp.int8(index), position)
        highest = jnp.maximum(highest, other)
    return highest * signs, position


def _signed_maximum_forward(x: Array, signs: Array) -> tuple[Array, tuple[Array, Array, Array]]:
    highest, position = _choose(x, signs)
    return highest, (position, signs, jnp.arange(x.shape[-2], dtype=jnp.int8))


def _signed_maximum_backward(
    kept: tuple[Array, Array, Array], gradient: Array
) -> tuple[Array, Array]:
    position, signs, positions = kept
    chosen = position[..., None, :] == positions[:, None]
    return jnp.where(chosen, gradient[..., None, :], 0), jnp.zeros_like(signs)


_signed_maximum.defvjp(_signed_maximum_forward, _signed_maximum_backward)


def _after_choice(highest: Array, scale: Array, shift: Array) -> Array:
    """relu(normalised value chosen), without the axis chosen over."""
    return _scaled_relu(highest, jnp.squeeze(scale, -2), jnp.squeeze(shift, -2))


@jax.custom_vjp
def _scaled_relu(
    x: Float[Array, "*P C"], scale: Float[Array, "*#P #C"], shift: Float[Array, "*#P #C"]
) -> Float[Array, "*P C"]:
    """relu(scale * x + shift), the numbers between in at least float32.

    The custom VJP reads `x` and the gradient twice, for the gradients of scale and shift and for
    that of `x`. In between it stores only the gradient behind the relu, in the gradient's dtype.
    """
    return jax.nn.relu(widened(x) * scale + shift).astype(x.dtype)


def _scaled_relu_forward(x: Array, scale: Array, shift: Array) -> tuple[Array, tuple[Array, ...]]:
    return _scaled_relu(x, scale, shift), (x, scale, shift)


def _scaled_relu_backward(kept: tuple[Array, ...], gradient: Array) -> tuple[Array, Array, Array]:
    x, scale, shift = kept
    passed = jnp.where(widened(x) * scale + shift > 0, gradient, 0)
    axes = tuple(axis for axis, size in enumerate(scale.shape) if size < x.shape[axis])
    parts = (widened(passed) * widened(x), widened(passed))
    sums = [jnp.sum(part, axes, keepdims=True) for part in parts]
    # Without the barrier XLA fuses these sums into their users and computes them again in each.
    to_scale, to_shift = jax.lax.optimization_barrier(sums)
    return (widened(passed) * scale).astype(x.dtype), to_scale, to_shift


_scaled_relu.defvjp(_scaled_relu_forward, _scaled_relu_backward)


def _mean_and_variance(x: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """Mean and biased variance, axes kept. In one pass over `x`, 1.23 times as fast as in two
    (benchmarks/network_kernels.py)."""
    mean = x.mean(axes, keepdims=True)
    square = jnp.square(x).mean(axes, keepdims=True)
    return mean, jnp.maximum(square - jnp.square(mean), 0.0)


def initial_moments(channels: int) -> Moments:
    """Running statistics before any batch: the identity."""
    return Moments(jnp.zeros(channels), jnp.ones(channels))


def moving_average(running: Moments, batches: Moments, momentum: float) -> Moments:
    """Exponential moving average [C] of running statistics after the batches [T, C], each with
    weight `momentum`."""
    steps = batches.mean.shape[0]
    weights = momentum * (1 - momentum) ** jnp.arange(steps - 1, -1, -1, dtype=float)

    def averaged(old: Array, new: Array) -> Array:
        weighted = (weights.astype(new.dtype)[:, None] * new).sum(axis=0)
        return jax.lax.stop_gradient((1 - momentum) ** steps * old + weighted)

    return jax.tree.map(averaged, running, batches)
