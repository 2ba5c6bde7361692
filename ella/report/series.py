"""Reads the columns of a run's metrics file that the report uses."""

import csv
import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ella.errors import InputError
from ella.report.method_styles import drawn_columns
from ella.runs.metrics import FILE_NAME

SUCCESS = "success_rate"
CLOCKS = ("episodes", "seconds")
"""What curves can be drawn over besides frames."""
MAX_NUMBER = 1e30
"""Larger measurements are damage."""
WHOLE_NUMBERS = ("seed", "iteration")
MAX_WHOLE_NUMBER = 2**32 - 1
"""The largest seed that can be trained, and more iterations than any run has: larger ones are
damage."""


@dataclass(frozen=True)
class Series:
    """What one seed measured, line by line, by rising frames."""

    frames: np.ndarray
    """float[T]"""
    values: dict[str, np.ndarray]
    """Per column float[T]; NaN where nothing was measured. `episodes` counts those finished since
    the run began."""

    def cut(self, frames: float) -> "Series":
        """Its lines up to so many frames."""
        kept = self.frames <= frames
        values = {name: column[kept] for name, column in self.values.items()}
        return Series(self.frames[kept], values)


def read_series(folder: Path) -> tuple[dict[int, Series], int]:
    """Series by seed, and how many damaged lines were left out.

    Of two lines of the same seed and frames the later counts.
    """
    try:
        with (folder / FILE_NAME).open(newline="", encoding="utf-8") as file:
            seeds, frames, columns, damaged = _read_columns(csv.reader(_whole_lines(file)))
    except OSError as error:
        raise InputError(f"{FILE_NAME} cannot be read") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{FILE_NAME} is damaged (not a table of text)") from error
    if not frames.size:
        raise InputError(f"{FILE_NAME} has no measurements")
    found = {}
    for seed in np.unique(seeds).tolist():
        rows = np.flatnonzero(seeds == seed)
        # The first of the reversed rows is the last line.
        own, first = np.unique(frames[rows][::-1], return_index=True)
        kept = rows[::-1][first]
        found[int(seed)] = _series(own, {name: column[kept] for name, column in columns.items()})
    return found, damaged


def _whole_lines(file: Iterator[str]) -> Iterator[str]:
    """Lines but for a last one that was cut off."""
    return (line for line in file if line.endswith("\n"))


def _read_columns(
    rows: Iterator[list[str]],
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray], int]:
    """(seeds, frames, other columns by name, damaged lines), one entry per sound line."""
    header = next(rows, [])
    used = {"iteration", SUCCESS, *CLOCKS, *drawn_columns()}
    names = [name for name in header if name in used]
    if "seed" not in header or "frames" not in header:
        return np.array([]), np.array([]), {}, sum(1 for _ in rows)
    places = [header.index(name) for name in ("seed", "frames", *names)]
    whole = [header.index(name) for name in WHOLE_NUMBERS if name in header]
    # One flat array of doubles: a hundred megabytes of text are a few of numbers.
    numbers, damaged = array("d"), 0
    for row in rows:
        try:
            if len(row) != len(header):
                raise ValueError("another number of columns")
            if not all(0 <= int(row[place]) <= MAX_WHOLE_NUMBER for place in whole):
                raise ValueError("no seed or no iteration")
            line = [float(row[place] or "nan") for place in places]
            if not 0 < line[1] < MAX_NUMBER:
                raise ValueError("no frames")
        except ValueError:
            damaged += 1
        else:
            numbers.extend(line)
    table = np.frombuffer(numbers, np.float64).reshape(-1, len(places))
    table = np.where(np.abs(table) < MAX_NUMBER, table, math.nan)
    columns = {name: table[:, index] for index, name in enumerate(names, start=2)}
    return table[:, 0], table[:, 1], columns, damaged


def _series(frames: np.ndarray, values: dict[str, np.ndarray]) -> Series:
    if "episodes" in values and "iteration" in values:
        # The column is a mean per iteration since the line before.
        iterations = np.diff(values["iteration"], prepend=0.0)
        values["episodes"] = np.cumsum(np.nan_to_num(values["episodes"] * iterations))
    return Series(frames, values)
