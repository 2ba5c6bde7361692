"""A heat map of what ELLA calls relevant."""

from pathlib import Path

from ella.episodes.explanation import relevance_map, spread_instructions
from ella.errors import InputError
from ella.runs.directory import folder_above
from ella.runs.restore import LearnedElla
from ella.shaping.oracle import low_level_of

MAX_ROWS = 60
"""High-level instructions in the heat map, at most."""


def check_picture(path: Path) -> None:
    """Refuse a path that no picture can be written to; the ending decides the format."""
    from matplotlib.backend_bases import FigureCanvasBase

    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file for the heat map, such as heatmap.png")
    folder_above(path, "draw")
    formats = FigureCanvasBase.get_supported_filetypes()
    # Without an ending, Matplotlib would write another file than was named.
    if path.suffix.lower().removeprefix(".") not in formats:
        raise InputError(
            f"cannot draw {path}: a heat map's name ends in one of .{', .'.join(sorted(formats))}"
        )


def draw_heatmap(learned: LearnedElla, path: Path) -> None:
    """Relevance of every low-level instruction to evenly spaced high-level ones, as a picture."""
    from matplotlib.figure import Figure

    language = learned.spec.language
    ids = spread_instructions(language, MAX_ROWS)
    low = learned.shaper.low_level or low_level_of(learned.spec).language
    probability = relevance_map(learned.shaper, learned.state, ids)
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
