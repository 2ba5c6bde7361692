"""`ella explain`: what a trained run calls relevant to an instruction."""

import json
import logging
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from ella import agents
from ella.commands.options import Positional
from ella.errors import InputError, writing_to

logger = logging.getLogger(__name__)

COLUMNS = (
    "relevance: the classifier's probability; relevant: paid for; in D: completed in every "
    "success so far, by the online dataset D that the classifier learns from; oracle: truly "
    "supports the instruction"
)
"""What the table's columns mean."""


@dataclass(frozen=True)
class Arguments:
    """List the low-level instructions that a run's relevance classifier calls relevant to an
    instruction, and those that D, the online dataset of what successes completed, holds for it."""

    run: Annotated[Path, Positional("RUN")]
    """Directory of a run trained with ELLA, of which the newest checkpoint is used, or `agent:NAME`
    (`ella agents` lists them)."""
    instruction: Annotated[str, Positional("INSTRUCTION")]
    """An instruction of the run's task, for example "put the red ball next to the blue box"."""
    seed_index: int = 0
    """Which of the run's seeds, counted from 0."""
    top: int = 12
    """Low-level instructions to list, the most relevant first."""
    heatmap: Path | None = None
    """File for a heat map, for example relevance.png: the relevance of every low-level instruction
    to many high-level ones."""
    json: bool = False
    """Print JSON, with all low-level instructions, instead of a table."""


def run(arguments: Arguments) -> None:
    """Explain and print."""
    from rich.console import Console
    from rich.table import Table

    from ella.episodes.explanation import explain
    from ella.episodes.heatmap import check_picture, draw_heatmap
    from ella.runs.restore import check_has_ella, learned_ella

    # What can be wrong is checked before anything large is read.
    if arguments.top < 1:
        raise InputError(f"--top must be >= 1, got {arguments.top}")
    if arguments.heatmap is not None:
        check_picture(arguments.heatmap)
    folder = agents.located(arguments.run)
    check_has_ella(folder, arguments.seed_index).language.find(arguments.instruction)
    learned = learned_ella(folder, arguments.seed_index)
    logger.info(f"{arguments.run}: {learned.source}")
    found = explain(learned.spec, learned.shaper, learned.state, arguments.instruction)
    if arguments.heatmap is not None:
        with writing_to(arguments.heatmap):
            draw_heatmap(learned, arguments.heatmap)
    if arguments.json:
        sys.stdout.write(json.dumps(asdict(found), indent=2) + "\n")
        return
    seen = "" if found.seen else "; D has no success with this instruction yet"
    table = Table(title=f"{found.instruction}{seen}", caption=COLUMNS, caption_justify="left")
    for name in ("low-level instruction", "relevance", "relevant", "in D", "oracle"):
        table.add_column(name, justify="left" if name == "low-level instruction" else "right")
    for judgement in found.judgements[: arguments.top]:
        table.add_row(
            judgement.text,
            f"{judgement.probability:.3f}",
            _tick(judgement.relevant),
            _tick(judgement.in_dataset),
            _tick(judgement.oracle),
        )
    Console(highlight=False).print(table)


def _tick(value: bool) -> str:
    return "yes" if value else "-"
