"""What a trained run shows besides numbers: a film, and what ELLA held relevant in it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from ella.durable_files import write_durably
from ella.episodes.explanation import explain
from ella.episodes.heatmap import draw_heatmap
from ella.episodes.recording import record_run
from ella.episodes.video import FRAMES_PER_SECOND, write_episode
from ella.errors import InputError
from ella.runs.directory import POLICIES
from ella.runs.restore import has_ella, restore_run

FOLDER = "exhibits"
"""In the directory of a run."""
DONE = ".done"
"""A file that is there, and newer than the policies, once the exhibits are whole."""


def add(run: Path, *, say: Callable[[str], None]) -> None:
    """Give a run that ended its film and, with ELLA, a heat map and what it held relevant to the
    film's instruction, unless it has them. What cannot be shown is told to `say`."""
    folder, policies = run / FOLDER, list((run / POLICIES).glob("*.safetensors"))
    if not policies or _is_newer(folder / DONE, policies):
        return
    say(f"filming {run.name}")
    try:
        recording = record_run(run)
        write_episode(recording.shots, folder / recording.name, "gif", FRAMES_PER_SECOND)
        if has_ella(run):
            restored = restore_run(run)
            draw_heatmap(restored, 0, folder / "relevance.png")
            mission = recording.shots[0].description["mission"]
            found = explain(restored.spec, *restored.ella(0), mission)
            write_durably(folder / "relevance.json", json.dumps(asdict(found), indent=2) + "\n")
        (folder / DONE).touch()
    except (InputError, OSError) as error:
        say(f"warning: {run.name} is shown without exhibits: {error}")


def _is_newer(path: Path, others: Sequence[Path]) -> bool:
    return path.exists() and path.stat().st_mtime >= max(one.stat().st_mtime for one in others)
