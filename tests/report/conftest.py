"""Run folders as `ella train` writes them."""

import json

import numpy as np
import pytest

from ella.runs.metrics import MetricsFile
from ella.settings_table import to_json
from ella.training.log_line import LogLine
from ella.training.settings import from_table, to_table
from ella.world import tasks


@pytest.fixture
def write_run():
    """Writes a run whose seeds rise linearly from 0 to full success, each a bit later."""

    def write(
        folder,
        *,
        task="goto-room",
        lines=20,
        until=0.5,
        versions=None,
        together=(),
        measured=(),
        **settings,
    ):
        chosen = from_table({"seeds": 3, "frames": 1_000_000, **settings}, where="test")
        folder.mkdir(parents=True)
        table = {"format_version": 3, "task": to_json(tasks.find(task)), **to_table(chosen)}
        (folder / "config.json").write_text(json.dumps(table))
        provenance = {
            "command": ["/somewhere/ella", "train", task, "--method", chosen.method.name],
            "versions": versions or {"ella": "0.1.0", "jax": "0.10.2"},
            "device": "a device",
            **({"trained_together_with": list(together)} if together else {}),
        }
        (folder / "run.json").write_text(json.dumps(provenance))
        is_ella = "ella" in chosen.method.name
        extra = (*measured, *("decomposition_size", "relevance_accuracy") * is_ella)
        names = ("success_rate", "episodes", *extra)
        file = MetricsFile(folder, names, chosen.seed_numbers)
        file.start(0, 1)
        late = until * (1 + 0.1 * np.arange(chosen.seeds))
        for line in range(1, lines + 1):
            share = line / lines
            values = {name: np.full(chosen.seeds, 0.9) for name in extra}
            values["success_rate"] = np.minimum(1, share / late)
            values["episodes"] = np.full(chosen.seeds, 4.0)
            frames = round(share * chosen.frames)
            file.append(LogLine(10 * line, frames, 30.0 * share, 1000.0, values))
        return folder

    return write
