"""How far does success fall in training below what it had reached before?

    python benchmarks/largest_falls.py RUN ... --frames 20e6 [--window 1e6] [--out FILE]

Takes each seed's mean success in one window of frames after another. Its largest fall is the most
by which a window lies below any window before it. Prints JSON: for each run the largest fall of
every seed, and their mean with its 95 % Student-t interval.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ella.durable_files import write_durably
from ella.intervals import student_t
from ella.report.runs import read_runs
from ella.report.series import SUCCESS, Series


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--frames", type=float, required=True)
    parser.add_argument("--window", type=float, default=1e6)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    result = {
        "command": "python benchmarks/largest_falls.py " + " ".join(sys.argv[1:]),
        "what": "largest falls of mean success between windows of frames, 95 % Student-t intervals",
        "frames": arguments.frames,
        "window": arguments.window,
        "rows": [_row(path, arguments.frames, arguments.window) for path in arguments.runs],
    }
    text = json.dumps(result, indent=1) + "\n"
    print(text, end="")
    if arguments.out is not None:
        write_durably(arguments.out, text)


def _row(path: Path, frames: float, window: float) -> dict[str, Any]:
    found, _ = read_runs([path])
    if len(found) != 1:
        sys.exit(f"{path} is not a run")
    (run,) = found
    if not 2 * window <= frames <= run.shared_end:
        sys.exit(f"{path} has {run.shared_end:,.0f} frames: not {frames:,.0f}, or not two windows")
    falls = np.array([largest_fall(series, frames, window) for series in run.series.values()])
    if np.isnan(falls).any():
        sys.exit(f"{path}: no episode ends in some window; take larger ones")
    return {"run": str(path), "falls": falls.tolist(), "mean": vars(student_t(falls))}


def largest_fall(series: Series, frames: float, window: float) -> float:
    """The most by which the mean of a window lies below that of an earlier one; 0 if none does."""
    success = series.values[SUCCESS]
    place = np.ceil(series.frames / window)
    windows = range(1, int(frames / window) + 1)
    parts = [success[(place == index) & ~np.isnan(success)] for index in windows]
    means = np.array([part.mean() if part.size else np.nan for part in parts])
    return float((np.maximum.accumulate(means) - means).max())


if __name__ == "__main__":
    main()
