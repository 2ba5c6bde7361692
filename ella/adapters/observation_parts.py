"""Observations of any Box, Discrete, Dict or Tuple space as named arrays that a network reads."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ella.errors import InputError

Coding = Literal["codes", "numbers"]
"""codes: small integers that name things, read one-hot. numbers: magnitudes, standardised."""
MAX_CODE = 31
"""Integers up to this one are codes in arrays."""
MAX_SINGLE_CODE = 4095
"""And where an observation is, or has as a part, a single integer, as those of Discrete spaces."""
SENTINEL_GAP = 100
"""A largest or smallest number that is so many times further away than all others lie apart stands
for something (nothing in sight, say) and has no part in means and spreads."""
LEAST_RANGE = 1e-5
"""Numbers that lie no further apart may differ by rounding, as sines of multiples of pi do; nothing
else is a sentinel beside them."""
FAR_FROM_ZERO = 1000
"""Numbers whose mean is so many times their spread are read without their mean: float32 would round
their differences away."""
LARGEST_READ = 10.0
"""In spreads; of what is beyond, where there are sentinels, the logarithm is read."""
LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
FLOAT64_NOISE = 1e-12
"""Of the largest number, what differences of float64 must exceed."""
CHUNK_NUMBERS = 2**18
"""Numbers that are converted to float64 at a time."""
LARGEST_MAP = 8
"""Pictures are halved until they are no larger than this."""


@dataclass(frozen=True)
class Part:
    """One array of an observation."""

    shape: tuple[int, ...]
    """Of one example."""
    coding: Coding
    num_codes: int
    """Codes lie below it; 0 for numbers."""
    has_sentinels: bool = False
    """Whether numbers far from all others are read by their logarithm."""

    @property
    def is_picture(self) -> bool:
        return len(self.shape) == 3

    @property
    def is_channel_first(self) -> bool:
        """Of a picture: the shorter outer axis is that of the channels."""
        return self.shape[0] < self.shape[-1]

    @property
    def averaged_axes(self) -> tuple[int, ...]:
        """Of examples [N, ...], those over which a mean is taken."""
        if not self.is_picture:
            return (0,)
        return (0, 2, 3) if self.is_channel_first else (0, 1, 2)


def numeric_parts(observations: Any) -> dict[str, np.ndarray]:
    """The arrays [N, ...] of a batch of observations, as vector environments return it, or of a
    list of single ones; sentences among them are left out."""
    if isinstance(observations, list):
        if not observations:
            return {}
        rows = [numeric_parts(_batch_of_one(row)) for row in observations]
        if any(row.keys() != rows[0].keys() for row in rows):
            raise InputError("the observations do not all have the same parts")
        try:
            return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
        except ValueError as error:
            raise InputError(f"the observations do not all have the same shapes: {error}") from None
    if isinstance(observations, Mapping | tuple):
        pairs = (
            observations.items() if isinstance(observations, Mapping) else enumerate(observations)
        )
        found = {}
        for key, inner in pairs:
            if isinstance(inner, str) or _is_words(inner):
                continue
            for name, array in numeric_parts(inner).items():
                found[f"{key}.{name}" if name else str(key)] = array
        return found
    array = np.asarray(observations)
    if array.dtype.kind not in "biuf":
        raise InputError(f"observations must be numbers, got {array.dtype}{list(array.shape)}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError("observations must be finite numbers")
    return {"": array}


def describe(array: np.ndarray) -> Part:
    """How examples like these [N, ...] are read."""
    largest = MAX_CODE if array.ndim > 1 else MAX_SINGLE_CODE
    if array.dtype.kind in "biu" and array.min() >= 0 and array.max() <= largest:
        return Part(array.shape[1:], "codes", int(array.max()) + 1)
    part = Part(array.shape[1:], "numbers", 0)
    return replace(part, has_sentinels=_ordinary_range(part, array)[2])


def moments(part: Part, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """float64 mean and spread (standard deviation) of the numbers of examples [N, ...], without
    sentinels: of each channel of a picture, of each place of anything else. Numbers that differ by
    no more than rounding have a spread of 1, so that they are not blown up where they do differ
    later."""
    axes = part.averaged_axes
    *ends, has_sentinels = _ordinary_range(part, examples)
    low, high = (np.expand_dims(end, axes) for end in ends)
    count = total = squares = np.zeros(())
    for chunk in _chunks(part, examples):
        used = (chunk >= low) & (chunk <= high) if has_sentinels else True
        count = count + np.broadcast_to(used, chunk.shape).sum(axes)
        total = total + (chunk - low).sum(axes, where=used)
    mean = low.reshape(count.shape) + total / count
    for chunk in _chunks(part, examples):
        used = (chunk >= low) & (chunk <= high) if has_sentinels else True
        difference = np.where(used, chunk - np.expand_dims(mean, axes), 0.0)
        squares = squares + np.square(difference, out=difference).sum(axes)
    spread = np.sqrt(squares / count)
    is_short = examples.dtype.kind == "f" and examples.dtype.itemsize <= 4
    float32 = np.finfo(np.float32)
    rounding = float(float32.eps) if is_short else FLOAT64_NOISE
    largest = np.maximum(-low, high).reshape(count.shape)
    least = np.maximum(rounding * largest, float32.tiny)
    return mean, np.where(spread > least, spread, 1.0)


def _ordinary_range(part: Part, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool]:
    """The least and the largest number, sentinels aside, and whether there are any."""
    axes = part.averaged_axes
    low: Any = np.asarray(examples.min(axes), np.float64)
    high: Any = np.asarray(examples.max(axes), np.float64)
    if examples.dtype.itemsize == 1:  # nothing in a byte is far from everything else
        return low, high, False
    second_low, second_high = high, low
    for chunk in _chunks(part, examples):
        inner = np.where(chunk > np.expand_dims(low, axes), chunk, np.inf)
        second_low = np.minimum(second_low, inner.min(axes))
        inner = np.where(chunk < np.expand_dims(high, axes), chunk, -np.inf)
        second_high = np.maximum(second_high, inner.max(axes))
    between = second_high - second_low
    # Where all but one of three values are at one end, that end is what the others lie apart by.
    from_low = np.where(between > 0, between, second_high - low)
    from_high = np.where(between > 0, between, high - second_low)
    is_high = (from_low > LEAST_RANGE) & (high - second_high > SENTINEL_GAP * from_low)
    is_low = (from_high > LEAST_RANGE) & (second_low - low > SENTINEL_GAP * from_high)
    ordinary = np.where(is_low, second_low, low), np.where(is_high, second_high, high)
    return *ordinary, bool(is_low.any() or is_high.any())


def _chunks(part: Part, examples: np.ndarray) -> Iterator[np.ndarray]:
    rows = max(1, CHUNK_NUMBERS // max(1, int(np.prod(part.shape, dtype=int))))
    for start in range(0, len(examples), rows):
        yield np.asarray(examples[start : start + rows], np.float64)


def offset(part: Part, mean: np.ndarray, spread: np.ndarray) -> np.ndarray | None:
    """float64, what to subtract from numbers far from zero before they become float32; None where
    no numbers of such `moments` are."""
    found = np.where(np.abs(mean) > FAR_FROM_ZERO * spread, mean, 0.0)
    if not found.any():
        return None
    return found[:, None, None] if part.is_picture and part.is_channel_first else found


def as_read(array: np.ndarray, far: np.ndarray | None) -> np.ndarray:
    """Numbers less their offset, where they have one, and as float32 if they are longer: JAX would
    wrap large integers around and read large float64 as infinite."""
    if far is None and array.dtype.itemsize <= 4:
        return array
    near = np.asarray(array, np.float64) - (0.0 if far is None else far)
    return np.clip(near, -LARGEST_FLOAT32, LARGEST_FLOAT32).astype(np.float32)


class PartEncoder(eqx.Module):
    """One part of one observation as a vector: convolutions over pictures [H, W, C] or [C, H, W]
    (the shorter outer axis is C), everything else flattened."""

    part: Part = eqx.field(static=True)
    mean: Float[Array, "..."]
    """Of the numbers learned from: one for each channel of a picture and for each place of anything
    else."""
    spread: Float[Array, "..."]
    """Their standard deviation; 1 where they do not differ."""
    convolutions: tuple[eqx.nn.Conv2d, ...]
    size: int = eqx.field(static=True)
    """Of the vector."""

    def __init__(self, part: Part, channels: int, *, key: PRNGKeyArray):
        self.part = part
        places = part.shape
        if part.coding == "codes":
            places = ()
        elif part.is_picture:
            places = (self._picture_shape()[2],)
        self.mean, self.spread = jnp.zeros(places), jnp.ones(places)
        values = max(part.num_codes, 1)
        if not part.is_picture:
            self.convolutions = ()
            self.size = int(np.prod(part.shape, dtype=int)) * values
            return
        height, width, depth = self._picture_shape()
        layers: list[eqx.nn.Conv2d] = []
        inputs = depth * values
        while not layers or max(height, width) > LARGEST_MAP:
            stride = 2 if max(height, width) > LARGEST_MAP else 1
            key, layer_key = jax.random.split(key)
            layers.append(eqx.nn.Conv2d(inputs, channels, 3, stride, padding=1, key=layer_key))
            inputs, height, width = channels, -(-height // stride), -(-width // stride)
        self.convolutions = tuple(layers)
        self.size = channels * height * width

    def standardised(self, mean: np.ndarray, spread: np.ndarray) -> "PartEncoder":
        """The same for numbers of this mean and spread."""
        found = tuple(jnp.asarray(one, jnp.float32) for one in (mean, spread))
        return eqx.tree_at(lambda encoder: (encoder.mean, encoder.spread), self, found)

    def __call__(self, example: Array | np.ndarray) -> Float[Array, " size"]:
        part, values = self.part, jnp.asarray(example)
        if part.is_picture and part.is_channel_first:
            values = jnp.moveaxis(values, 0, -1)
        if part.coding == "codes":
            codes = jax.nn.one_hot(values.astype(jnp.int32), part.num_codes)
            read = codes.reshape(*values.shape[:-1], -1)
        else:
            # Measured, not trained.
            mean, spread = jax.lax.stop_gradient((self.mean, self.spread))
            read = (values.astype(jnp.float32) - mean) / spread
            if part.has_sentinels:
                # Infinite where a spread below 1 divides the largest numbers.
                beyond = jnp.clip(jnp.abs(read) / LARGEST_READ, 1.0, LARGEST_FLOAT32)
                read = jnp.clip(read, -LARGEST_READ, LARGEST_READ) + jnp.sign(read) * jnp.log(
                    beyond
                )
        if not part.is_picture:
            return read.reshape(-1)
        maps = jnp.moveaxis(read, -1, 0)
        for layer in self.convolutions:
            maps = jax.nn.relu(layer(maps))
        return maps.reshape(-1)

    def _picture_shape(self) -> tuple[int, int, int]:
        first, second, third = self.part.shape
        return (second, third, first) if self.part.is_channel_first else (first, second, third)


def _is_words(value: Any) -> bool:
    """Whether these are sentences: one per environment, in whatever container."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "UO" and all(isinstance(one, str) for one in value.reshape(-1))
    return isinstance(value, tuple | list) and len(value) > 0 and isinstance(value[0], str)


def _batch_of_one(observation: Any) -> Any:
    if isinstance(observation, Mapping):
        return {name: _batch_of_one(part) for name, part in observation.items()}
    if isinstance(observation, tuple):
        return tuple(_batch_of_one(part) for part in observation)
    return observation if isinstance(observation, str) else np.asarray(observation)[None]
