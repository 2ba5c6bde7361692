"""How the trained policies of a run do alone on fresh levels, kept in the run's folder.

evaluation.json             in this world
evaluation-minigrid.json    in the real minigrid
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ella.durable_files import write_durably
from ella.errors import InputError, is_out_of_memory
from ella.runs.config_file import CONFIG_FILE
from ella.runs.restore import newest_policies
from ella.settings_table import read_table
from ella.training.evaluation import BACKENDS, MODES, Backend, Mode, check_request, evaluate
from ella.training.policy import Policy

logger = logging.getLogger(__name__)

FILES: Mapping[Backend, str] = {
    backend: "evaluation.json" if backend == "ella" else f"evaluation-{backend}.json"
    for backend in BACKENDS
}
LEVELS_SEED = 0
"""Of the levels that runs are compared on."""


@dataclass(frozen=True)
class RunEvaluation:
    """Of all seeds of a run, in one world."""

    episodes: int
    """Levels that each policy played in each mode."""
    seed: int
    """Of the levels."""
    frames: int
    """That each seed was trained for."""
    success: Mapping[Mode, Mapping[int, float]]
    """Success rates by mode and seed."""


def evaluated(
    policies: Sequence[Policy],
    episodes: int,
    *,
    backend: Backend = "ella",
    seed: int = LEVELS_SEED,
) -> dict[str, Any]:
    """Play fresh levels with every policy, once greedily and once with sampled actions: the table
    that `ella eval --json` prints and a run's folder keeps."""
    check_request(episodes, backend, seed)
    rows = []
    for policy in policies:
        for mode in MODES:
            logger.info("seed %d: playing %s", policy.seed, mode)
            played = evaluate(policy, episodes, mode=mode, backend=backend, seed=seed)
            rows.append(
                {
                    "task": policy.spec.name,
                    "seed": policy.seed,
                    "frames": policy.frames,
                    "mode": mode,
                    "success": vars(played.success_rate),
                    "return": vars(played.mean_return),
                    "length": float(played.length.mean()),
                }
            )
    return {"episodes": episodes, "backend": backend, "seed": seed, "results": rows}


def keep_evaluation(run: Path, table: Mapping[str, Any]) -> None:
    """Write what `evaluated` found into a run's folder, in place of what was there."""
    if not (run / CONFIG_FILE).is_file():
        raise InputError(f"{run} is not a run, so nothing can be kept in it")
    write_durably(run / FILES[table["backend"]], json.dumps(table, indent=2) + "\n")


def read_evaluation(run: Path, backend: Backend) -> RunEvaluation | None:
    """What a run's folder keeps; None if there is nothing, an error if it is damaged."""
    path = run / FILES[backend]
    if not path.exists():
        return None
    table = read_table(path)
    success: dict[Mode, dict[int, float]] = {mode: {} for mode in MODES}
    try:
        for row in table["results"]:
            rate = float(row["success"]["value"])
            if not 0 <= rate <= 1:
                raise ValueError
            success[row["mode"]][int(row["seed"])] = rate
        frames = {int(row["frames"]) for row in table["results"]}
        episodes, seed = int(table["episodes"]), int(table["seed"])
        if episodes < 1:
            raise ValueError
        found = RunEvaluation(episodes, seed, min(frames), success)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{path.name} is damaged; ella eval --save writes it again") from error
    if success["greedy"].keys() != success["sampled"].keys() or len(frames) > 1:
        raise InputError(f"{path.name} is not of whole seeds; ella eval --save writes it again")
    return found


def add_evaluation(run: Path, episodes: int) -> None:
    """Evaluate a run that ended, unless its folder keeps at least as many episodes of the same
    policies on the usual levels. A failure is logged as a warning."""
    try:
        policies = newest_policies(run)
        if not _is_kept(run, policies, episodes):
            logger.info("playing %d fresh levels with every policy of %s", episodes, run.name)
            keep_evaluation(run, evaluated(policies, episodes))
    except (InputError, OSError) as error:
        logger.warning("no evaluation of %s: %s", run.name, error)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        logger.warning("no evaluation of %s: out of memory", run.name)


def _is_kept(run: Path, policies: Sequence[Policy], episodes: int) -> bool:
    try:
        found = read_evaluation(run, "ella")
    except InputError:
        return False
    return (
        found is not None
        and found.episodes >= episodes
        and found.seed == LEVELS_SEED
        and {policy.frames for policy in policies} == {found.frames}
        and {policy.seed for policy in policies} == found.success["sampled"].keys()
    )
