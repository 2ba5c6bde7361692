"""Sentences as numbers."""

import numpy as np
import pytest

from ella.adapters.sentences import Sentences
from ella.errors import InputError


def test_a_sentence_keeps_its_id_and_its_words_their_tokens():
    sentences = Sentences(capacity=3, max_words=4, vocabulary=10)
    assert [sentences.id_of(text) for text in ("go home", "Home, go!", "GO home.")] == [0, 1, 0]
    np.testing.assert_array_equal(sentences.tokens, [[1, 2, 0, 0], [2, 1, 0, 0], [0, 0, 0, 0]])
    assert (len(sentences), sentences.texts, sentences.words) == (
        2, ["go home", "home go"], ["go", "home"],
    )  # fmt: skip
    np.testing.assert_array_equal(sentences.asked("go far away"), [1, 9, 9, 0])
    assert sentences.words == ["go", "home"]
    np.testing.assert_array_equal(sentences.encoded(["go away"]), [[1, 3, 0, 0]])
    assert len(sentences) == 2


def test_a_restored_table_goes_on_where_it_was():
    one, other = (Sentences(4, 3, 10) for _ in range(2))
    one.encoded(["low level"])
    one.id_of("high level")
    other.restore(one.words, one.texts)
    for text in ("a level", "high level"):
        assert one.id_of(text) == other.id_of(text)
    np.testing.assert_array_equal(one.tokens, other.tokens)


def test_what_does_not_fit_says_what_to_raise():
    sentences = Sentences(capacity=2, max_words=2, vocabulary=5)
    sentences.id_of("one two")
    for text, hint in (
        ("one two three", "max_words"), ("??", "one word"), ("three four", "vocabulary"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=hint):
            sentences.id_of(text)
    assert sentences.words == ["one", "two"]
    assert sentences.id_of("three") == 1
    with pytest.raises(InputError, match="max_instructions"):
        sentences.id_of("two")
    assert sentences.texts == ["one two", "three"]
    for sizes in ((0, 1, 3), (1, 0, 3), (1, 1, 2)):
        with pytest.raises(InputError):
            Sentences(*sizes)
