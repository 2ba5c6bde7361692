"""Sentences of any language as numbers: words to tokens, sentences to ids."""

import re
from collections.abc import Iterable, Sequence

import numpy as np

from ella.errors import InputError
from ella.shaping.free_text_relevance import PADDING


class Sentences:
    """A table of sentences of fixed capacity, so that programs compiled for it never change. Where
    it is full, a new sentence takes the place of the least recently used one.

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
        """In order of use, the least recent first."""

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def texts(self) -> list[str]:
        """The sentences by id, as their words."""
        return [" ".join(words) for words in sorted(self._ids, key=self._ids.__getitem__)]

    @property
    def order_of_use(self) -> list[int]:
        """The ids, the least recently used first."""
        return list(self._ids.values())

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

    def use(self, texts: Sequence[str]) -> tuple[np.ndarray, list[int]]:
        """Ids int32[N] of sentences that are in use at the same time, and those ids among them that
        belong to a new sentence."""
        sentences = [_split(text) for text in texts]
        different = list(dict.fromkeys(sentences))
        if len(different) > len(self.tokens):
            raise InputError(
                f"{len(different)} different instructions at a time, more than "
                f"{len(self.tokens)}; raise max_instructions"
            )
        new = [words for words in different if words not in self._ids]
        rows = [self._encoded(words) for words in new]
        for words in different:
            if words in self._ids:
                self._ids[words] = self._ids.pop(words)
        for words, row in zip(new, rows, strict=True):
            place = len(self._ids)
            if place == len(self.tokens):
                place = self._ids.pop(next(iter(self._ids)))
            self.tokens[place] = row
            self._ids[words] = place
        ids = [self._ids[words] for words in sentences]
        return np.array(ids, np.int32), [self._ids[words] for words in new]

    def restore(
        self, words: Sequence[str], texts: Sequence[str], order_of_use: Sequence[int]
    ) -> None:
        """Fill an empty table with the words and sentences of another."""
        self._meet(words)
        for text in texts:
            self.use([text])
        for index in order_of_use:
            self.use([texts[index]])

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
