"""A task's language: ids, texts, tokens and the verifier's arrays.

A language is a mixed-radix number system over the grammar (`ella.world.grammar`), so an
instruction's id, its text and its arrays are computed from one another without a dictionary of
sentences. Some ids name no instruction (putting an object next to its own class, calling one class
both "a" and "the"): `is_valid` tells.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32

from ella.errors import InputError
from ella.world.encoding import COLOUR_NAMES, DOOR, MOVABLE_TYPES
from ella.world.grammar import CLAUSE_KINDS, CONNECTORS, Clause, Phrase, Sentence, parse, tokenise
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


class AbstractLanguage(ABC):
    """Every instruction of a task or of several, numbered.

    An id is split into a sentence form and one or two clauses, each a row of `clauses`; everything
    else is read off tables of clauses.
    """

    kinds: tuple[str, ...]
    """Action kinds of its clauses."""

    @property
    @abstractmethod
    def has_second_clauses(self) -> bool:
        """Whether some sentence has two clauses."""

    @property
    @abstractmethod
    def clauses(self) -> tuple[Clause, ...]:
        """All clauses by clause id."""

    @property
    @abstractmethod
    def num_ids(self) -> int:
        """Size of the id space; a few ids name no instruction (see `is_valid`)."""

    @property
    @abstractmethod
    def max_tokens(self) -> int:
        """Tokens in the longest sentence."""

    @abstractmethod
    def split(self, ids: Any) -> tuple[Any, Any, Any]:
        """(form, first clause id, second clause id) of ids; the second is -1 where there is none.

        Works on integers, NumPy arrays and traced arrays alike.
        """

    @abstractmethod
    def find(self, text: str) -> int:
        """The id of a text, or an error when the text is not an instruction of this language."""

    @property
    def num_clauses(self) -> int:
        return len(self.clauses)

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
        return self._tokens(ids, jnp)

    @cached_property
    def all_tokens(self) -> np.ndarray:
        """int32[num_ids, max_tokens]: the tokens of every id (host)."""
        return np.asarray(self._tokens(np.arange(self.num_ids), np))

    def _tokens(self, ids: Any, xp: Any) -> Any:
        """As `tokens`, computed by NumPy or by its namesake of JAX."""
        form, first, second = self.split(ids)
        table, lengths = (xp.asarray(part) for part in self._clause_tokens)
        connector_rows = [tokenise(CONNECTORS[form]) for form in (SINGLE, AND, BEFORE, AFTER)]
        connectors = xp.asarray([row + [0] * (2 - len(row)) for row in connector_rows])
        connector_lengths = xp.asarray([len(row) for row in connector_rows])

        position = xp.arange(self.max_tokens)
        form, first, second = (xp.asarray(part)[..., None] for part in (form, first, second))
        first_length, second_length = lengths[first], lengths[second]
        in_connector = position - first_length
        in_second = in_connector - connector_lengths[form]
        last = table.shape[1] - 1
        tokens = table[first, xp.clip(position, 0, last)]
        tokens = xp.where(in_connector >= 0, connectors[form, xp.clip(in_connector, 0, 1)], tokens)
        tokens = xp.where(in_second >= 0, table[second, xp.clip(in_second, 0, last)], tokens)
        tokens = xp.where(in_second >= second_length, 0, tokens)
        return tokens.astype(xp.int32)

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

    @cached_property
    def _example_id(self) -> int:
        ids = np.arange(min(self.num_ids, 4096), dtype=np.int32)
        return int(ids[self.is_valid(ids)][0])


@dataclass(frozen=True)
class Language(AbstractLanguage):
    """Every instruction of one task, numbered."""

    kinds: tuple[str, ...]
    form: str
    movable_articles_vary: bool
    num_doors: int

    @property
    def has_second_clauses(self) -> bool:
        return self.form != "single"

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


@dataclass(frozen=True)
class LanguageUnion(AbstractLanguage):
    """The languages of several tasks one after the other: a part's ids follow the ids of the parts
    before it, so that the first part's are its own. A sentence of two parts has two ids."""

    parts: tuple[Language, ...]

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """The first id of every part."""
        return tuple(accumulate((part.num_ids for part in self.parts[:-1]), initial=0))

    @cached_property
    def kinds(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(dict.fromkeys(kind for part in self.parts for kind in part.kinds))

    @property
    def has_second_clauses(self) -> bool:
        return any(part.has_second_clauses for part in self.parts)

    @cached_property
    def clauses(self) -> tuple[Clause, ...]:
        return tuple(clause for part in self.parts for clause in part.clauses)

    @property
    def num_ids(self) -> int:
        return sum(part.num_ids for part in self.parts)

    @property
    def max_tokens(self) -> int:
        return max(part.max_tokens for part in self.parts)

    def part_of(self, ids: Int32[Array, "*batch"]) -> Int32[Array, "*batch"]:
        """Which part each id belongs to (traced)."""
        later = [(ids >= offset).astype(jnp.int32) for offset in self.offsets[1:]]
        return sum(later, jnp.zeros_like(ids))

    def split(self, ids: Any) -> tuple[Any, Any, Any]:
        where = (jnp if isinstance(ids, jax.Array) else np).where
        form, first, second = self.parts[0].split(ids)
        before = self.parts[0].num_clauses
        for offset, part in zip(self.offsets[1:], self.parts[1:], strict=True):
            part_form, part_first, part_second = part.split(ids - offset)
            is_later = ids >= offset
            form = where(is_later, part_form, form)
            first = where(is_later, part_first + before, first)
            shifted = where(part_second < 0, part_second, part_second + before)
            second = where(is_later, shifted, second)
            before += part.num_clauses
        return form, first, second

    def find(self, text: str) -> int:
        for offset, part in zip(self.offsets, self.parts, strict=True):
            try:
                return offset + part.find(text)
            except InputError as error:
                refused = error
        raise refused
