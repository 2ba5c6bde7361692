"""What does LEARN's classifier tell from action frequencies?

    python benchmarks/learn_classifier.py [TASK...] [--episodes 2000] [--out FILE]

Judges pairs of fresh expert episodes of low-level tasks with the classifiers that LEARN uses. Half
of the unrelated pairs have random frequencies, which anything recognises that has seen an expert;
the other half have an expert's frequencies on the way to something else, which is what a potential
would have to tell apart. Prints JSON: recall, and specificity on either half. Classifiers that the
cache lacks are trained first, in minutes on a CPU.
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ella.durable_files import write_durably
from ella.offline.action_frequency_examples import ActionFrequencyExamples, expert_examples
from ella.offline.train_action_frequency import action_frequency_classifier, assess
from ella.world.tasks import TaskSpec, find

FRESH = 1_000_003
"""Seed of the episodes, which no training has."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    tasks = ["goto-room", "goto-maze", "opengoto-maze", "pick-maze"]
    parser.add_argument("tasks", nargs="*", default=tasks)
    parser.add_argument("--episodes", type=int, default=2000)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    report = {
        "command": "python benchmarks/learn_classifier.py " + " ".join(sys.argv[1:]),
        "rows": [judged(find(task), arguments.episodes) for task in arguments.tasks],
    }
    text = json.dumps(report, indent=1) + "\n"
    print(text, end="")
    if arguments.out is not None:
        write_durably(arguments.out, text)


def judged(task: TaskSpec, episodes: int) -> dict[str, Any]:
    """How often the classifier of a task is right, by the sort of pair."""
    model = action_frequency_classifier(task).model
    examples = expert_examples(task, episodes, FRESH)
    # Related pairs come first; the unrelated pair of an episode keeps its frequencies or its
    # instruction.
    own, other = np.split(examples.frequencies, 2)
    elsewhere = (own == other).all(axis=1)
    related, unrelated = np.split(np.arange(len(examples.labels)), 2)
    against = {
        "random_frequencies": unrelated[~elsewhere],
        "other_instruction": unrelated[elsewhere],
    }
    found = {
        name: assess(model, task.language, _rows(examples, np.concatenate([related, rows])))
        for name, rows in against.items()
    }
    return {
        "task": task.name,
        "pairs": len(examples.labels),
        "recall": found["random_frequencies"]["recall"],
        **{f"specificity_{name}": each["specificity"] for name, each in found.items()},
    }


def _rows(examples: ActionFrequencyExamples, rows: np.ndarray) -> ActionFrequencyExamples:
    return replace(examples, **{name: values[rows] for name, values in vars(examples).items()})


if __name__ == "__main__":
    main()
