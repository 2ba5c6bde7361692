"""Examples for LEARN's classifier: action frequencies that do and do not go with an instruction."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np

from ella.errors import InputError
from ella.offline.demonstrations import demonstrations
from ella.world.encoding import DONE, NUM_ACTIONS
from ella.world.environment import make
from ella.world.tasks import TaskSpec

SHORTEST_WINDOW = 5
"""Actions; shorter episodes are left out."""


@dataclass(frozen=True)
class ActionFrequencyExamples:
    """N pairs of an instruction and action frequencies. Host arrays."""

    instruction_ids: np.ndarray
    """int32[N]."""
    frequencies: np.ndarray
    """float32[N, 7]; each row sums to 1."""
    labels: np.ndarray
    """int32[N]: 1 where they go together."""


def expert_examples(
    spec: TaskSpec,
    num_episodes: int,
    seed: int,
    collected: Callable[[int], None] = lambda episodes: None,
) -> ActionFrequencyExamples:
    """One positive and one negative example of each expert episode that is long enough.

    An episode's actions end with an added 'done'. `collected` is called with the number of episodes
    of each chunk.
    """
    found = demonstrations(make(spec), jax.random.key(seed), num_episodes, collected=collected)
    lengths = np.where(found.success, found.lengths + 1, 0)
    # Episodes are padded with 'done', so the added one is there unless one fills the array.
    actions = np.pad(found.actions, ((0, 0), (0, 1)), constant_values=DONE)
    kept = lengths >= SHORTEST_WINDOW
    if len(set(found.instruction_ids[kept].tolist())) < 2:
        raise InputError(
            f"{num_episodes} expert episodes of '{spec.name}' hold too few of {SHORTEST_WINDOW} "
            "actions and more; collect more episodes"
        )
    return pair_up(
        actions[kept], lengths[kept], found.instruction_ids[kept], np.random.default_rng(seed)
    )


def pair_up(
    actions: np.ndarray, lengths: np.ndarray, ids: np.ndarray, rng: np.random.Generator
) -> ActionFrequencyExamples:
    """Positive examples, then as many negative ones, from episodes' actions uint8[N, T].

    Positive: an episode's instruction and the frequencies in a random window of its actions.
    Negative, by equal chances: the same frequencies with an instruction of another episode that
    differs, or the same instruction with random frequencies.
    """
    positive = window_frequencies(actions, *draw_windows(lengths, rng))
    swapped = rng.random(len(ids)) < 0.5
    noise = rng.random((len(ids), NUM_ACTIONS))
    noise /= noise.sum(axis=1, keepdims=True)
    other_ids = np.where(swapped, _different(ids, rng), ids)
    other = np.where(swapped[:, None], positive, noise)
    return ActionFrequencyExamples(
        instruction_ids=np.concatenate([ids, other_ids]).astype(np.int32),
        frequencies=np.concatenate([positive, other]).astype(np.float32),
        labels=np.repeat(np.array([1, 0], np.int32), len(ids)),
    )


def draw_windows(lengths: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(start, stop) of a random window of each length: one end uniform in 0 .. n - 1, the other in
    0 .. n, both drawn again until they lie far enough apart."""
    start, stop = np.zeros_like(lengths), np.zeros_like(lengths)
    missing = np.arange(len(lengths))
    while missing.size:
        one = rng.integers(0, lengths[missing])
        other = rng.integers(0, lengths[missing] + 1)
        start[missing], stop[missing] = np.minimum(one, other), np.maximum(one, other)
        missing = missing[(stop - start)[missing] < SHORTEST_WINDOW]
    return start, stop


def window_frequencies(actions: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """float64[N, 7]: the share of each action in actions[start:stop] of each row."""
    position = np.arange(actions.shape[1])
    inside = (position >= start[:, None]) & (position < stop[:, None])
    taken = actions[..., None] == np.arange(NUM_ACTIONS)
    return (taken & inside[..., None]).sum(axis=1) / (stop - start)[:, None]


def _different(ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """For each episode the instruction of a random other one, drawn again while it is the same."""
    other = ids.copy()
    missing = np.arange(len(ids))
    while missing.size:
        other[missing] = ids[rng.integers(0, len(ids), missing.size)]
        missing = missing[other[missing] == ids[missing]]
    return other
