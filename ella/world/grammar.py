"""The instructions' grammar: words, clauses, sentences, and parsing.

object   = ("the" | "a") colour type
clause   = "go to" object | "open" door | "pick up" thing | "put" thing "next to" object
sentence = clause | clause "and" clause | clause ", then" clause | clause "after you" clause
"""

import re
from dataclasses import dataclass

import numpy as np

from ella.errors import InputError, unknown_name
from ella.world.encoding import (
    COLOUR_NAMES,
    DOOR,
    TYPE_NAMES,
    cell_of,
    colour_of,
    kind_of,
)
from ella.world.state import (
    AFTER,
    AND,
    BEFORE,
    GOTO,
    NO_CLAUSE,
    OPEN_DOOR,
    PICK_UP,
    PUT_NEXT,
    SINGLE,
    Instruction,
)

VOCABULARY = (
    "go", "to", "open", "pick", "up", "put", "next", "the", "a",
    "red", "green", "blue", "purple", "yellow", "grey",
    "door", "key", "ball", "box", "and", "then", "after", "you",
)  # fmt: skip
"""Every word of every task; token ids start at 1 in this order, 0 is padding."""
TOKEN_IDS = {word: index for index, word in enumerate(VOCABULARY, start=1)}
VOCABULARY_SIZE = len(VOCABULARY) + 1
"""Number of token ids, padding included."""

CLAUSE_KINDS = {"goto": GOTO, "open": OPEN_DOOR, "pickup": PICK_UP, "putnext": PUT_NEXT}
CONNECTORS = {SINGLE: "", AND: " and ", BEFORE: ", then ", AFTER: " after you "}
ARTICLES = ("the", "a")
VERBS = ("go", "open", "pick", "put")
OBJECT_NAMES = ("door", "key", "ball", "box")

_OBJECT = rf"(the|a) ({'|'.join(COLOUR_NAMES)}) ({'|'.join(OBJECT_NAMES)})"
_CLAUSE_PATTERNS = {
    GOTO: re.compile(rf"go to {_OBJECT}"),
    OPEN_DOOR: re.compile(rf"open {_OBJECT}"),
    PICK_UP: re.compile(rf"pick up {_OBJECT}"),
    PUT_NEXT: re.compile(rf"put {_OBJECT} next to {_OBJECT}"),
}


@dataclass(frozen=True)
class Phrase:
    """A description of objects: 'the red ball', 'a grey door'."""

    article: int
    """0 for 'the', 1 for 'a'."""
    colour: int
    type: int

    @property
    def text(self) -> str:
        return f"{ARTICLES[self.article]} {COLOUR_NAMES[self.colour]} {TYPE_NAMES[self.type]}"

    @property
    def object_class(self) -> int:
        return int(cell_of(self.type, self.colour))


@dataclass(frozen=True)
class Clause:
    """One action: a kind and the phrases it names."""

    kind: int
    phrases: tuple[Phrase, ...]

    @property
    def text(self) -> str:
        first = self.phrases[0].text
        if self.kind == PUT_NEXT:
            return f"put {first} next to {self.phrases[1].text}"
        return {GOTO: "go to ", OPEN_DOOR: "open ", PICK_UP: "pick up "}[self.kind] + first

    @property
    def navigations(self) -> int:
        return 2 if self.kind == PUT_NEXT else 1

    @property
    def is_possible(self) -> bool:
        classes = {phrase.object_class for phrase in self.phrases}
        return len(classes) == len(self.phrases)


@dataclass(frozen=True)
class Sentence:
    """A parsed instruction; clauses stand in the order of the text."""

    form: int
    clauses: tuple[Clause, ...]

    @property
    def text(self) -> str:
        return CONNECTORS[self.form].join(clause.text for clause in self.clauses)


def tokenise(text: str) -> list[int]:
    """Token ids of a text: its lower-case words, punctuation left out."""
    words = re.findall("[a-z]+", text.lower())
    unknown = [word for word in words if word not in TOKEN_IDS]
    if unknown:
        raise InputError(f"word '{unknown[0]}' is not in the vocabulary: {', '.join(VOCABULARY)}")
    return [TOKEN_IDS[word] for word in words]


def parse(text: str) -> Sentence:
    """The sentence of a text, or an error that says which part is outside the grammar."""
    for form in (BEFORE, AFTER, AND):
        parts = text.split(CONNECTORS[form])
        if len(parts) == 2:
            return Sentence(form, tuple(_parse_clause(part, text) for part in parts))
    return Sentence(SINGLE, (_parse_clause(text, text),))


def sentence_of(instruction: Instruction) -> Sentence:
    """The sentence of one instruction's arrays (host)."""
    clauses = []
    for kind, objects, articles in zip(
        np.asarray(instruction.kinds),
        np.asarray(instruction.objects),
        np.asarray(instruction.articles),
        strict=True,
    ):
        phrases = tuple(
            Phrase(int(article), int(colour_of(cell)), int(kind_of(cell)))
            for cell, article in zip(objects, articles, strict=True)
            if cell > 0
        )
        if kind != NO_CLAUSE:
            clauses.append(Clause(int(kind), phrases))
    return Sentence(int(instruction.form), tuple(clauses))


def _parse_clause(part: str, text: str) -> Clause:
    for kind, pattern in _CLAUSE_PATTERNS.items():
        match = pattern.fullmatch(part)
        if match is None:
            continue
        words = match.groups()
        phrases = tuple(
            Phrase(ARTICLES.index(article), COLOUR_NAMES.index(colour), TYPE_NAMES.index(type_))
            for article, colour, type_ in (words[i : i + 3] for i in range(0, len(words), 3))
        )
        if (kind == OPEN_DOOR) != (phrases[0].type == DOOR) and kind != GOTO:
            break
        return Clause(kind, phrases)
    _check_words(part, text)
    raise InputError(
        f"cannot understand '{part}' in '{text}'; a clause is 'go to X', 'open X', 'pick up X' or "
        "'put X next to Y', where X is like 'the red ball' or 'a grey door', and two clauses are "
        "joined by ' and ', ', then ' or ' after you '"
    )


def _check_words(part: str, text: str) -> None:
    """Refuse a clause with a word no instruction has, naming it and what could stand there."""
    words = part.replace(",", " ").split()
    for word, before in zip(words, ["", *words], strict=False):
        if word in VOCABULARY:
            continue
        if not before:
            error = unknown_name("verb", word, VERBS)
        elif before in ARTICLES:
            error = unknown_name("colour", word, COLOUR_NAMES)
        elif before in COLOUR_NAMES:
            error = unknown_name("object", word, OBJECT_NAMES)
        else:
            error = unknown_name("word", word, VOCABULARY)
        raise InputError(f"'{text}': {error}")
