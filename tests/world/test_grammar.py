"""Instruction ids, texts, tokens and arrays are one another's inverses."""

import jax
import numpy as np
import pytest

from ella.errors import InputError
from ella.world.grammar import VOCABULARY, parse, sentence_of, tokenise
from ella.world.language import Language
from ella.world.tasks import TASKS

COUNTS = {
    "goto-room": 36, "goto-maze": 42, "open-maze": 6, "pick-maze": 36, "opengoto-maze": 48,
    "putnext-room": 306, "putnext-maze": 1440, "unlock-maze": 6, "openpick-maze": 216,
    "combo-maze": 1482,
}  # fmt: skip


def some_ids(language: Language) -> np.ndarray:
    """Every instruction, or 1,000 drawn at random of a language of millions."""
    if language.num_ids < 4_000:
        return language.instruction_ids
    drawn = np.random.default_rng(0).integers(0, language.num_ids, 1_250).astype(np.int32)
    return drawn[language.is_valid(drawn)][:1_000]


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_number_of_instructions(name: str, count: int) -> None:
    language = TASKS[name].language
    assert language.num_instructions == count
    assert len(language.instruction_ids) == count


def test_sequence_has_millions() -> None:
    language = TASKS["sequence-maze"].language
    assert language.num_ids == 2 * (6 + 36 + 36 * 42) ** 2
    # Pairs of clauses whose articles agree, counted by hand: with 'open' first or second; pick
    # and pick; pick and put, both orders; put next to doors and doors, doors and things (both
    # orders), things and things. Each pair stands in two forms.
    pairs = (
        (2 * 6 * 1482 - 36)
        + 36 * (36 - 1)
        + 2 * 36 * (1440 - 74)
        + 216 * (216 - 6)
        + 2 * 216 * (1224 - 68)
        + 1224 * (1224 - 134)
    )
    assert language.num_instructions == 2 * pairs


@pytest.mark.parametrize("name", TASKS)
def test_id_text_tokens_and_arrays_round_trip(name: str) -> None:
    language = TASKS[name].language
    ids = some_ids(language)
    assert name != "sequence-maze" or len(ids) == 1_000
    tokens = np.asarray(jax.jit(language.tokens)(ids))
    instructions = jax.device_get(jax.jit(language.decode)(ids))
    assert tokens.shape == (len(ids), language.max_tokens)
    if language.num_ids < 4_000:
        np.testing.assert_array_equal(language.all_tokens[ids], tokens)
    texts = [language.text(int(i)) for i in ids]
    assert len(set(texts)) == len(set(ids.tolist()))
    for row, (instruction_id, text) in enumerate(zip(ids, texts, strict=True)):
        assert language.find(text) == instruction_id
        assert parse(text).text == text
        expected = tokenise(text)
        assert tokens[row].tolist() == expected + [0] * (language.max_tokens - len(expected))
        assert " ".join(VOCABULARY[token - 1] for token in expected) == text.replace(",", "")
        arrays = jax.tree.map(lambda leaf, row=row: leaf[row], instructions)
        assert sentence_of(arrays) == language.sentence(int(instruction_id))


@pytest.mark.parametrize("name", TASKS)
def test_longest_sentence_fills_the_tokens(name: str) -> None:
    language = TASKS[name].language
    lengths = (np.asarray(jax.jit(language.tokens)(some_ids(language))) > 0).sum(axis=1)
    assert lengths.max() == language.max_tokens


@pytest.mark.parametrize("name", TASKS)
def test_compose_undoes_split(name: str) -> None:
    language = TASKS[name].language
    ids = some_ids(language)
    round_trip = jax.jit(lambda ids: language.compose(*language.split(ids)))
    np.testing.assert_array_equal(round_trip(ids), ids)


@pytest.mark.parametrize("name", TASKS)
def test_navigations_are_counted_per_clause(name: str) -> None:
    language = TASKS[name].language
    ids = some_ids(language)[:500]
    expected = [sum(c.navigations for c in language.sentence(int(i)).clauses) for i in ids]
    assert np.asarray(jax.jit(language.navigations)(ids)).tolist() == expected
    assert set(expected) <= set(language.navigation_counts)


def test_invalid_ids_are_the_impossible_sentences() -> None:
    language = TASKS["putnext-maze"].language
    ids = np.arange(language.num_ids, dtype=np.int32)
    invalid = ids[~language.is_valid(ids)]
    texts = {language.text(int(i)) for i in invalid}
    assert "put the red ball next to the red ball" in texts
    assert "put a red ball next to the red ball" in texts
    assert len(texts) == 36 * 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fetch the red ball",
        "go to red ball",
        "go to the pink ball",
        "go to the ball",
        "open the red ball",
        "pick up the red door",
        "put the red door next to the red ball",
        "put the red ball next to",
        "go to the red ball then go to the blue key",
        "go to the red ball, then go to the blue key, then go to the blue key",
        "Go to the red ball",
        "go to the red ball ",
    ],
)
def test_sentences_outside_the_grammar_are_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text)
    assert "\n" not in str(caught.value)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "go to the pink ball",
            "unknown colour 'pink'; known: red, green, blue, purple, yellow, grey",
        ),
        ("go to the red bal", "unknown object 'bal'; did you mean ball"),
        ("fetch the red ball", "unknown verb 'fetch'; known: go, open, pick, put"),
        ("Go to the red ball", "unknown verb 'Go'; did you mean go"),
        ("go to the red ball, then go to the blue sofa", "unknown object 'sofa'; known: door, key"),
        ("go towards the red ball", "unknown word 'towards'"),
    ],
)
def test_an_unknown_word_is_named_with_those_that_could_stand_there(
    text: str, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        parse(text)
    assert str(caught.value).startswith(f"'{text}': {message}")


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ("goto-room", "open the red door"),
        ("goto-room", "go to the red door"),
        ("goto-maze", "go to a red door"),
        ("putnext-room", "put a red ball next to the blue key"),
        ("putnext-maze", "put the red ball next to the red ball"),
        ("openpick-maze", "pick up the red ball and open the red door"),
        ("openpick-maze", "open the red door"),
        ("sequence-maze", "open the red door and pick up the red ball"),
        ("sequence-maze", "pick up the red ball, then pick up a red ball"),
    ],
)
def test_sentences_of_other_tasks_are_refused_with_an_example(task: str, text: str) -> None:
    language = TASKS[task].language
    with pytest.raises(InputError, match="is not an instruction of this task; one is") as caught:
        language.find(text)
    example = str(caught.value).rsplit("'", 2)[1]
    assert language.text(language.find(example)) == example


def test_ids_outside_the_language_are_refused() -> None:
    with pytest.raises(InputError, match=r"outside 0\.\.35"):
        TASKS["goto-room"].language.text(36)


def test_unknown_words_are_refused() -> None:
    with pytest.raises(InputError, match="'pink' is not in the vocabulary"):
        tokenise("go to the pink ball")
