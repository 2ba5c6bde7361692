"""Observations of any Box, Discrete, Dict or Tuple space as named arrays that a network reads."""

from collections.abc import Mapping
from dataclasses import dataclass
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

    @property
    def is_picture(self) -> bool:
        return len(self.shape) == 3


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
    return {"": array}


def describe(array: np.ndarray) -> Part:
    """How examples like these [N, ...] are read."""
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError("observations must be finite numbers")
    largest = MAX_CODE if array.ndim > 1 else MAX_SINGLE_CODE
    if array.dtype.kind in "biu" and array.min() >= 0 and array.max() <= largest:
        return Part(array.shape[1:], "codes", int(array.max()) + 1)
    return Part(array.shape[1:], "numbers", 0)


class PartEncoder(eqx.Module):
    """One part of one observation as a vector: convolutions over pictures [H, W, C] or [C, H, W]
    (the shorter outer axis is C), everything else flattened."""

    part: Part = eqx.field(static=True)
    mean: Float[Array, "..."]
    """Of the numbers learned from: one for a picture, one for each place of anything else."""
    spread: Float[Array, "..."]
    """Their standard deviation; 1 where they do not differ."""
    convolutions: tuple[eqx.nn.Conv2d, ...]
    size: int = eqx.field(static=True)
    """Of the vector."""

    def __init__(self, part: Part, channels: int, *, key: PRNGKeyArray):
        self.part = part
        places = () if part.is_picture or part.coding == "codes" else part.shape
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

    def standardised(self, examples: np.ndarray) -> "PartEncoder":
        """The same with the mean and spread of examples [N, ...]. Numbers that float32 cannot tell
        apart keep a spread of 1, so that they are not blown up where they do differ later."""
        if self.part.coding == "codes":
            return self
        axes = None if self.part.is_picture else 0
        mean = np.mean(examples, axis=axes, dtype=np.float64)
        spread = np.std(examples, axis=axes, dtype=np.float64)
        low, high = (np.asarray(end(examples, axis=axes), float) for end in (np.min, np.max))
        float32 = np.finfo(np.float32)
        least = np.maximum(float32.eps * np.maximum(-low, high), float32.tiny)
        spread = np.where(spread > least, spread, 1.0)
        found = (jnp.asarray(mean, jnp.float32), jnp.asarray(spread, jnp.float32))
        return eqx.tree_at(lambda encoder: (encoder.mean, encoder.spread), self, found)

    def __call__(self, example: Array | np.ndarray) -> Float[Array, " size"]:
        part, values = self.part, jnp.asarray(example)
        if part.is_picture and self._is_channel_first():
            values = jnp.moveaxis(values, 0, -1)
        if part.coding == "codes":
            codes = jax.nn.one_hot(values.astype(jnp.int32), part.num_codes)
            read = codes.reshape(*values.shape[:-1], -1)
        else:
            # Measured, not trained.
            mean, spread = jax.lax.stop_gradient((self.mean, self.spread))
            read = (values.astype(jnp.float32) - mean) / spread
        if not part.is_picture:
            return read.reshape(-1)
        maps = jnp.moveaxis(read, -1, 0)
        for layer in self.convolutions:
            maps = jax.nn.relu(layer(maps))
        return maps.reshape(-1)

    def _is_channel_first(self) -> bool:
        return self.part.shape[0] < self.part.shape[-1]

    def _picture_shape(self) -> tuple[int, int, int]:
        first, second, third = self.part.shape
        return (second, third, first) if self._is_channel_first() else (first, second, third)


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
