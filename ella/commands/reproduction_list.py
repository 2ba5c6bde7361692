"""The list of a figure's runs: what is done, and how long the rest takes."""

import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ella.commands.tables import plain_table, print_whole
from ella.reproduction import figures as reproduction
from ella.reproduction import local_launcher as launch
from ella.runs.planned_run import PlannedRun, seeds_of
from ella.training.throughput import measure_rate

logger = logging.getLogger(__name__)

LEFT_COLUMNS = ("run", "network")
DROPPED_COLUMNS: Sequence[Sequence[str]] = ((), ("network",), ("network", "seeds", "program"))
"""Of the list, in ever narrower terminals."""
NOT_COUNTED = "without compilation and offline stages"


def print_list(
    runs: Sequence[PlannedRun],
    groups: Sequence[Sequence[PlannedRun]],
    scale: str,
    *,
    measure: bool,
    as_json: bool,
) -> None:
    """Print every run and how long the programs of unfinished ones take."""
    seconds = _estimates(groups, runs, measure=measure)
    rows: list[dict[str, Any]] = []
    for planned in runs:
        program = next((i for i, group in enumerate(groups) if planned in group), None)
        progress = launch.run_progress(planned)
        settings = planned.settings
        rows.append(
            {
                "run": planned.directory.name,
                "frames": settings.total_frames,
                "seeds": settings.seeds,
                "network": settings.ppo.network.variant,
                "done": 1.0 if progress.finished else progress.frames / settings.total_frames,
                "program": None if program is None else program + 1,
                "seconds": 0.0 if program is None else seconds[planned.directory],
            }
        )
    known = [row["seconds"] for row in rows if row["seconds"] is not None]
    total = sum(known) if len(known) == len(rows) else None
    if as_json:
        sys.stdout.write(json.dumps({"runs": rows, "seconds": total}, indent=2) + "\n")
        return
    texts = [
        {
            "run": row["run"],
            "frames": f"{row['frames']:,}",
            "seeds": str(row["seeds"]),
            "network": row["network"],
            "done": f"{row['done']:.0%}",
            "program": str(row["program"] or ""),
            "time": "?" if row["seconds"] is None else _clock(row["seconds"]),
        }
        for row in rows
    ]
    tables = []
    for dropped in DROPPED_COLUMNS:
        names = [name for name in texts[0] if name not in dropped]
        cells = [[text[name] for name in names] for text in texts]
        tables.append(plain_table(names, cells, left=LEFT_COLUMNS))
    print_whole(*tables)
    sys.stdout.write(f"\n{scale} scale: {reproduction.SCALES[scale].description}\n")
    sys.stdout.write("frames are of each seed; runs of one program are trained together\n")
    if total is not None:
        sys.stdout.write(f"about {_clock(total)} on this device, {NOT_COUNTED}\n")
        return
    if any(known):
        sys.stdout.write(
            f"about {_clock(sum(known))} on this device, {NOT_COUNTED} and without those marked ?\n"
        )
    sys.stdout.write(
        "?: no run of this folder tells how fast such a network trains; --measure times a moment "
        "of it (minutes on a CPU)\n"
    )


def _estimates(
    groups: Sequence[Sequence[PlannedRun]], runs: Sequence[PlannedRun], *, measure: bool
) -> dict[Path, float | None]:
    """Seconds of each run that is not done, its share of its program's; None where no rate is
    known."""
    found: dict[Path, float | None] = {}
    for index, group in enumerate(groups):
        if measure:
            logger.info("measuring program %d of %d", index + 1, len(groups))
            settings = replace(group[0].settings, seeds=seeds_of(group))
            rate: float | None = measure_rate(group[0].spec, settings)
            logger.info(f"{rate:,.0f} frames a second")
        else:
            rate = launch.known_rate(group, runs)
        for planned in group:
            left = launch.seed_frames_left(planned)
            found[planned.directory] = None if rate is None else left / rate
    return found


def _clock(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 60:
        return f"{seconds:.0f} s"
    if minutes < 120:
        return f"{minutes} min"
    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours / 24:.1f} days"
