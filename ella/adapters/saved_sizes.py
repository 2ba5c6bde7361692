"""What `HostElla` has saved, for one with room for more sentences and words."""

from collections.abc import Mapping

import numpy as np

SENTENCES = "relevance.sentences"
BY_SENTENCE = (SENTENCES, "relevance.learned", "relevance.relevant", "dataset.members")
"""Arrays with a row for each instruction."""


def with_room(
    saved: Mapping[str, np.ndarray], own: Mapping[str, np.ndarray], words: int, vocabulary: int
) -> dict[str, np.ndarray]:
    """Saved arrays of a vocabulary of `words`, lengthened by rows of a new one's `own` for more
    sentences and words."""
    found = dict(saved)
    for name in own.keys() & saved.keys():
        rows, place = saved[name], np.asarray(own[name])
        if name == SENTENCES:
            missing = max(0, place.shape[1] - rows.shape[1])
            found[name] = rows = np.pad(rows, ((0, 0), (0, missing)))[:, : place.shape[1]]
        if rows.shape == place.shape or rows.shape[1:] != place.shape[1:]:
            continue
        if name in BY_SENTENCE:
            kept = len(rows)
        elif (len(rows), len(place)) == (words, vocabulary):
            kept = words - 1  # the last one is that of all words beyond the vocabulary
        else:
            continue
        found[name] = np.concatenate([rows[:kept], place[kept:]])
    return found
