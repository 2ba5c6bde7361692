"""The picture of learning curves that the demo leaves."""

import numpy as np
from matplotlib.colors import to_rgb
from PIL import Image

from ella.methods.registry import find
from ella.report.learning_curve import write_learning_curves


def test_each_method_is_drawn_in_its_own_colour_of_the_registry(write_run, tmp_path):
    runs = [
        write_run(tmp_path / name, task="unlock-small", method=name, until=until)
        for name, until in (("ppo", 0.9), ("ella", 0.3))
    ]
    path = write_learning_curves(runs, tmp_path / "curves.png")
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    for name in ("ppo", "ella", "ride"):
        colour = np.round(255 * np.array(to_rgb(find(name).colour[0])))
        drawn = int((pixels == colour).all(axis=1).sum())
        assert (drawn > 100) == (name != "ride"), (name, drawn)
