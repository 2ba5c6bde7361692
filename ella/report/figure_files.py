"""Names of the files that a report writes its figures to."""

from pathlib import Path

from ella.report.method_styles import panels_by_method

FOLDER = "figures"
FORMATS = ("png", "pdf")
NAMES = (
    "learning-curves",
    "learning-curves-iqm",
    "area-under-curve",
    "frames-ratio",
    "probability-of-improvement",
    "performance-profiles",
)


def is_figure(path: Path) -> bool:
    """Whether a report writes a figure to this file: its own, or one of a method."""
    is_named = path.stem in NAMES or path.stem in panels_by_method()
    return path.parent.name == FOLDER and is_named and path.suffix[1:] in FORMATS
