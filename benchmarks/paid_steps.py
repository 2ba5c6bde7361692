"""For what is an episode of random behaviour paid while everything is still relevant?

    python benchmarks/paid_steps.py [TASK...] [--environments 256] [--out FILE]

Plays high-level tasks at random and judges every view with two termination classifiers: the
published one, and that of the solvent ELLA with small one-hot cells. A step is paid once if it
completes a low-level instruction for the first time in its episode. Counted an episode: steps paid
for something new that the view shows; steps paid for it again under its other article; steps
paid by mistake alone, and those of them in which the agent carries something; and the share of all
steps in which it does. Prints JSON. Classifiers that the cache lacks are trained first.
"""

import argparse
import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from ella.durable_files import write_durably
from ella.methods.ella_solvent import ELLASolvent
from ella.offline.false_alarms import OrdinaryEpisodes, random_episodes
from ella.offline.settings import TerminationTrainingSettings
from ella.offline.termination import TrainedTermination, termination_classifier
from ella.shaping.oracle import low_level_of
from ella.shaping.termination import AGENT_CELL, visible_termination
from ella.world.encoding import EMPTY, NUM_ACTIONS
from ella.world.state import GridObservation
from ella.world.tasks import find

CLASSIFIERS = {
    "published": TerminationTrainingSettings(), "one-hot, solvent": ELLASolvent().termination
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "tasks", nargs="*", default=["unlock-maze", "openpick-maze", "putnext-maze"]
    )
    parser.add_argument("--environments", type=int, default=256)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows = []
    for task in map(find, arguments.tasks):
        played = random_episodes(
            task, arguments.environments, tuple(range(NUM_ACTIONS)), key=jax.random.key(0)
        )
        for name, settings in CLASSIFIERS.items():
            judge = termination_classifier(low_level_of(task), settings)
            rows.append({"task": task.name, "classifier": name, **paid(judge, played)})
    report = {
        "command": "python benchmarks/paid_steps.py " + " ".join(sys.argv[1:]),
        "environments": arguments.environments,
        "rows": rows,
    }
    text = json.dumps(report, indent=1) + "\n"
    print(text, end="")
    if arguments.out is not None:
        write_durably(arguments.out, text)


def paid(judge: TrainedTermination, episodes: OrdinaryEpisodes) -> dict[str, float]:
    """Paid steps an episode, by what they are paid for."""
    images, first = episodes.images, episodes.first
    views = GridObservation(jnp.asarray(images))
    fires = np.asarray(judge.prepared().of_rollout(views))
    flat = GridObservation(jnp.asarray(images.reshape(-1, *images.shape[2:])))
    shown = np.asarray(visible_termination(judge.language)(flat)).reshape(fires.shape)
    meanings = [(clause.kind, clause.phrases[0].object_class) for clause in judge.language.clauses]
    same = np.array([[one == other for other in meanings] for one in meanings])

    carries = images[:, :, *AGENT_CELL, 0] != EMPTY
    names = ("paid", "shown", "shown_again", "by_mistake", "by_mistake_carrying")
    counts = dict.fromkeys(names, 0)
    settled = np.zeros(fires.shape[1:], bool)
    right = np.zeros(fires.shape[1:], bool)
    for begins, fired, true, carrying in zip(first, fires, shown, carries, strict=True):
        settled &= ~begins[:, None]
        right &= ~begins[:, None]
        earned = fired & ~settled
        again = earned & true & (right @ same)
        new = earned & true & ~again
        counts["paid"] += int(earned.any(-1).sum())
        counts["shown"] += int(new.any(-1).sum())
        counts["shown_again"] += int((again.any(-1) & ~new.any(-1)).sum())
        mistaken = earned.any(-1) & ~(earned & true).any(-1)
        counts["by_mistake"] += int(mistaken.sum())
        counts["by_mistake_carrying"] += int((mistaken & carrying).sum())
        settled |= earned
        right |= earned & true
    an_episode = {name: round(count / int(first.sum()), 3) for name, count in counts.items()}
    return {**an_episode, "share_carrying": round(float(carries.mean()), 3)}


if __name__ == "__main__":
    main()
