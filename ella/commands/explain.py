"""`ella explain`: what a trained run calls relevant to an instruction."""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from rich.console import Console
from rich.table import Table

from ella.commands.options import Positional
from ella.episodes.explanation import explain, relevance_map
from ella.errors import InputError
from ella.runs.restore import RestoredRun, restore_run
from ella.shaping.oracle import low_level_of

MAX_ROWS = 60
"""High-level instructions in the heat map, at most."""


@dataclass(frozen=True)
class Arguments:
    """Which low-level instructions a run's relevance classifier calls relevant to an instruction,
    and what its online dataset D holds for it."""

    run: Annotated[Path, Positional("RUN")]
    """Directory of a run trained with ella."""
    instruction: Annotated[str, Positional("INSTRUCTION")]
    """An instruction of the run's task, for example "put the red ball next to the blue box"."""
    seed_index: int = 0
    """Which of the run's seeds, counted from 0."""
    top: int = 12
    """Low-level instructions to list, the most relevant first."""
    heatmap: Path | None = None
    """File for a picture of the relevance of all low-level instructions to many high-level ones."""
    json: bool = False
    """Print JSON, with all low-level instructions, instead of a table."""


def run(arguments: Arguments) -> None:
    """Explain and print."""
    restored = restore_run(arguments.run)
    shaper, state = restored.ella(arguments.seed_index)
    found = explain(restored.spec, shaper, state, arguments.instruction)
    if arguments.heatmap is not None:
        draw_heatmap(restored, arguments.seed_index, arguments.heatmap)
    if arguments.json:
        sys.stdout.write(json.dumps(asdict(found), indent=2) + "\n")
        return
    seen = "" if found.seen else "; D has no success with this instruction yet"
    table = Table(title=f"{found.instruction}{seen}")
    for name in ("low-level instruction", "relevance", "relevant", "in D", "oracle"):
        table.add_column(name, justify="left" if name == "low-level instruction" else "right")
    for judgement in found.judgements[: arguments.top]:
        table.add_row(
            judgement.text,
            f"{judgement.probability:.3f}",
            _tick(judgement.probability > 0.5),
            _tick(judgement.in_dataset),
            _tick(judgement.oracle),
        )
    Console(highlight=False).print(table)


def draw_heatmap(restored: RestoredRun, seed_index: int, path: Path) -> None:
    """Relevance of every low-level instruction to evenly spaced high-level ones, as a picture."""
    from matplotlib.figure import Figure

    language, low = restored.spec.language, low_level_of(restored.spec).language
    ids = np.unique(np.linspace(0, language.num_ids - 1, 4 * MAX_ROWS).astype(np.int32))
    ids = ids[language.is_valid(ids)]
    ids = ids[np.unique(np.linspace(0, len(ids) - 1, min(MAX_ROWS, len(ids))).astype(int))]
    shaper, state = restored.ella(seed_index)
    probability = relevance_map(shaper, state, ids)
    figure = Figure(figsize=(4 + 0.16 * low.num_ids, 3 + 0.16 * len(ids)), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(probability, vmin=0, vmax=1, aspect="auto", cmap="viridis")
    axes.set_xticks(range(low.num_ids), [low.text(i) for i in range(low.num_ids)], rotation=90)
    axes.set_yticks(range(len(ids)), [language.text(int(i)) for i in ids])
    axes.tick_params(labelsize=6)
    axes.set_xlabel("low-level instruction")
    axes.set_ylabel("instruction")
    figure.colorbar(image, label="probability of relevance")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        figure.savefig(path, dpi=120)
    except ValueError as error:
        raise InputError(f"cannot draw {path}: {error}") from error


def _tick(value: bool) -> str:
    return "yes" if value else "-"
