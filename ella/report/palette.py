"""Colours that the colour-blind tell apart, the same for a method in every figure and page."""

import re
from collections.abc import Sequence

from ella.methods.method import Colour
from ella.report.method_styles import method_colours

_OTHERS: tuple[Colour, ...] = (
    ("#332288", "#9d8cf0"),
    ("#e7298a", "#ff7ac0"),
    ("#117733", "#5fc27e"),
    ("#999933", "#cfcf66"),
    ("#882255", "#d873a8"),
    ("#44aa99", "#6fd3c2"),
    ("#ddaa33", "#eec566"),
    ("#666666", "#aaaaaa"),
)


def ordered(labels: Sequence[str]) -> list[str]:
    """Labels without repetition: known methods first, variants of one by their settings."""
    known = list(method_colours())

    def place(label: str) -> tuple[int, list[tuple[str, float]]]:
        method = label.split(",")[0]
        # Texts and numbers take turns, so that 10 comes after 2.
        parts = [*re.split(r"(\d+(?:\.\d+)?(?:e-?\d+)?)", label), "0"]
        settings = [(parts[i], float(parts[i + 1])) for i in range(0, len(parts) - 1, 2)]
        return (known.index(method) if method in known else len(known), settings)

    return sorted(set(labels), key=place)


def colours(labels: Sequence[str]) -> dict[str, Colour]:
    """A colour for every label; of several variants of one method the first has the method's."""
    found: dict[str, Colour] = {}
    of_methods = method_colours()
    free = [*_OTHERS, *(colour for name, colour in of_methods.items() if name not in labels)]
    for label in labels:
        colour = of_methods.get(label.split(",")[0])
        if colour is None or colour in found.values():
            unused = [other for other in free if other not in found.values()]
            colour = unused[0] if unused else free[len(found) % len(free)]
        found[label] = colour
    return found
