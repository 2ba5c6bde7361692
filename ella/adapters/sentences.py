"""Sentences of any language as numbers: words to tokens, sentences to ids."""

import logging
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from ella.errors import InputError
from ella.shaping.free_text_relevance import PADDING

logger = logging.getLogger(__name__)


class Sentences:
    """A table of sentences of fixed capacity, so that compiled programs never change. Where
    it is full, a new sentence takes the place of the least recently used one. Words beyond the
    vocabulary share the token `unknown`; of longer sentences only the first words are read. Both
    are warned of once.

    Upper and lower case and punctuation make no difference.
    """

    def __init__(self, max_instructions: int, max_words: int, vocabulary: int) -> None:
        for name, value in (("max_instructions", max_instructions), ("max_words", max_words)):
            if value < 1:
                raise InputError(f"{name} must be >= 1, got {value}")
        if vocabulary < 3:
            raise InputError(f"vocabulary must be >= 3 (two tokens are reserved), got {vocabulary}")
        self.max_instructions = max_instructions
        self.max_words = max_words
        self.vocabulary = vocabulary
        self._warned: set[str] = set()
        self._words: dict[str, int] = {}
        self._ids: dict[tuple[str, ...], int] = {}
        """In order of use, the least recent first."""

    @property
    def sizes(self) -> dict[str, int]:
        """What it was made with."""
        names = ("max_instructions", "max_words", "vocabulary")
        return {name: getattr(self, name) for name in names}

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
        """The token of words beyond the vocabulary."""
        return self.vocabulary - 1

    def encoded(self, texts: Iterable[str]) -> np.ndarray:
        """Tokens int32[N, max_words] of sentences that get no id; new words get tokens. All of
        them must fit."""
        sentences = [_split(text) for text in texts]
        for words in sentences:
            if len(words) > self.max_words:
                raise InputError(
                    f"'{' '.join(words)}' has {len(words)} words, more than {self.max_words}; "
                    "raise max_words"
                )
        different = len(self._words.keys() | {word for words in sentences for word in words})
        if different >= self.unknown:
            raise InputError(
                f"{different} different words, more than {self.unknown - 1}; raise vocabulary"
            )
        return np.stack([self._encoded(words) for words in sentences])

    def find(self, text: str) -> int | None:
        """The id of a sentence, None for one without."""
        return self._ids.get(_split(text))

    def use(self, texts: Sequence[str]) -> tuple[np.ndarray, list[int], np.ndarray]:
        """Ids int32[N] of sentences that are in use at the same time, those among them that belong
        to a new sentence, and its tokens int32[new, max_words]."""
        sentences = [_split(text) for text in texts]
        different = list(dict.fromkeys(sentences))
        if len(different) > self.max_instructions:
            raise InputError(
                f"{len(different)} different instructions at a time, more than "
                f"{self.max_instructions}; raise max_instructions"
            )
        new = [words for words in different if words not in self._ids]
        rows = [self._encoded(words) for words in new]
        for words in different:
            if words in self._ids:
                self._ids[words] = self._ids.pop(words)
        for words in new:
            place = len(self._ids)
            if place == self.max_instructions:
                place = self._ids.pop(next(iter(self._ids)))
            self._ids[words] = place
        ids = np.array([self._ids[words] for words in sentences], np.int32)
        tokens = np.array(rows, np.int32).reshape(len(new), self.max_words)
        return ids, [self._ids[words] for words in new], tokens

    def restore(
        self, words: Sequence[str], texts: Sequence[str], order_of_use: Sequence[int]
    ) -> np.ndarray:
        """Fill an empty table with the words and sentences of another; tokens
        int32[len(texts), max_words] by id."""
        self._meet(words)
        rows = [self.use([text])[2] for text in texts]
        for index in order_of_use:
            self.use([texts[index]])
        return np.concatenate([np.zeros((0, self.max_words), np.int32), *rows])

    def _encoded(self, words: tuple[str, ...]) -> np.ndarray:
        """Tokens int32[max_words] of a sentence's first words."""
        if len(words) > self.max_words:
            self._warn(
                "max_words",
                f"'{' '.join(words)}' has {len(words)} words: only the first {self.max_words} of "
                "longer instructions are learned from (max_words)",
            )
        read = words[: self.max_words]
        self._meet(read)
        row = np.full(self.max_words, PADDING, np.int32)
        row[: len(read)] = [self._words.get(word, self.unknown) for word in read]
        return row

    def _meet(self, words: Sequence[str]) -> None:
        """Give tokens to new words as long as there are any."""
        for word in words:
            if word in self._words:
                continue
            if len(self._words) + 1 == self.unknown:
                self._warn(
                    "vocabulary",
                    f"there are more than {self.unknown - 1} different words (vocabulary): every "
                    "low-level instruction stays relevant to instructions with further ones, such "
                    f"as '{word}'",
                )
                return
            self._words[word] = len(self._words) + 1

    def _warn(self, size: str, what: str) -> None:
        if size not in self._warned:
            self._warned.add(size)
            logger.warning(
                "%s; HostElla takes a larger %s, also to load what a smaller one has saved",
                what,
                size,
            )


@lru_cache(maxsize=4096)
def _split(text: str) -> tuple[str, ...]:
    spaced = " "
    for char in unicodedata.normalize("NFC", text.lower()):
        marks_a_letter = spaced[-1] != " " and unicodedata.category(char).startswith("M")
        spaced += char if char.isalnum() or char == "_" or marks_a_letter else " "
    if not (words := tuple(spaced.split())):
        raise InputError(f"an instruction needs at least one word, got {text!r}")
    return words
