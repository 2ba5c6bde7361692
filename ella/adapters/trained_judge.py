"""A judge learned from labelled observations of any environment."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int32

from ella.adapters.judge_examples import (
    JudgeQuality,
    LabelledExamples,
    labelled_examples,
    measured_quality,
    recall_of_each,
)
from ella.adapters.observation_parts import (
    Part,
    PartEncoder,
    as_read,
    describe,
    moments,
    numeric_parts,
    offset,
)
from ella.array_file import (
    DamagedFileError,
    MismatchedArraysError,
    load_arrays,
    named_arrays,
    replace_arrays,
    save_arrays,
)
from ella.errors import InputError, writing_to
from ella.setting_checks import require_at_least, require_positive

logger = logging.getLogger(__name__)

KIND = "TrainedJudge"
FORMAT_VERSION = 1
OFFSET = "offset/"
"""Begins the names of parts' offsets in a file."""
PRIOR_SHARE = 0.5
"""Of the log odds of a label, what judgements take into account."""
POOR_ACCURACY = 0.75
"""Balanced accuracy below which a warning is logged."""
POOR_RECALL = 0.5
"""Recall of an instruction below which a warning names it."""


@dataclass(frozen=True)
class JudgeSettings:
    """Sizes of the judge's network and of its training."""

    width: int = 64
    """Of the hidden layers."""
    channels: int = 32
    """Of the convolutions over pictures."""
    steps: int = 1000
    """Steps of Adam."""
    batch: int = 256
    """Labels a step, as many 1 as 0."""
    learning_rate: float = 1e-3
    held_out: float = 0.2
    """Share of the episodes, or without episodes of the observations, that quality is measured
    on."""

    def __post_init__(self) -> None:
        require_at_least(self, 1, "width", "channels", "steps", "batch", of="judge")
        require_positive(self, "learning_rate", of="judge")
        if not 0 < self.held_out < 1:
            raise InputError(f"judge held_out must lie in (0, 1), got {self.held_out:g}")


class JudgeNetwork(eqx.Module):
    """Logits of all L instructions for one observation: an encoder for each of its parts, hidden
    layers that the instructions share, and one row of weights for each instruction."""

    encoders: dict[str, PartEncoder]
    hidden: eqx.nn.MLP
    head: eqx.nn.Linear
    prior: Float[Array, " L"]
    """Half the log odds of label 1 in the data. Training sees as many 1 as 0; logits are not sure
    enough to outweigh all of the odds of a rare label, and none of them lets false alarms pass."""

    def __init__(
        self, parts: dict[str, Part], num_instructions: int, settings: JudgeSettings, *, key: Array
    ):
        keys = jax.random.split(key, len(parts) + 2)
        self.encoders = {
            name: PartEncoder(part, settings.channels, key=part_key)
            for part_key, (name, part) in zip(keys[2:], sorted(parts.items()), strict=True)
        }
        size = sum(encoder.size for encoder in self.encoders.values())
        width = settings.width
        self.hidden = eqx.nn.MLP(size, width, width, 1, final_activation=jax.nn.relu, key=keys[0])
        self.head = eqx.nn.Linear(width, num_instructions, key=keys[1])
        self.prior = jnp.zeros(num_instructions)

    def __call__(self, observation: Mapping[str, Array | np.ndarray]) -> Float[Array, " L"]:
        """Of observations with as many 1 as 0."""
        read = [self.encoders[name](observation[name]) for name in sorted(self.encoders)]
        return self.head(self.hidden(jnp.concatenate(read)))


class TrainedJudge:
    """Which low-level instructions an observation shows carried out, learned from examples:
    `HostElla(judge.instructions, judge)`.

    Observations may be of any Box, Discrete, Dict or Tuple space. Pictures are convolved, small
    integers (such as minigrid's cells) read one-hot, other numbers standardised; sentences are not
    read.
    """

    def __init__(
        self,
        network: JudgeNetwork,
        instructions: Sequence[str],
        settings: JudgeSettings,
        quality: JudgeQuality,
        offsets: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self.instructions = tuple(instructions)
        self.settings = settings
        self.quality = quality
        """Measured on what training held out."""
        self._network = network
        self._offsets = dict(offsets or {})

    @classmethod
    def fit(
        cls,
        observations: Any,
        instructions: Sequence[str],
        labels: Any,
        *,
        known: Any = None,
        episodes: Any = None,
        settings: JudgeSettings | None = None,
        seed: int = 0,
    ) -> "TrainedJudge":
        """Learn from N labelled observations.

        Args:
            observations: A batch as vector environments return it, or a list of single ones.
            instructions: All L low-level instructions, or one for each observation.
            labels: bool[N, L], or bool[N] with one instruction for each observation: 1 if the
                observation shows the instruction carried out.
            known: bool[N, L], which of the labels [N, L] were given; all of them by default.
            episodes: N numbers of the episodes the observations belong to, in the order they were
                seen. Whole episodes are held out then, and false alarms per episode measured.
            settings: Sizes of the network and its training.
            seed: Of the split, the network and the batches.
        """
        settings = settings or JudgeSettings()
        parts = numeric_parts(observations)
        _check_parts(parts)
        count = len(next(iter(parts.values())))
        random = np.random.default_rng(seed)
        examples = labelled_examples(
            count, instructions, labels, episodes, settings.held_out, random, known
        )
        described = {name: describe(array) for name, array in parts.items()}
        network = JudgeNetwork(
            described, len(examples.instructions), settings, key=jax.random.key(seed)
        )
        measured = {
            name: moments(part, parts[name][~examples.held_out])
            for name, part in described.items()
            if part.coding == "numbers"
        }
        offsets = {
            name: found
            for name, (mean, spread) in measured.items()
            if parts[name].dtype.itemsize > 1  # bytes are never far from zero
            and (found := offset(described[name], mean, spread)) is not None
        }
        network = _standardised(network, measured, offsets)
        parts = _as_read(parts, offsets)
        network = _trained(network, parts, examples, settings, random)
        judged = _judge_all(network, parts, examples.held_out)
        quality = measured_quality(examples, judged)
        if quality.balanced_accuracy < POOR_ACCURACY:
            logger.warning("the judge is poor on held-out observations: %s", quality)
        if len(examples.instructions) > 1 or quality.balanced_accuracy >= POOR_ACCURACY:
            _warn_of_single_instructions(examples, judged)
        return cls(network, examples.instructions, settings, quality, offsets)

    def __call__(self, observations: Any) -> np.ndarray:
        """bool[B, L] for a batch of observations: which instructions are carried out."""
        parts = numeric_parts(observations)
        shapes = {name: list(array.shape[1:]) for name, array in parts.items()}
        expected = {
            name: list(encoder.part.shape) for name, encoder in self._network.encoders.items()
        }
        if shapes != expected:
            raise InputError(
                f"the judge reads observations [B, ...] with the parts {_listed(expected)}, got "
                f"{_listed(shapes)}"
            )
        return np.asarray(_judge(self._network, _as_read(parts, self._offsets)))

    def save(self, path: Path | str) -> None:
        """Write the judge to one array file (safetensors)."""
        table = {
            "instructions": self.instructions,
            "settings": asdict(self.settings),
            "quality": asdict(self.quality),
            "parts": {
                name: asdict(encoder.part) for name, encoder in self._network.encoders.items()
            },
        }
        arrays = named_arrays(eqx.filter(self._network, eqx.is_array))
        arrays |= {OFFSET + name: array for name, array in self._offsets.items()}
        with writing_to(Path(path)):
            save_arrays(Path(path), arrays, kind=KIND, version=FORMAT_VERSION, table=table)

    @classmethod
    def load(cls, path: Path | str) -> "TrainedJudge":
        """Read a judge that `save` wrote."""
        try:
            found = load_arrays(Path(path), kind=KIND, version=FORMAT_VERSION)
            table = found.table
            instructions = [str(text) for text in table["instructions"]]
            settings = JudgeSettings(**table["settings"])
            quality = JudgeQuality(**table["quality"])
            parts = {
                str(name): Part(
                    tuple(row["shape"]),
                    row["coding"],
                    int(row["num_codes"]),
                    bool(row.get("has_sentinels", False)),
                )
                for name, row in table["parts"].items()
            }
            blank = JudgeNetwork(parts, len(instructions), settings, key=jax.random.key(0))
            arrays = dict(found.arrays)
            offsets = {name: arrays.pop(OFFSET + name) for name in parts if OFFSET + name in arrays}
            for name, leaf in named_arrays(blank).items():
                if name in arrays and arrays[name].shape == ():  # one for all channels, once
                    arrays[name] = np.broadcast_to(arrays[name], leaf.shape).copy()
            network = replace_arrays(blank, arrays)
        except InputError:
            raise
        except (
            DamagedFileError, MismatchedArraysError, OSError, KeyError, TypeError, ValueError,
            AttributeError,
        ) as error:  # fmt: skip
            raise InputError(
                f"{path} is not a file that TrainedJudge.save wrote ({error})"
            ) from error
        return cls(jax.tree.map(_on_device, network), instructions, settings, quality, offsets)


def _warn_of_single_instructions(examples: LabelledExamples, judged: np.ndarray) -> None:
    """Of a few that are hardly recognised `quality`, which is of all of them, may say nothing."""
    recalls = recall_of_each(examples, judged)
    texts = np.array(examples.instructions, object)
    if (poor := texts[recalls < POOR_RECALL]).size:
        logger.warning(
            "the judge recognises fewer than half of the held-out completions of %s; give more "
            "examples of them, or more steps",
            _quoted(poor),
        )
    if (unknown := texts[np.isnan(recalls)]).size:
        logger.warning(
            "no held-out observation shows %s carried out, so it is not known whether the judge "
            "would recognise it; give more examples",
            _quoted(unknown),
        )


def _quoted(texts: np.ndarray) -> str:
    return ", ".join(f"'{text}'" for text in texts)


def _trained(
    network: JudgeNetwork,
    parts: dict[str, np.ndarray],
    examples: LabelledExamples,
    settings: JudgeSettings,
    random: np.random.Generator,
) -> JudgeNetwork:
    optimiser = optax.adam(settings.learning_rate)
    state = optimiser.init(eqx.filter(network, eqx.is_inexact_array))
    for _ in range(settings.steps):
        rows, instructions, labels = examples.balanced_batch(settings.batch, random)
        batch = {name: array[rows] for name, array in parts.items()}
        network, state = _step(optimiser, network, state, batch, instructions, labels)
    prior = jnp.asarray(PRIOR_SHARE * examples.log_odds(), jnp.float32)
    return eqx.tree_at(lambda network: network.prior, network, prior)


@eqx.filter_jit
def _step(
    optimiser: optax.GradientTransformation,
    network: JudgeNetwork,
    state: optax.OptState,
    batch: dict[str, np.ndarray],
    instructions: Int32[np.ndarray, " n"],
    labels: Float[np.ndarray, " n"],
) -> tuple[JudgeNetwork, optax.OptState]:
    def loss(network: JudgeNetwork) -> Float[Array, ""]:
        logits = jax.vmap(network)(batch)
        asked = jnp.take_along_axis(logits, jnp.asarray(instructions)[:, None], axis=1)[:, 0]
        return optax.sigmoid_binary_cross_entropy(asked, jnp.asarray(labels)).mean()

    gradients = eqx.filter_grad(loss)(network)
    updates, state = optimiser.update(gradients, state)
    return eqx.apply_updates(network, updates), state


@eqx.filter_jit
def _judge(network: JudgeNetwork, parts: dict[str, np.ndarray]) -> Array:
    return jax.vmap(network)(parts) + network.prior > 0


def _judge_all(
    network: JudgeNetwork, parts: dict[str, np.ndarray], chosen: np.ndarray, chunk: int = 1024
) -> np.ndarray:
    """bool[rows chosen, L], some rows at a time."""
    rows = np.flatnonzero(chosen)
    found = [
        np.asarray(_judge(network, {name: array[some] for name, array in parts.items()}))
        for some in np.split(rows, range(chunk, len(rows), chunk))
    ]
    return np.concatenate(found)


def _as_read(
    parts: dict[str, np.ndarray], offsets: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    return {name: as_read(array, offsets.get(name)) for name, array in parts.items()}


def _standardised(
    network: JudgeNetwork,
    measured: Mapping[str, tuple[np.ndarray, np.ndarray]],
    offsets: Mapping[str, np.ndarray],
) -> JudgeNetwork:
    """With the moments of parts, which are less their offsets when the network reads them."""
    encoders = dict(network.encoders)
    for name, (mean, spread) in measured.items():
        near = mean - offsets[name].reshape(mean.shape) if name in offsets else mean
        encoders[name] = encoders[name].standardised(near, spread)
    return eqx.tree_at(lambda network: network.encoders, network, encoders)


def _check_parts(parts: dict[str, np.ndarray]) -> None:
    if not parts or any(array.ndim == 0 or not array.size for array in parts.values()):
        raise InputError("fit needs a batch of observations [N, ...] with numbers in it")
    if len({len(array) for array in parts.values()}) > 1:
        sizes = {name: [len(array)] for name, array in parts.items()}
        raise InputError(f"the observations' parts differ in length: {_listed(sizes)}")


def _on_device(leaf: Any) -> Any:
    return jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf


def _listed(shapes: dict[str, list[int]]) -> str:
    return ", ".join(f"{name or 'array'} {shape}" for name, shape in sorted(shapes.items()))
