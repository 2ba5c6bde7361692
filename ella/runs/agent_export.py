"""A trained agent in a small folder of its own, with a card: see `ella.agents`."""

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ella.agents import CARD_FILE
from ella.durable_files import write_durably
from ella.errors import InputError
from ella.runs.config_file import CONFIG_FILE, read_run
from ella.runs.directory import CHECKPOINTS, POLICIES, PROVENANCE_FILE, folder_above
from ella.runs.relevance_file import save_relevance
from ella.runs.restore import has_ella, newest_policy, restore_run
from ella.settings_table import read_table
from ella.shaping.ella import EllaState
from ella.training.policy import Policy
from ella.training.settings import TrainingSettings

Evaluation = Mapping[str, Any]
"""By backend, then by mode: value, low and high end of the success rate; and `episodes`."""


def export_agent(
    run: Path, out: Path, evaluate: Callable[[Policy], Evaluation], *, seed_index: int = 0
) -> None:
    """Write the folder `out` for the newest policy of one of a run's seeds, evaluated once the
    rest of the run has been read and `out` is known to be writable."""
    if (run / CARD_FILE).is_file() and not (run / CHECKPOINTS).is_dir():
        raise InputError(f"{run} is an exported agent already; copy the folder")
    _check_can_be_made(out)
    policy = newest_policy(run, seed_index)
    state = restore_run(run).ella(seed_index)[1] if has_ella(run) else None
    write_agent(out, run, policy, state, evaluate(policy))


def write_agent(
    out: Path, run: Path, policy: Policy, state: EllaState | None, evaluation: Evaluation
) -> None:
    """Write the folder `out`, whole or not at all; settings and provenance are those of `run`."""
    _check_can_be_made(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".unfinished-") as unfinished:
        folder = Path(unfinished) / out.name
        (folder / POLICIES).mkdir(parents=True)
        for name in (CONFIG_FILE, PROVENANCE_FILE):
            if (run / name).is_file():
                shutil.copyfile(run / name, folder / name)
        policy.save(folder / POLICIES / f"seed-{policy.seed}", dtype="float16")
        if state is not None:
            save_relevance(folder, state)
        card = agent_card(run, policy, evaluation)
        write_durably(folder / CARD_FILE, json.dumps(card, indent=2) + "\n")
        folder.rename(out)


def _check_can_be_made(out: Path) -> None:
    """Refuse a place that is taken, or where no folder can be made."""
    try:
        if out.exists() or out.is_symlink():
            raise InputError(f"{out} exists; choose another folder")
        with tempfile.TemporaryDirectory(dir=folder_above(out, "write"), prefix=".unfinished-"):
            pass
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}; choose another folder") from error


def agent_card(run: Path, policy: Policy, evaluation: Evaluation) -> dict[str, Any]:
    """What the agent is and how well it does."""
    _, settings = read_run(run)
    provenance = read_table(run / PROVENANCE_FILE) if (run / PROVENANCE_FILE).is_file() else {}
    return {
        "task": policy.spec.name,
        "method": settings.method.label,
        "trained_with": list(settings.also),
        "started_from": settings.start_from,
        "command": _command(provenance, settings),
        "frames": policy.frames,
        "seed": policy.seed,
        "device": provenance.get("device"),
        "date": provenance.get("date"),
        "success": dict(evaluation),
    }


def _command(provenance: Mapping[str, Any], settings: TrainingSettings) -> str:
    words = provenance.get("command")
    if isinstance(words, list):
        return " ".join(map(str, words))
    return f"ella train --config {CONFIG_FILE} --frames {settings.frames}"
