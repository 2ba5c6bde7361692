"""What a run measured: one row per seed and log line, and the CSV file of them."""

import csv
import io
import logging
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from ella.durable_files import write_durably
from ella.errors import InputError
from ella.training.log_line import LogLine

logger = logging.getLogger(__name__)

FILE_NAME = "metrics.csv"
LONGEST_LINE = 1 << 16
"""Bytes; more than any line of metrics has."""
CLOCK_COLUMNS = ("seconds", "frames_per_second")
"""Columns that depend on the clock; all others are the same whenever a run is repeated."""
LEADING_COLUMNS = ("seed", "iteration", "frames", *CLOCK_COLUMNS)


class MetricsFile:
    """The run's CSV file: a header, then one row per seed and log line."""

    def __init__(self, directory: Path, names: Sequence[str], seeds: Sequence[int]) -> None:
        self.path = directory / FILE_NAME
        self.columns = (*LEADING_COLUMNS, *sorted(names))
        self.seeds = tuple(seeds)

    def start(self, iteration: int, every: int) -> float:
        """Begin after `iteration` iterations, which have been logged at least every `every`.

        Later rows, left by a run that was killed after its last checkpoint, are dropped; missing
        ones are warned of. Returns the seconds trained so far.
        """
        rows = read_rows(self.path.parent) if self.path.exists() else []
        try:
            kept = [row for row in rows if int(row["iteration"]) <= iteration]
            seconds = float(kept[-1]["seconds"]) if kept else 0.0
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(self.path.parent) from error
        if kept and tuple(kept[0]) != self.columns:
            raise InputError(f"{self.path} has other columns; start a new run")
        if missing := self._missing_lines(kept, iteration, every):
            logger.warning(
                "%s is damaged: %s up to iteration %d %s missing; training resumes, but the curves "
                "have a gap",
                self.path,
                f"{missing} log line{'s' * (missing > 1)}",
                iteration,
                "are" if missing > 1 else "is",
            )
        text = _csv_lines([self.columns, *([row[name] for name in self.columns] for row in kept)])
        write_durably(self.path, text)
        return seconds

    def _missing_lines(self, rows: Sequence[dict[str, str]], iteration: int, every: int) -> int:
        """How many log lines up to `iteration` have no row, or not one for every seed."""
        counts = Counter(int(row["iteration"]) for row in rows)
        logged = sorted(one for one, count in counts.items() if count >= len(self.seeds))
        # A line may come earlier than due, where a run ended before it was made longer.
        due = -(-np.diff([0, *logged, iteration]) // every)
        return int(due.sum()) - len(logged)

    def append(self, line: LogLine) -> None:
        """Add the rows of one log line, or none of them."""
        clock = (f"{line.seconds:.3f}", f"{line.frames_per_second:.1f}")
        rows = [
            (
                seed,
                line.iteration,
                line.frames,
                *clock,
                *(_number(line.values[name][index]) for name in self.columns[5:]),
            )
            for index, seed in enumerate(self.seeds)
        ]
        with self.path.open("ab", buffering=0) as file:
            before, left = file.tell(), _csv_lines(rows).encode()
            try:
                while left:
                    left = left[file.write(left) :]
            except OSError:
                file.truncate(before)
                raise


def read_rows(directory: Path) -> list[dict[str, str]]:
    """The rows of a run's CSV file; a last line that was cut off is left out."""
    try:
        text = (directory / FILE_NAME).read_text()
        whole = text[: text.rfind("\n") + 1]
        return list(csv.DictReader(io.StringIO(whole)))
    except OSError as error:
        raise InputError(f"no metrics in {directory}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise _damaged(directory) from error


def frames_reached(directory: Path) -> int:
    """Frames of each seed in a run's CSV file, by its last whole line; 0 if there is none yet."""
    last = _last_value(directory, "frames")
    return 0 if last is None else int(last)


def lines_of(directory: Path) -> Iterator[dict[str, list[float]]]:
    """The log lines in a run's CSV file: by column the values of all seeds, NaN where nothing was
    measured."""
    try:
        for _, rows in groupby(read_rows(directory), lambda row: row["iteration"]):
            whole = list(rows)
            yield {name: [float(row[name] or math.nan) for row in whole] for name in whole[0]}
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(directory) from error


def last_rate(directory: Path) -> float | None:
    """Frames a second of all seeds of a run's program, by the last whole line of its CSV file."""
    return _last_value(directory, "frames_per_second")


def _last_value(directory: Path, column: str) -> float | None:
    if not (directory / FILE_NAME).exists():
        return None
    try:
        with (directory / FILE_NAME).open("rb") as file:
            header = file.readline()
            file.seek(max(len(header), file.seek(0, io.SEEK_END) - LONGEST_LINE))
            *lines, _ = file.read().split(b"\n")
        if not lines:
            return None
        names, last = (line.decode().strip().split(",") for line in (header, lines[-1]))
        return float(last[names.index(column)])
    except OSError as error:
        raise InputError(f"no metrics in {directory}: {error.strerror}") from error
    except (ValueError, IndexError) as error:
        raise _damaged(directory) from error


def _damaged(directory: Path) -> InputError:
    return InputError(f"{directory / FILE_NAME} is damaged; start a new run in another directory")


def _number(value: float) -> str:
    """The shortest text that reads back as the same number; empty for nothing measured."""
    return "" if math.isnan(value) else repr(float(value))


def _csv_lines(rows: Sequence[Sequence[object]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()
