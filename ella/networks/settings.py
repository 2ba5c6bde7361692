"""Sizes and variants of every network. Importing this module starts no JAX."""

from dataclasses import dataclass
from typing import Literal, get_args

from ella.errors import InputError
from ella.setting_checks import require_at_least

Variant = Literal["paper", "onehot"]
"""paper: the three integers of a cell as three channels. onehot: one channel per value."""
Kind = Literal["batch", "minibatch", "layer", "none"]
"""batch: over rows and positions, separately at every time step, as when acting.
minibatch: over time too. layer: over positions and channels of each row. none: no statistics,
only the learned scale and shift."""
Trunk = Literal["pooled", "residual"]
Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class NetworkSettings:
    """Sizes and variants of the policy network; the defaults are the paper's."""

    trunk: Trunk = "pooled"
    """pooled: the paper's, which pools after each of the first two convolutions. residual: BabyAI
    1.1's, with embedded cells, no pooling before the end and residual blocks; `variant` has no
    meaning there."""
    variant: Variant = "paper"
    """Cells as raw integers (paper) or one-hot (onehot, which needs about half the frames)."""
    width: int = 128
    """Channels of the convolutions."""
    instruction_width: int = 128
    """Width of word embeddings and of the instruction encoder."""
    memory_width: int = 128
    """Width of the LSTM."""
    head_width: int = 64
    """Hidden width of the actor's and the critic's heads."""
    blocks: int = 2
    """Modulated blocks."""
    clauses: int = 1
    """1: an instruction modulates the blocks as a whole, as in the paper. 2: each clause of an
    instruction of two modulates them on its own, in the order in which they are to be carried
    out, and the memory attends to one or the other, so that what is learned of a clause counts
    wherever it stands; the blocks cost twice as much."""
    normalisation: Kind = "batch"
    """batch: statistics of each step's environments, as in the original; minibatch, layer, none:
    alternatives, none of which is known to learn as well."""
    statistics_momentum: float = 0.1
    """Share of each new batch in the running statistics."""
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of activations and matrix products; parameters and losses are float32."""

    def __post_init__(self) -> None:
        if self.trunk not in get_args(Trunk):
            raise InputError(f"trunk must be pooled or residual, got '{self.trunk}'")
        if self.variant not in get_args(Variant):
            raise InputError(f"variant must be paper or onehot, got '{self.variant}'")
        if self.normalisation not in get_args(Kind):
            raise InputError(
                f"normalisation must be batch, minibatch, layer or none, got '{self.normalisation}'"
            )
        sizes = ("width", "instruction_width", "memory_width", "head_width", "blocks")
        require_at_least(self, 1, *sizes, of="network")
        if self.clauses not in (1, 2):
            raise InputError(f"network clauses must be 1 or 2, got {self.clauses}")


SMALL_NETWORK = NetworkSettings(
    variant="onehot", width=32, instruction_width=32, memory_width=32, head_width=32
)
"""For tests and for demonstrations on a CPU."""


@dataclass(frozen=True)
class TerminationNetworkSettings:
    """Sizes and variants of the termination classifier; the defaults are the paper's."""

    variant: Variant = "paper"
    """Cells as raw integers (paper) or one-hot (onehot)."""
    width: int = 128
    """Channels of the convolutions."""
    instruction_width: int = 128
    """Width of word embeddings and of the instruction encoder."""
    head_width: int = 64
    """Hidden width of the head."""
    blocks: int = 2
    """Modulated blocks."""

    def __post_init__(self) -> None:
        if self.variant not in get_args(Variant):
            raise InputError(f"variant must be paper or onehot, got '{self.variant}'")
        sizes = ("width", "instruction_width", "head_width", "blocks")
        require_at_least(self, 1, *sizes, of="termination")


@dataclass(frozen=True)
class ActionFrequencyNetworkSettings:
    """Sizes of the classifier; the defaults are the released code's."""

    width: int = 128
    """Of word embeddings, of both GRU layers and of the dense layers."""

    def __post_init__(self) -> None:
        require_at_least(self, 1, "width", of="action frequency")


@dataclass(frozen=True)
class RelevanceNetworkSettings:
    """The shape of the relevance classifier."""

    comparison: Literal["l1", "concat", "windows"] = "l1"
    """l1: p = exp(-|high - low|_1) of two sentences, the released scripts' choice; concat: two
    layers over both; windows: the best match among the windows of words of the high-level
    instruction."""
    hidden_size: int = 128
    """Of word embeddings and of the encoder both sentences share (l1, concat), or of the hidden
    layer over a window (windows)."""
    output_size: int = 64
    """Of the two linear maps, one for high-level and one for low-level instructions (l1, concat),
    or of the one for both (windows)."""
    window: int = 6
    """Words in a window: a word and those before it (windows)."""
    word_size: int = 32
    """Of word embeddings (windows)."""
    initialisation: Literal["uniform", "unit-rows"] = "uniform"
    """Of linear maps: uniform within 1 / sqrt(fan in), or, as in the released code, normal with
    rows of norm 1 and no bias (l1, concat)."""

    def __post_init__(self) -> None:
        if self.comparison not in ("l1", "concat", "windows"):
            raise InputError(
                f"relevance comparison must be l1, concat or windows, got '{self.comparison}'"
            )
        if self.initialisation not in ("uniform", "unit-rows"):
            raise InputError(
                f"relevance initialisation must be uniform or unit-rows, got "
                f"'{self.initialisation}'"
            )
        sizes = ("hidden_size", "output_size", "window", "word_size")
        require_at_least(self, 1, *sizes, of="relevance")
