"""Sentences of any language as numbers: words to tokens, sentences to ids, in order of arrival."""

import re
from collections.abc import Iterable, Sequence

import numpy as np

from ella.errors import InputError
from ella.shaping.free_text_relevance import PADDING


class Sentences:
    """A table of sentences of fixed capacity, so that programs compiled for it never change.

    Upper and lower case and punctuation make no difference.
    """

    def __init__(self, capacity: int, max_words: int, vocabulary: int) -> None:
        for name, value in (("capacity", capacity), ("max_words", max_words)):
            if value < 1:
                raise InputError(f"{name} must be >= 1, got {value}")
        if vocabulary < 3:
            raise InputError(f"vocabulary must be >= 3 (two tokens are reserved), got {vocabulary}")
        self.tokens = np.full((capacity, max_words), PADDING, np.int32)
        """int32[capacity, max_words]: rows from `len(self)` on are not in use."""
        self._vocabulary = vocabulary
        self._words: dict[str, int] = {}
        self._ids: dict[tuple[str, ...], int] = {}

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def texts(self) -> list[str]:
        """The sentences by id, as their words."""
        return [" ".join(words) for words in self._ids]

    @property
    def words(self) -> list[str]:
        """The words in the order of their tokens, from 1."""
        return list(self._words)

    @property
    def unknown(self) -> int:
        """The token of words that are asked about without being met."""
        return self._vocabulary - 1

    def encoded(self, texts: Iterable[str]) -> np.ndarray:
        """Tokens int32[N, max_words] of sentences that get no id; new words get tokens."""
        return np.stack([self._encoded(_split(text)) for text in texts])

    def asked(self, text: str) -> np.ndarray:
        """Tokens int32[max_words] of a sentence of which nothing is remembered."""
        words = _split(text)
        row = self._blank(words)
        row[: len(words)] = [self._words.get(word, self.unknown) for word in words]
        return row

    def id_of(self, text: str) -> int:
        """The id of a sentence; a new one if it has not been met."""
        words = _split(text)
        known = self._ids.get(words)
        if known is not None:
            return known
        if len(self._ids) == len(self.tokens):
            raise InputError(
                f"more than {len(self.tokens)} different instructions; raise max_instructions"
            )
        row = self._encoded(words)
        self.tokens[len(self._ids)] = row
        self._ids[words] = len(self._ids)
        return self._ids[words]

    def restore(self, words: Sequence[str], texts: Sequence[str]) -> None:
        """Fill an empty table with the words and sentences of another."""
        self._meet(words)
        for text in texts:
            self.id_of(text)

    def _encoded(self, words: tuple[str, ...]) -> np.ndarray:
        row = self._blank(words)
        self._meet(words)
        row[: len(words)] = [self._words[word] for word in words]
        return row

    def _blank(self, words: tuple[str, ...]) -> np.ndarray:
        longest = self.tokens.shape[1]
        if len(words) > longest:
            raise InputError(
                f"'{' '.join(words)}' has {len(words)} words, more than {longest}; raise max_words"
            )
        return np.full(longest, PADDING, np.int32)

    def _meet(self, words: Sequence[str]) -> None:
        """Give tokens to new words, to all or to none."""
        new = [word for word in dict.fromkeys(words) if word not in self._words]
        if len(self._words) + len(new) >= self.unknown:
            raise InputError(f"more than {self.unknown - 1} different words; raise vocabulary")
        for word in new:
            self._words[word] = len(self._words) + 1


def _split(text: str) -> tuple[str, ...]:
    words = tuple(re.findall(r"\w+", text.lower()))
    if not words:
        raise InputError(f"an instruction needs at least one word, got {text!r}")
    return words
