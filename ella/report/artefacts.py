"""Artefacts in run directories: videos, images, explanations of instructions."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ella.report.runs import RUN_FILES, Run

MAX_BYTES = 6_000_000
"""Of one video or image on a page."""
MAX_TOTAL_BYTES = 60_000_000
"""Of all videos and images on a page."""
_SIGNATURES = {".gif": (b"GIF8", "image/gif"), ".png": (b"\x89PNG", "image/png")}


@dataclass(frozen=True)
class EmbeddedImage:
    """A video or image, ready to stand in a page."""

    name: str
    address: str
    """A data: address."""


@dataclass(frozen=True)
class StoredExplanation:
    """What a run called relevant to an instruction: a file of `ella explain --json`."""

    name: str
    instruction: str
    judgements: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Artefacts:
    """Those of one run."""

    run: Run
    images: tuple[EmbeddedImage, ...]
    explanations: tuple[StoredExplanation, ...]


def collect(runs: Sequence[Run]) -> tuple[list[Artefacts], list[str]]:
    """The artefacts of the runs that have any, and warnings about what is left out."""
    found: list[Artefacts] = []
    warnings: list[str] = []
    room = MAX_TOTAL_BYTES
    for run in runs:
        images = []
        videos = {path.with_suffix("") for path in run.files((".gif",))}
        for path in run.files(tuple(_SIGNATURES)):
            if path.suffix == ".png" and path.with_suffix("") in videos:
                continue  # The contact sheet of a video that is shown.
            signature, kind = _SIGNATURES[path.suffix]
            try:
                size = path.stat().st_size
                if size > min(MAX_BYTES, room):
                    warnings.append(f"{path}: too large for the page ({size / 1e6:.1f} MB)")
                    continue
                content = path.read_bytes()
            except OSError as error:
                warnings.append(f"{path}: cannot be read ({error.strerror})")
                continue
            if not content.startswith(signature):
                warnings.append(f"{path}: damaged, not shown")
                continue
            room -= size
            address = f"data:{kind};base64,{base64.b64encode(content).decode()}"
            images.append(EmbeddedImage(str(path.relative_to(run.path)), address))
        explanations = tuple(
            explanation
            for path in run.files((".json",))
            if path.name not in RUN_FILES
            for explanation in [_read_explanation(path, run.path, warnings)]
            if explanation is not None
        )
        if images or explanations:
            found.append(Artefacts(run, tuple(images), explanations))
    return found, warnings


def _read_explanation(path: Path, folder: Path, warnings: list[str]) -> StoredExplanation | None:
    """An explanation, or None if the file is damaged or something else."""
    try:
        table = json.loads(path.read_text())
    except OSError as error:
        warnings.append(f"{path}: cannot be read ({error.strerror})")
        return None
    except (ValueError, RecursionError):
        warnings.append(f"{path}: damaged, not shown")
        return None
    if not isinstance(table, dict) or not isinstance(table.get("instruction"), str):
        return None
    judgements = table.get("judgements")
    if not isinstance(judgements, list):
        return None
    rows = tuple(row for row in judgements if _is_judgement(row))
    if len(rows) < len(judgements):
        warnings.append(f"{path}: {len(judgements) - len(rows)} damaged judgement(s) not shown")
    return StoredExplanation(str(path.relative_to(folder)), table["instruction"], rows)


def _is_judgement(row: Any) -> bool:
    if not isinstance(row, dict) or not isinstance(row.get("text"), str):
        return False
    probability = row.get("probability")
    return isinstance(probability, int | float) and 0 <= probability <= 1
