"""Which relevance network generalises to instructions that were never solved?

    python benchmarks/relevance_networks.py [--successes 12500] [--out FILE]

Successes are simulated on the missions of a task's levels, so nothing is trained but the relevance
classifier. Missions succeed as often as an agent that explores would solve them: every clause has a
chance by its kind. A success completes every relevant low-level instruction (by the oracle) except
a few that are missed, and irrelevant ones of the objects that happen to lie in the level. Prints
JSON: balanced accuracy on the missions of fresh levels, and on those among them that no success
had. Labels "D" are intersections, "raw" are single successes weighted as in
`ella.shaping.beliefs`.
"""

import argparse
import json
import logging
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ella.networks.relevance import relevance_matrix
from ella.networks.settings import RelevanceNetworkSettings
from ella.shaping import relevance_dataset, relevance_training
from ella.shaping.low_level import low_level_language, low_level_tasks
from ella.shaping.oracle import oracle_relevance
from ella.shaping.relevance import LearnedRelevance
from ella.shaping.relevance_training import Decompositions
from ella.shaping.settings import RelevanceSettings, RelevanceTrainingSettings
from ella.world import levels
from ella.world.state import OPEN_DOOR, PICK_UP, PUT_NEXT
from ella.world.tasks import TaskSpec, find

logger = logging.getLogger(__name__)

SOLVED = {OPEN_DOOR: 0.5, PICK_UP: 0.2, PUT_NEXT: 0.03}
"""Chance that a clause of each kind is carried out."""
MISSED = 0.02
"""Chance that a completed low-level instruction is not noticed."""
PRESENT, VISITED = 8, 0.3
"""Other objects in a level, and the chance that a success completes something with each."""
VALIDATION = 2048
"""Fresh levels that accuracy is measured on."""
GRU, WINDOWS = RelevanceNetworkSettings(), RelevanceNetworkSettings(comparison="windows")


class Successes:
    """Simulated successes, in order. Host arrays."""

    def __init__(self, spec: TaskSpec, count: int, seed: int, one_article: bool = False):
        rng = np.random.default_rng(seed)
        self.spec = spec
        self.low = low_level_language(low_level_tasks(spec), one_article)
        clauses = spec.language.clauses
        chance = np.array([SOLVED[clause.kind] for clause in clauses] + [1.0])
        found: list[np.ndarray] = []
        while sum(map(len, found)) < count:
            key = jax.random.fold_in(jax.random.key(seed), len(found))
            ids = np.asarray(levels.generate(spec, key, 8192).instruction_id)
            _, first, second = spec.language.split(ids)
            found.append(ids[rng.random(len(ids)) < chance[first] * chance[second]])
        self.ids = np.concatenate(found)[:count].astype(np.int32)
        truth = np.asarray(oracle_relevance(spec, self.ids, self.low))
        # Both articles of an object fire together, as one view cannot tell them apart.
        meanings = [clause.phrases[0].object_class for clause in self.low.clauses]
        classes, of_class = np.unique(meanings, return_inverse=True)
        visited = rng.random((count, len(classes))) < PRESENT / len(classes) * VISITED
        self.completed = (truth | visited[:, of_class]) & (rng.random(truth.shape) >= MISSED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", default="sequence-maze")
    parser.add_argument("--successes", type=int, default=12_500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()

    spec = find(arguments.task)
    successes = Successes(spec, arguments.successes, arguments.seed)
    few, some = (min(number, arguments.successes) for number in (300, 1_400))
    every = arguments.successes
    rows = [
        compare(successes, *what, seed=arguments.seed)
        for what in (
            ("windows", WINDOWS, "D", every, 200),
            ("windows", WINDOWS, "raw", every, 200),
            ("windows", WINDOWS, "raw", every, 1000),
            ("windows", WINDOWS, "D", few, 200),
            ("windows", WINDOWS, "raw", few, 200),
            ("windows", WINDOWS, "D", some, 200),
            ("windows", WINDOWS, "raw", some, 200),
            ("GRU + L1", GRU, "D", every, 1500),
            ("GRU + L1", GRU, "D", few, 200),
        )
    ]
    report = {
        "task": spec.name,
        "simulated": {
            "successes": every,
            "different_missions": len(np.unique(successes.ids)),
            "clause_solved": {"open": SOLVED[OPEN_DOOR], "pickup": SOLVED[PICK_UP],
                              "putnext": SOLVED[PUT_NEXT]},
            "missed": MISSED,
            "visited": VISITED,
            "seed": arguments.seed,
        },
        "device": jax.devices()[0].device_kind,
        "rows": rows,
    }  # fmt: skip
    text = json.dumps(report, indent=2)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n")


def compare(
    successes: Successes,
    name: str,
    network: RelevanceNetworkSettings,
    labels: str,
    count: int,
    steps: int,
    *,
    seed: int,
) -> dict[str, Any]:
    """Train one network on the first `count` successes, from where it starts in training."""
    spec, low = successes.spec, successes.low
    training = RelevanceTrainingSettings(max_steps=steps)
    settings = RelevanceSettings(network, training)
    if network.comparison == "windows":
        training = replace(training, max_initial_steps=20)
        settings = RelevanceSettings(network, training, max_initial_rounds=100)
    relevance = LearnedRelevance(spec, settings, low).ready_to_learn()
    ids, completed = jnp.asarray(successes.ids[:count]), jnp.asarray(successes.completed[:count])
    started = time.perf_counter()
    begin = jax.jit(lambda key: relevance.init(key=key))(jax.random.key(seed))
    jax.block_until_ready(begin)
    begun = time.perf_counter()
    dataset = relevance_dataset.record(
        relevance_dataset.empty(spec.language.num_ids, low.num_ids),
        ids, completed, jnp.ones(count, bool),
    )  # fmt: skip

    share = float(np.mean(successes.completed[:count]))
    shift = np.log((1 - share) / share) if labels == "raw" else 0.0

    @jax.jit
    def learned(learner: Any, dataset: Any, key: jax.Array) -> Any:
        sample_key, train_key = jax.random.split(key)
        rows, used, relevant = ids, jnp.ones(count, bool), completed
        if labels == "D":
            rows, used = relevance_dataset.sample_seen(dataset, 2048, key=sample_key)
            relevant = relevance_dataset.decompositions(dataset, rows, low.num_ids)
        tokens_of = spec.language.tokens
        data = Decompositions(
            tokens=tokens_of(rows),
            relevant=relevant,
            used=used,
            weights=None if labels == "D" else 0.5 / jnp.array([1 - share, share]),
        )
        return relevance_training.learn(
            learner, data, relevance.low_tokens, training, key=train_key
        )

    learner = jax.block_until_ready(learned(begin, dataset, jax.random.key(seed + 1)))
    found = {
        "network": name,
        "labels": labels,
        "successes": count,
        "steps": steps,
        **accuracies(relevance, learner, dataset, float(shift)),
        "starts_with_everything": not any(
            bool(applies) for applies in relevance.start_problems(begin).values()
        ),
        "seconds": {
            "start": round(begun - started, 1),
            "learn": round(time.perf_counter() - begun, 1),
        },
    }
    logger.info(json.dumps(found))
    return found


def accuracies(
    relevance: LearnedRelevance,
    learner: Any,
    dataset: relevance_dataset.RelevanceDataset,
    shift: float,
) -> dict[str, float]:
    """Balanced accuracy on missions of fresh levels and on the never solved ones among them;
    weighting has added `shift` to logits."""
    spec = relevance.spec
    assert spec is not None
    ids = levels.generate(spec, jax.random.key(10_001), VALIDATION).instruction_id
    tokens, low_tokens = spec.language.tokens(ids), relevance.low_tokens
    logs = eqx.filter_jit(relevance_matrix)(learner.classifier, tokens, low_tokens)[0]
    called = np.asarray(logs) > -np.logaddexp(0, -shift)
    truth = np.asarray(oracle_relevance(spec, ids, relevance.low_level))
    never = ~np.asarray(relevance_dataset.is_seen(dataset, ids))

    def balanced(rows: np.ndarray) -> tuple[float, float]:
        return float(called[rows][truth[rows]].mean()), float(1 - called[rows][~truth[rows]].mean())

    recall, specificity = balanced(np.ones(len(never), bool))
    never_recall, never_specificity = balanced(never)
    return {
        "levels": round((recall + specificity) / 2, 4),
        "levels_recall": round(recall, 4),
        "never_solved": round((never_recall + never_specificity) / 2, 4),
        "never_solved_recall": round(never_recall, 4),
        "share_never_solved": round(float(never.mean()), 4),
    }


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logger.setLevel(logging.INFO)
    main()
