"""What `HostElla` has saved, for one with room for more sentences and words."""

from collections.abc import Mapping

import numpy as np

TAUGHT, RELEVANT, MEMBERS = "relevance.taught", "relevance.relevant", "dataset.members"
BY_SENTENCE = (RELEVANT, MEMBERS)
"""Arrays with a row for each instruction."""


def needed_sizes(saved: Mapping[str, np.ndarray]) -> dict[str, int]:
    """`max_instructions` and `vocabulary` of saved arrays; 0 where they are missing."""
    return {
        "max_instructions": len(saved.get(RELEVANT, ())),
        "vocabulary": len(saved.get(TAUGHT, ())),
    }


def with_room(
    saved: Mapping[str, np.ndarray], own: Mapping[str, np.ndarray], vocabulary: int
) -> dict[str, np.ndarray]:
    """Saved arrays, lengthened by rows of a new one's `own` for more sentences and words."""
    found, words = dict(saved), needed_sizes(saved)["vocabulary"]
    for name in own.keys() & saved.keys():
        rows, place = saved[name], own[name]
        if rows.shape == place.shape or rows.shape[1:] != place.shape[1:]:
            continue
        if name in BY_SENTENCE:
            kept = len(rows)
        elif (len(rows), len(place)) == (words, vocabulary):
            kept = words - 1  # the last one is that of all words beyond the vocabulary
        else:
            continue
        found[name] = np.concatenate([rows[:kept], np.asarray(place)[kept:]])
    return found
