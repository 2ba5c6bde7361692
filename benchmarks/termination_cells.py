"""What does a limit on false alarms cost a termination classifier of raw or of one-hot cells?

    python benchmarks/termination_cells.py --tasks pick-maze goto-room --out cells.json

Trains small classifiers as the solvent ELLA does, two minutes each on two cores. On views of random
behaviour the threshold is then raised until a view has no more false alarms than each limit, and on
as many other views what is left is counted (`ella.offline.false_alarms.count_false_alarms`).
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import jax

from ella.durable_files import write_durably
from ella.methods.ella_solvent import ELLASolvent
from ella.networks.settings import TerminationNetworkSettings, Variant
from ella.offline.false_alarms import calibrated, count_false_alarms, ordinary_episodes
from ella.offline.settings import TerminationTrainingSettings
from ella.offline.termination import termination_classifier
from ella.world.tasks import find

LIMITS = (None, 1e-2, 4e-3, 1e-3)
"""False alarms a view; None for the more probable answer."""
VIEWS = 49_152
"""Of random behaviour, half to choose thresholds on and half to count on."""


def main() -> None:
    arguments = _arguments()
    rows: list[dict[str, Any]] = []
    for task in arguments.tasks:
        for cells in arguments.cells:
            for row in measured(task, cells, arguments):
                print(json.dumps(row), flush=True)
                rows.append(row)
                _write(arguments.out, rows)


def measured(task: str, cells: str, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for each limit."""
    settings = _settings(cells, arguments)
    with tempfile.TemporaryDirectory() as cache:
        trained = termination_classifier(find(task), settings, directory=Path(cache))
    language = trained.language
    # Not the views of the classifier's own threshold, which come from its seed.
    views = ordinary_episodes((find(task),), VIEWS, key=jax.random.key(77))
    chosen_on = tuple(part.environments(slice(0, None, 2)) for part in views)
    counted_on = tuple(part.environments(slice(1, None, 2)) for part in views)
    for limit in LIMITS:
        model = replace(trained.model, threshold=None)
        if limit is not None:
            model = calibrated(model, language, chosen_on, limit)
        counted = count_false_alarms(model, language, counted_on)
        yield {"task": task, "cells": cells, "limit": limit, **counted}


def _settings(cells: str, arguments: argparse.Namespace) -> TerminationTrainingSettings:
    width = arguments.width
    return replace(
        ELLASolvent().termination,
        episodes=arguments.episodes,
        batch=512,
        min_steps=arguments.steps,
        max_steps=arguments.steps,
        learning_rate=5e-4,
        seed=arguments.seed,
        network=TerminationNetworkSettings(cells, width, width, head_width=32),
        ordinary_views=1_024,
        false_alarms=0.0,
    )


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    """After every row, so that what was measured is not lost."""
    result = {
        "command": "python benchmarks/termination_cells.py " + " ".join(sys.argv[1:]),
        "date": time.strftime("%Y-%m-%d"),
        "device": jax.devices()[0].device_kind,
        "rows": rows,
    }
    write_durably(path, json.dumps(result, indent=1) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", required=True, help="low-level ones")
    cells = get_args(Variant)
    parser.add_argument("--cells", nargs="+", choices=cells, default=cells)
    parser.add_argument("--episodes", type=int, default=15_000)
    parser.add_argument("--steps", type=int, default=1_500)
    parser.add_argument("--width", type=int, default=48)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
