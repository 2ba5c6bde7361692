"""The low-level language: the instructions ELLA can pay for, one channel each.

By default it is the language of the task's low-level task. Two changes are possible, alone or
together: the languages of several tasks as one, and one instruction instead of two where only the
article differs ("go to a red ball", "go to the red ball"), since one view cannot tell them apart.
"""

from dataclasses import replace

import numpy as np

from ella.errors import InputError
from ella.shaping.oracle import low_level_of, require_single_clauses
from ella.world.grammar import Clause
from ella.world.language import Language
from ella.world.mixtures import Task
from ella.world.tasks import TaskSpec


def low_level_tasks(task: Task, names: tuple[str, ...] = ()) -> tuple[TaskSpec, ...]:
    """The tasks whose instructions support `task`: those named, or the task's own."""
    if not names:
        return (low_level_of(task),)
    if len(set(names)) < len(names):
        raise InputError(f"low-level tasks {', '.join(names)}: one is named twice")
    return tuple(require_single_clauses(task.find(name)) for name in names)


def low_level_language(tasks: tuple[TaskSpec, ...], one_article: bool = False) -> Language:
    """The language of several low-level tasks together, in the order of their action kinds.

    With `one_article` every instruction says 'the' and stands for both articles.
    """
    languages = [task.language for task in tasks]
    kinds = dict.fromkeys(kind for language in languages for kind in language.kinds)
    together = Language(
        kinds=tuple(kinds),
        form="single",
        movable_articles_vary=any(language.movable_articles_vary for language in languages),
        num_doors=max(language.num_doors for language in languages),
    )
    if not one_article:
        return together
    # One door needs no second article.
    doors = min(together.num_doors, 1)
    return replace(together, movable_articles_vary=False, num_doors=doors)


def channels_of(language: Language, low: Language) -> np.ndarray:
    """int32[language.num_ids]: the instruction of `low` that each instruction of one of its tasks
    stands for."""
    return np.array([_channel(clause, low) for clause in language.clauses], np.int32)


def _channel(clause: Clause, low: Language) -> int:
    if clause in low.clause_ids:
        return low.clause_ids[clause]
    phrases = tuple(replace(phrase, article=0) for phrase in clause.phrases)
    return low.clause_ids[Clause(clause.kind, phrases)]
