"""Tags of the random streams that are drawn from one seed.

The i-th key of a `split` is that of tag i. Offline stages split their seed's key and so share
small tags with others; evaluation must share its stream with nothing, and has a tag that no split
reaches.
"""

from enum import IntEnum, unique

import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray


@unique
class Stream(IntEnum):
    """What is drawn from a seed."""

    TRAINING = 0
    """A run's network, levels and actions."""
    ORDINARY_VIEWS = 1
    """Levels and actions of a random agent, on which false alarms are counted."""
    EVALUATION = 2**31
    """Levels and actions of evaluation."""


def stream_key(seed: int | np.unsignedinteger | Array, stream: Stream) -> PRNGKeyArray:
    """The key of a seed's stream."""
    return jax.random.fold_in(jax.random.key(seed), int(stream))
