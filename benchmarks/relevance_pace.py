"""How many successes does the relevance classifier need before it is right?

    python benchmarks/relevance_pace.py [--seeds 8] [--out FILE]

Successes are simulated as in `relevance_networks`; the classifier starts as in training, with
everything relevant, and is updated after so many of them. Prints JSON: its mean precision and
recall over seeds on the missions of levels after each update, for the published network and for
windows at several learning rates. Windows learn one label per object, as in the solvent ELLA.
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from relevance_networks import GRU, WINDOWS, Successes

from ella.durable_files import write_durably
from ella.methods.ella_solvent import ELLASolvent
from ella.networks.settings import RelevanceNetworkSettings
from ella.shaping import relevance_dataset
from ella.shaping.low_level import low_level_language, low_level_tasks
from ella.shaping.relevance import LearnedRelevance, learn_from_dataset
from ella.shaping.settings import RelevanceSettings
from ella.world.tasks import TaskSpec, find

UPDATES_AFTER = {
    "unlock-maze": (8, 30, 60, 120, 300),
    "openpick-maze": (8, 30, 60, 120, 300),
    "putnext-room": (10, 40, 80, 160, 300, 600),
}
"""Successes before each update, about as many as training has."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=list(UPDATES_AFTER), choices=UPDATES_AFTER)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows = [
        row
        for task in arguments.tasks
        for network, learning_rate in ((GRU, 1e-4), (WINDOWS, 1e-4), (WINDOWS, 1e-3))
        for row in pace(find(task), network, learning_rate, arguments.seeds)
    ]
    report = {
        "command": "python benchmarks/relevance_pace.py " + " ".join(sys.argv[1:]),
        "seeds": arguments.seeds,
        "device": jax.devices()[0].device_kind,
        "rows": rows,
    }
    text = json.dumps(report, indent=1) + "\n"
    print(text, end="")
    if arguments.out is not None:
        write_durably(arguments.out, text)


def pace(
    spec: TaskSpec, network: RelevanceNetworkSettings, learning_rate: float, seeds: int
) -> list[dict[str, Any]]:
    """A row for each update."""
    windows = network.comparison == "windows"
    settings = ELLASolvent().relevance if windows else RelevanceSettings()
    training = replace(settings.training, learning_rate=learning_rate)
    settings = replace(settings, network=network, training=training)
    low = low_level_language(low_level_tasks(spec), one_article=windows)
    relevance = LearnedRelevance(spec, settings, low).ready_to_learn()
    after = UPDATES_AFTER[spec.name]
    start = jax.jit(lambda key: relevance.init(key=key))

    @jax.jit
    def record(dataset: Any, ids: jax.Array, completed: jax.Array) -> Any:
        return relevance_dataset.record(dataset, ids, completed, jnp.ones(ids.shape, bool))

    @jax.jit
    def update(learner: Any, dataset: Any, key: jax.Array) -> tuple[Any, Any]:
        learner = learn_from_dataset(
            settings, learner, dataset, spec.language.tokens, relevance.low_tokens, key=key
        )
        return learner, relevance.validate(learner, dataset)

    def measure(seed: int) -> list[tuple[float, float]]:
        successes = Successes(spec, max(after), seed, one_article=windows)
        key = jax.random.key(seed)
        learner = start(key)
        dataset = relevance_dataset.empty(spec.language.num_ids, low.num_ids)
        measured, begin = [], 0
        for count in after:
            ids, completed = successes.ids[begin:count], successes.completed[begin:count]
            dataset = record(dataset, ids, completed)
            learner, found = update(learner, dataset, jax.random.fold_in(key, count))
            precision, recall = found["relevance_precision"], found["relevance_recall"]
            measured.append((float(precision.total), float(recall.total)))
            begin = count
        return measured

    found = np.mean([measure(seed) for seed in range(seeds)], axis=0)
    return [
        {
            "task": spec.name,
            "network": "windows" if windows else "GRU + L1",
            "learning_rate": learning_rate,
            "successes": count,
            "precision": round(float(precision), 4),
            "recall": round(float(recall), 4),
        }
        for count, (precision, recall) in zip(after, found, strict=True)
    ]


if __name__ == "__main__":
    main()
