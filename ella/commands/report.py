"""`ella report DIR…`: compare runs in a page and in figures."""

import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ella.commands.options import Positional
from ella.durable_files import write_durably
from ella.errors import InputError, writing_to

if TYPE_CHECKING:
    from ella.report.summary import Summary

PAGE = "index.html"
LONGEST_WAIT = 86_400.0
"""Seconds between two readings, at most: a day."""


@dataclass(frozen=True)
class Arguments:
    """Compare runs: one HTML page that works offline, and figures as PNG and PDF."""

    runs: Annotated[tuple[Path, ...], Positional("DIR...")]
    """Folders of runs, or folders with such folders inside."""
    out: Path = Path("report")
    """Folder for the page and the figures."""
    title: str = "ELLA report"
    """Heading of the page."""
    baseline: str | None = None
    """The method others are compared with; `ppo` by default."""
    margin: float | None = None
    """Areas under the curve that differ by less are equivalent; 0.05 by default."""
    frames: float | None = None
    """Draw and compare the first so many frames of each seed only."""
    watch: bool = False
    """Write the page again and again until interrupted; an open page reloads itself. The figures
    are drawn at the end."""
    every: float = 20.0
    """Seconds between two readings with --watch."""


def run(arguments: Arguments) -> None:
    """Write the page and the figures, and print their paths."""
    from ella.report.figure_files import FOLDER
    from ella.report.figures import write_figures
    from ella.report.summary import check_comparison

    if not arguments.runs:
        raise InputError("name at least one folder of runs")
    if not 0 < arguments.every <= LONGEST_WAIT:
        raise InputError(
            f"--every must be more than 0 and at most {LONGEST_WAIT:g} seconds, "
            f"got {arguments.every:g}"
        )
    if arguments.out.exists() and not arguments.out.is_dir():
        raise InputError(f"{arguments.out} is a file; name a folder")
    check_comparison(_margin(arguments), arguments.frames)
    if arguments.watch:
        _watch(arguments)
    summary = _summarise(arguments)
    for warning in summary.warnings:
        sys.stderr.write(f"{warning}\n")
    with writing_to(arguments.out):
        figures = write_figures(summary, arguments.out / FOLDER)
    page = _write_page(arguments, summary)
    sys.stdout.write(f"wrote {page} and {len(figures)} files in {arguments.out / FOLDER}\n")


def _summarise(arguments: Arguments) -> "Summary":
    from ella.report.summary import summarise

    return summarise(
        arguments.runs,
        baseline=arguments.baseline,
        margin=_margin(arguments),
        frames=arguments.frames,
    )


def _margin(arguments: Arguments) -> float:
    from ella.report.summary import MARGIN

    return MARGIN if arguments.margin is None else arguments.margin


def _watch(arguments: Arguments) -> None:
    """Write the page again and again until interrupted."""
    sys.stdout.write(f"open {arguments.out / PAGE}; it is written again until you press Ctrl-C\n")
    sys.stdout.flush()
    last = ""
    # A shell that starts a job in the background has it ignore Ctrl-C; a watcher must end somehow.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        while True:
            try:
                summary = _summarise(arguments)
                _write_page(arguments, summary, refresh=arguments.every)
            except (InputError, OSError) as error:
                if str(error) != last:
                    sys.stderr.write(f"{error}; waiting\n")
                last = str(error)
            time.sleep(arguments.every)
    except KeyboardInterrupt:
        pass


def _write_page(arguments: Arguments, summary: "Summary", refresh: float | None = None) -> Path:
    from ella.report.page import render

    written = time.strftime("%H:%M:%S") if refresh else ""
    text = render(summary, title=arguments.title, refresh=refresh, written=written)
    # Character references make the file the same in every locale.
    path = arguments.out / PAGE
    with writing_to(arguments.out):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, text.encode("ascii", "xmlcharrefreplace").decode())
    return path
