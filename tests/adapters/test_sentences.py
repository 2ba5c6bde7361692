"""Sentences as numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ella.adapters.sentences import Sentences
from ella.errors import InputError


def test_a_sentence_keeps_its_id_and_its_words_their_tokens():
    sentences = Sentences(max_instructions=3, max_words=4, vocabulary=10)
    ids, new, tokens = sentences.use(["go home", "Home, go!", "GO home."])
    assert (ids.tolist(), new) == ([0, 1, 0], [0, 1])
    np.testing.assert_array_equal(tokens, [[1, 2, 0, 0], [2, 1, 0, 0]])
    assert (sentences.texts, sentences.words) == (["go home", "home go"], ["go", "home"])
    assert (sentences.find("Home go"), sentences.find("go far away")) == (1, None)
    assert sentences.words == ["go", "home"]
    np.testing.assert_array_equal(sentences.encoded(["go away"]), [[1, 3, 0, 0]])
    assert sentences.texts == ["go home", "home go"]
    assert sentences.use(["go home"])[2].shape == (0, 4)


def test_marks_belong_to_the_letters_they_are_written_on():
    sentences = Sentences(max_instructions=4, max_words=4, vocabulary=10)
    composed, decomposed, hindi = "öffne die Tür", "o\u0308ffne die Tu\u0308r!", "हिन्दी में बोलो"
    ids, *_ = sentences.use([composed, decomposed, hindi])
    assert ids.tolist() == [0, 0, 1]
    assert sentences.words == [*composed.lower().split(), *hindi.split()]
    assert sentences.use(["\u26bf\ufe0f öffne die tür"])[0].tolist() == [0]  # a mark on an emoji


def test_a_restored_table_goes_on_where_it_was():
    one, other = (Sentences(4, 3, 10) for _ in range(2))
    one.encoded(["low level"])
    tokens = np.zeros((4, 3), np.int32)
    for text in ("high level", "my level", "high level", "your level", "their level"):
        _, new, rows = one.use([text])
        tokens[new] = rows
    found = other.restore(one.words, one.texts, one.order_of_use)
    np.testing.assert_array_equal(found, tokens)
    for text in ("a level", "high level", "our level"):
        for found, expected in zip(other.use([text]), one.use([text]), strict=True):
            np.testing.assert_array_equal(found, expected)
    assert one.texts == other.texts


@given(st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=3), max_size=30))
def test_the_least_recently_used_sentence_makes_room(batches):
    sentences, recent = Sentences(max_instructions=3, max_words=1, vocabulary=10), []
    for batch in batches:
        ids, new, _ = sentences.use(batch)
        # The three letters used last; those of a batch that are known count as used first.
        first_met = [letter for letter in dict.fromkeys(batch) if letter not in recent]
        recent = [letter for letter in recent if letter not in batch]
        recent += [letter for letter in dict.fromkeys(batch) if letter not in first_met]
        recent = (recent + first_met)[-3:]
        assert sorted(sentences.texts) == sorted(recent)
        assert [sentences.texts[index] for index in ids] == batch
        assert [sentences.texts[index] for index in new] == first_met


def test_what_does_not_fit_is_read_in_part_and_warned_of_once(caplog):
    sentences = Sentences(max_instructions=3, max_words=2, vocabulary=5)
    sentences.use(["one two"])
    for expected in ([[1, 2], [3, 4], [4, 4]], np.zeros((0, 2))):
        tokens = sentences.use(["one two three", "three four", "five, six"])[2]
        np.testing.assert_array_equal(tokens, expected)
    assert sentences.words == ["one", "two", "three"]
    assert sentences.texts == ["five six", "one two three", "three four"]
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "'one two three' has 3 words" in said[0]
    assert "takes a larger max_words" in said[0]
    assert "more than 3 different words" in said[1]
    assert "such as 'four'; HostElla takes a larger vocabulary" in said[1]
    larger = Sentences(max_instructions=4, max_words=3, vocabulary=9)
    found = larger.restore(sentences.words, sentences.texts, sentences.order_of_use)
    np.testing.assert_array_equal(found, [[4, 5, 0], [1, 2, 3], [3, 6, 0]])


def test_what_must_fit_says_what_to_raise():
    sentences = Sentences(max_instructions=2, max_words=2, vocabulary=5)
    sentences.encoded(["one two"])
    for text, hint in (("one two three", "max_words"), ("three four", "4 .* raise vocabulary")):
        with pytest.raises(InputError, match=hint):
            sentences.encoded([text])
    assert sentences.words == ["one", "two"]
    with pytest.raises(InputError, match="one word"):
        sentences.use(["??"])
    with pytest.raises(InputError, match=r"3 different .* raise max_instructions"):
        sentences.use(["one", "two", "three"])
    assert sentences.texts == []
    for sizes in ((0, 1, 3), (1, 0, 3), (1, 1, 2)):
        with pytest.raises(InputError):
            Sentences(*sizes)
