"""The instruction language: ids, texts, tokens and the verifier's arrays.

A task's language is a mixed-radix number system over the grammar

    object   = ("the" | "a") colour type
    clause   = "go to" object | "open" door | "pick up" thing | "put" thing "next to" object
    sentence = clause | clause "and" clause | clause ", then" clause | clause "after you" clause

so an instruction's id, its text and its arrays are computed from one another without a
dictionary of sentences. Some ids name no instruction (putting an object next to its own class,
calling one class both "a" and "the"): `Language.is_valid` tells.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32

from ella.errors import InputError, unknown_name
from ella.world.encoding import (
    COLOUR_NAMES,
    DOOR,
    MOVABLE_TYPES,
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


def detokenise(tokens: Any) -> str:
    """The words of a token sequence, padding dropped."""
    return " ".join(VOCABULARY[int(token) - 1] for token in tokens if int(token) > 0)


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


@dataclass(frozen=True)
class Language:
    """Every instruction of one task, numbered."""

    kinds: tuple[str, ...]
    form: str
    movable_articles_vary: bool
    num_doors: int

    @cached_property
    def movable_phrases(self) -> tuple[Phrase, ...]:
        return tuple(
            Phrase(article, colour, type_)
            for article in range(2 if self.movable_articles_vary else 1)
            for colour in range(len(COLOUR_NAMES))
            for type_ in MOVABLE_TYPES
        )

    @cached_property
    def door_phrases(self) -> tuple[Phrase, ...]:
        if self.num_doors == 0:
            return ()
        return tuple(
            Phrase(article, colour, DOOR)
            for article in range(2 if self.num_doors > 1 else 1)
            for colour in range(len(COLOUR_NAMES))
        )

    @property
    def object_phrases(self) -> tuple[Phrase, ...]:
        return self.movable_phrases + self.door_phrases

    @cached_property
    def clauses(self) -> tuple[Clause, ...]:
        """All clauses by clause id: kinds in the task's order, then phrases."""
        found: list[Clause] = []
        for name in self.kinds:
            kind = CLAUSE_KINDS[name]
            if kind == PUT_NEXT:
                found += [
                    Clause(kind, (moved, fixed))
                    for moved in self.movable_phrases
                    for fixed in self.object_phrases
                ]
            else:
                phrases = {
                    GOTO: self.object_phrases,
                    OPEN_DOOR: self.door_phrases,
                    PICK_UP: self.movable_phrases,
                }[kind]
                found += [Clause(kind, (phrase,)) for phrase in phrases]
        return tuple(found)

    @cached_property
    def clause_ids(self) -> dict[Clause, int]:
        return {clause: index for index, clause in enumerate(self.clauses)}

    @cached_property
    def kind_offsets(self) -> dict[int, int]:
        """The first clause id of each clause kind."""
        offsets: dict[int, int] = {}
        for index, clause in enumerate(self.clauses):
            offsets.setdefault(clause.kind, index)
        return offsets

    @property
    def num_clauses(self) -> int:
        return len(self.clauses)

    @cached_property
    def _radices(self) -> tuple[tuple[int, ...], int, int]:
        """(sentence forms, ids of the first clause, ids of the second clause)."""
        if self.form == "single":
            return (SINGLE,), self.num_clauses, 1
        if self.form == "each":
            first = sum(c.kind == CLAUSE_KINDS[self.kinds[0]] for c in self.clauses)
            return (AND,), first, self.num_clauses - first
        forms = (AND,) if self.form == "and" else (BEFORE, AFTER)
        return forms, self.num_clauses, self.num_clauses

    @property
    def num_ids(self) -> int:
        """Size of the id space; a few ids name no instruction (see `is_valid`)."""
        forms, first, second = self._radices
        return len(forms) * first * second

    @cached_property
    def num_instructions(self) -> int:
        """How many ids name an instruction."""
        chunks = (
            np.arange(start, min(start + 2**18, self.num_ids), dtype=np.int32)
            for start in range(0, self.num_ids, 2**18)
        )
        return sum(int(np.count_nonzero(self.is_valid(ids))) for ids in chunks)

    @cached_property
    def instruction_ids(self) -> np.ndarray:
        """Every id that names an instruction, ascending (int32)."""
        ids = np.arange(self.num_ids, dtype=np.int32)
        return ids[self.is_valid(ids)]

    @property
    def second_clause_offset(self) -> int:
        """The clause id that stands for 0 in the second clause's digit."""
        return self._radices[1] if self.form == "each" else 0

    def compose(self, form: Any, first: Any, second: Any) -> Any:
        """Instruction ids of forms and clause ids (arrays or integers; `second` is ignored in a
        language of single clauses)."""
        forms, num_first, num_second = self._radices
        if self.form == "single":
            return first
        form_digit = form - forms[0]
        return (form_digit * num_first + first) * num_second + second - self.second_clause_offset

    def split(self, ids: Any) -> tuple[Any, Any, Any]:
        """(form, first clause id, second clause id) of ids; the second is -1 where there is none.

        Works on integers, NumPy arrays and traced arrays alike.
        """
        forms, num_first, num_second = self._radices
        if self.form == "single":
            return ids * 0 + SINGLE, ids, ids * 0 - 1
        rest, second = ids // num_second, ids % num_second
        form = forms[0] + rest // num_first
        return form, rest % num_first, second + self.second_clause_offset

    @cached_property
    def _clause_classes(self) -> np.ndarray:
        """uint8[num_clauses + 1, 2] object classes; the last row is 'no clause'."""
        table = np.zeros((self.num_clauses + 1, 2), np.uint8)
        for index, clause in enumerate(self.clauses):
            table[index, : len(clause.phrases)] = [p.object_class for p in clause.phrases]
        return table

    @cached_property
    def _clause_articles(self) -> np.ndarray:
        """uint8[num_clauses + 1, 2] articles."""
        table = np.zeros((self.num_clauses + 1, 2), np.uint8)
        for index, clause in enumerate(self.clauses):
            table[index, : len(clause.phrases)] = [p.article for p in clause.phrases]
        return table

    @cached_property
    def _clause_possible(self) -> np.ndarray:
        """bool[num_clauses + 1]; 'no clause' is possible."""
        return np.array([clause.is_possible for clause in self.clauses] + [True])

    @cached_property
    def _clause_kinds(self) -> np.ndarray:
        """int32[num_clauses + 1] clause kinds."""
        return np.array([c.kind for c in self.clauses] + [NO_CLAUSE], np.int32)

    @cached_property
    def _clause_tokens(self) -> tuple[np.ndarray, np.ndarray]:
        """(int32[num_clauses + 1, longest] tokens, int32[num_clauses + 1] lengths)."""
        rows = [tokenise(clause.text) for clause in self.clauses] + [[]]
        longest = max(map(len, rows))
        table = np.zeros((len(rows), longest), np.int32)
        for index, row in enumerate(rows):
            table[index, : len(row)] = row
        return table, np.array([len(row) for row in rows], np.int32)

    @cached_property
    def max_tokens(self) -> int:
        """Tokens in the longest sentence."""
        longest = self._clause_tokens[0].shape[1]
        if self.form == "single":
            return longest
        if self.form == "each":
            lengths = self._clause_tokens[1][:-1]
            first = self._radices[1]
            return int(lengths[:first].max() + 1 + lengths[first:].max())
        return 2 * longest + (1 if self.form == "and" else 2)

    @cached_property
    def navigation_counts(self) -> tuple[int, ...]:
        """The numbers of navigations a sentence can need, ascending."""
        single = {1 if kind != "putnext" else 2 for kind in self.kinds}
        if self.form == "single":
            return tuple(sorted(single))
        if self.form == "each":
            return (sum(1 if kind != "putnext" else 2 for kind in self.kinds),)
        return tuple(sorted({a + b for a in single for b in single}))

    @property
    def mean_navigations(self) -> float:
        """Of a sentence whose clauses are of uniformly drawn kinds."""
        per_clause = [1 if kind != "putnext" else 2 for kind in self.kinds]
        if self.form == "each":
            return float(sum(per_clause))
        return sum(per_clause) / len(per_clause) * (1 if self.form == "single" else 2)

    def is_valid(self, ids: np.ndarray) -> np.ndarray:
        """Which ids name an instruction (host): no clause puts an object next to its own class,
        and a class has the same article throughout."""
        _, first, second = self.split(np.asarray(ids))
        valid = self._clause_possible[first] & self._clause_possible[second]
        for i in range(2):
            for j in range(2):
                classes_a, classes_b = (
                    self._clause_classes[first, i],
                    self._clause_classes[second, j],
                )
                articles_a, articles_b = (
                    self._clause_articles[first, i],
                    self._clause_articles[second, j],
                )
                same = (classes_a == classes_b) & (classes_a > 0)
                valid &= ~(same & (articles_a != articles_b))
        return valid

    def decode(self, ids: Any) -> Instruction:
        """Ids int32[...] to the verifier's arrays (traced)."""
        form, first, second = self.split(ids)
        clause = jnp.stack([first, second], axis=-1)
        return Instruction(
            form=jnp.asarray(form, jnp.int32),
            kinds=jnp.asarray(self._clause_kinds)[clause],
            objects=jnp.asarray(self._clause_classes)[clause],
            articles=jnp.asarray(self._clause_articles)[clause],
        )

    def navigations(self, ids: Any) -> Array:
        """Navigations each instruction needs, int32[...] (traced)."""
        _, first, second = self.split(ids)
        needed = np.array([clause.navigations for clause in self.clauses] + [0], np.int32)
        return jnp.asarray(needed)[first] + jnp.asarray(needed)[second]

    def tokens(self, ids: Any) -> Int32[Array, "*batch L"]:
        """Token ids of instructions, padded with 0 to `max_tokens` (traced)."""
        form, first, second = self.split(ids)
        table, lengths = (jnp.asarray(part) for part in self._clause_tokens)
        connector_rows = [tokenise(CONNECTORS[form]) for form in (SINGLE, AND, BEFORE, AFTER)]
        connectors = jnp.asarray([row + [0] * (2 - len(row)) for row in connector_rows])
        connector_lengths = jnp.asarray([len(row) for row in connector_rows])

        position = jnp.arange(self.max_tokens)
        form, first, second = (jnp.asarray(part)[..., None] for part in (form, first, second))
        first_length, second_length = lengths[first], lengths[second]
        in_connector = position - first_length
        in_second = in_connector - connector_lengths[form]
        last = table.shape[1] - 1
        tokens = table[first, jnp.clip(position, 0, last)]
        tokens = jnp.where(
            in_connector >= 0, connectors[form, jnp.clip(in_connector, 0, 1)], tokens
        )
        tokens = jnp.where(in_second >= 0, table[second, jnp.clip(in_second, 0, last)], tokens)
        tokens = jnp.where(in_second >= second_length, 0, tokens)
        return tokens.astype(jnp.int32)

    def sentence(self, instruction_id: int) -> Sentence:
        """The sentence of one id."""
        if not 0 <= int(instruction_id) < self.num_ids:
            raise InputError(f"instruction id {instruction_id} is outside 0..{self.num_ids - 1}")
        form, first, second = self.split(int(instruction_id))
        clauses = [self.clauses[first]] + ([self.clauses[second]] if second >= 0 else [])
        return Sentence(int(form), tuple(clauses))

    def text(self, instruction_id: int) -> str:
        """Minigrid's text of one id."""
        return self.sentence(instruction_id).text

    def find(self, text: str) -> int:
        """The id of a text, or an error when the text is not an instruction of this language."""
        sentence = parse(text)
        forms = self._radices[0]
        ids = [self.clause_ids.get(clause, -1) for clause in sentence.clauses]
        if sentence.form in forms and min(ids) >= 0:
            second = ids[1] if len(ids) == 2 else -1
            found = int(self.compose(sentence.form, ids[0], second))
            in_range = 0 <= found < self.num_ids and self.sentence(found) == sentence
            if in_range and bool(self.is_valid(np.array([found]))[0]):
                return found
        raise InputError(
            f"'{text}' is not an instruction of this task; one is '{self.text(self._example_id)}'"
        )

    @cached_property
    def _example_id(self) -> int:
        ids = np.arange(min(self.num_ids, 4096), dtype=np.int32)
        return int(ids[self.is_valid(ids)][0])
