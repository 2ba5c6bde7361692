"""What is the mean over seeds of a logged column within some frames?

    python benchmarks/column_means.py RUN,COLUMN,FROM,TO ... [--out FILE]

Prints JSON: for each, the mean over seeds of the column's log lines after FROM and up to TO frames,
with its 95 % Student-t interval over seeds. TO may be `end`, FROM a share of TO: `0.98,end` is the
last 2 % of the frames that all seeds have.
"""

import argparse
import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ella.durable_files import write_durably
from ella.intervals import student_t
from ella.report.runs import Run, read_runs
from ella.runs.metrics import FILE_NAME


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("columns", nargs="+", metavar="RUN,COLUMN,FROM,TO")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    result = {
        "command": "python benchmarks/column_means.py " + " ".join(sys.argv[1:]),
        "what": "means over seeds of a logged column, 95 % Student-t intervals",
        "rows": [_row(word) for word in arguments.columns],
    }
    text = json.dumps(result, indent=1, allow_nan=False) + "\n"
    print(text, end="")
    if arguments.out is not None:
        write_durably(arguments.out, text)


def _row(word: str) -> dict[str, Any]:
    try:
        folder, column, first, last = word.split(",")
        (run,), _ = read_runs([Path(folder)])
        until = run.shared_end if last == "end" else float(last)
        after = float(first) * until if float(first) < 1 else float(first)
    except ValueError:
        sys.exit(f"{word} is not RUN,COLUMN,FROM,TO")
    if until > run.shared_end:
        sys.exit(f"{word}: {folder} has {run.shared_end:,.0f} frames")
    means = seed_means(run, column, after, until)
    if np.isnan(means).any() or means.size < 2:
        sys.exit(f"{word}: two seeds or more must have measured it within these frames")
    return {
        "run": folder,
        "column": column,
        "frames": [after, until],
        "seeds": len(means),
        "mean": vars(student_t(means)),
    }


def seed_means(run: Run, column: str, after: float, until: float) -> np.ndarray:
    """float[seeds]; NaN where a seed measured nothing in these frames."""
    found: dict[int, list[float]] = {seed: [] for seed in run.series}
    with (run.path / FILE_NAME).open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if column not in row:
                sys.exit(f"{run.path} has no column {column}")
            seed = int(row["seed"])
            if seed in found and row[column] and after < float(row["frames"]) <= until:
                found[seed].append(float(row[column]))
    return np.array([np.mean(values) if values else np.nan for values in found.values()])


if __name__ == "__main__":
    main()
