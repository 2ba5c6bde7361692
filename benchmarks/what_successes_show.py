"""What the termination classifier sees of the relevant instructions in a trained agent's successes.

    python benchmarks/what_successes_show.py RUN [--episodes 120]

D keeps of an instruction's decomposition only what every success showed, so a relevant low-level
instruction that some successes do not show is lost. For every relevant instruction (by the
oracle) of every success: was it seen before the last action, only in the state after it, or not
at all? Prints JSON.
"""

import argparse
import json
import logging
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ella.episodes.trained import trained_actor
from ella.errors import InputError
from ella.methods.ella import EllaMethod
from ella.offline.termination import find_termination
from ella.runs.config_file import read_run
from ella.runs.policies import load_policy
from ella.shaping.low_level import low_level_tasks
from ella.shaping.oracle import oracle_relevance
from ella.world import compiled, make
from ella.world.language import Language
from ella.world.state import GridObservation
from ella.world.tasks import TaskSpec

logger = logging.getLogger(__name__)

BEFORE, AFTER, NEVER = "before the last action", "only after the last action", "not at all"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--episodes", type=int, default=120)
    parser.add_argument("--seed-index", type=int, default=0)
    arguments = parser.parse_args()

    spec, settings = read_run(arguments.run)
    env = make(spec)
    policy = load_policy(arguments.run, arguments.seed_index)
    methods = [part for part in settings.method.parts if isinstance(part, EllaMethod)]
    if not methods:
        raise InputError(f"{arguments.run} was trained without a termination classifier")
    classifier = find_termination(
        low_level_tasks(spec, methods[0].low_level),
        methods[0].termination,
        examples=methods[0].examples,
    )
    terminates = eqx.filter_jit(classifier.prepared())
    views_at_once = max(spec.horizons) + 1

    seen: dict[str, Counter[str]] = defaultdict(Counter)
    successes = 0
    for episode in range(arguments.episodes):
        if episode % 10 == 0:
            logger.info("episode %d of %d", episode, arguments.episodes)
        key = jax.random.key(1000 + episode)
        timestep, agent = compiled.reset(env, key), trained_actor(policy, key)
        images = [np.asarray(timestep.observation.image)]
        while not (timestep.terminated or timestep.truncated):
            timestep = compiled.step(env, timestep.state, np.int32(agent(timestep)))
            images.append(np.asarray(timestep.observation.image))
        if not timestep.terminated:
            continue
        successes += 1
        padded = np.zeros((views_at_once, *images[0].shape), images[0].dtype)
        padded[: len(images)] = images
        found = np.asarray(terminates(GridObservation(padded)))[: len(images)]
        instruction = timestep.observation.instruction_id
        for text, when in relevant_seen(spec, classifier.language, instruction, found):
            seen[kind(text)][when] += 1

    report = {
        "run": arguments.run.name,
        "seed_index": arguments.seed_index,
        "episodes": arguments.episodes,
        "successes": successes,
        "relevant_instructions_seen": {
            name: {when: counts[when] / counts.total() for when in (BEFORE, AFTER, NEVER)}
            | {"cases": counts.total()}
            for name, counts in sorted(seen.items())
        },
    }
    print(json.dumps(report, indent=2))


def relevant_seen(
    task: TaskSpec, low_level: Language, instruction: Any, found: np.ndarray
) -> list[tuple[str, str]]:
    """The low-level instructions that are relevant to an episode's instruction, and when each was
    seen; `found` bool[T, L] is what the classifier says of each view."""
    relevant = np.asarray(oracle_relevance(task, instruction, low_level))
    return [
        (
            low_level.text(int(number)),
            BEFORE if found[:-1, number].any() else AFTER if found[-1, number] else NEVER,
        )
        for number in np.flatnonzero(relevant)
    ]


def kind(text: str) -> str:
    """'pick up the red key' -> 'pick up an object'."""
    verb, thing = re.split(" (?:the|a) ", text)
    return f"{verb} {'a door' if thing.endswith('door') else 'an object'}"


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("ella").setLevel(logging.INFO)
    logger.setLevel(logging.INFO)
    try:
        main()
    except InputError as error:
        logger.error(error)
        sys.exit(2)
