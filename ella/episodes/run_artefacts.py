"""Artefacts of a trained run: a video, and what ELLA called relevant in it."""

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ella.durable_files import write_durably
from ella.episodes.explanation import explain
from ella.episodes.heatmap import draw_heatmap
from ella.episodes.recording import record_run
from ella.episodes.video import FRAMES_PER_SECOND, write_episode
from ella.errors import InputError
from ella.runs.directory import POLICIES
from ella.runs.restore import has_ella, learned_ella

FOLDER = "artefacts"
"""In the directory of a run."""
EARLIER_FOLDER = "exhibits"
"""Its name in runs of earlier versions."""
DONE = ".done"
"""A file that is there, and newer than the policies, once the artefacts are complete."""

logger = logging.getLogger(__name__)


def add(run: Path) -> None:
    """Write the video of a run that ended and, with ELLA, a heat map and the explanation of the
    video's instruction, unless they are up to date. A failure is logged as a warning."""
    folder, policies = run / FOLDER, list((run / POLICIES).glob("*.safetensors"))
    made = any(_is_newer(run / name / DONE, policies) for name in (FOLDER, EARLIER_FOLDER))
    if not policies or made:
        return
    logger.info("recording %s", run.name)
    try:
        recording = record_run(run)
        write_episode(recording.frames, folder / recording.name, "gif", FRAMES_PER_SECOND)
        if has_ella(run):
            learned = learned_ella(run)
            draw_heatmap(learned, folder / "relevance.png")
            mission = recording.frames[0].description["mission"]
            found = explain(learned.spec, learned.shaper, learned.state, mission)
            write_durably(folder / "relevance.json", json.dumps(asdict(found), indent=2) + "\n")
        (folder / DONE).touch()
    except (InputError, OSError) as error:
        logger.warning("no artefacts of %s: %s", run.name, error)


def _is_newer(path: Path, others: Sequence[Path]) -> bool:
    return (
        bool(others)
        and path.exists()
        and path.stat().st_mtime >= max(one.stat().st_mtime for one in others)
    )
