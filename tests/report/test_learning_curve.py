"""The picture of learning curves that the demo leaves."""

import numpy as np
from matplotlib.colors import to_rgb
from PIL import Image

from ella.methods.registry import find
from ella.report.learning_curve import success_at_the_end, write_learning_curves


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


def test_success_at_the_end_is_the_mean_of_the_last_log_lines(write_run, tmp_path):
    run = write_run(tmp_path / "run", lines=20, until=1.0, seeds=1)
    np.testing.assert_allclose(success_at_the_end(run, 0.1), [(0.95 + 1.0) / 2])


def test_success_at_the_end_is_nan_where_no_episode_ended(write_run, tmp_path):
    run = write_run(tmp_path / "run", lines=1, seeds=2)
    file = run / "metrics.csv"
    header, first, second = file.read_text().splitlines()
    column = header.split(",").index("success_rate")
    cells = first.split(",")
    cells[column] = ""
    file.write_text("\n".join([header, ",".join(cells), second]) + "\n")
    found = success_at_the_end(run)
    np.testing.assert_array_equal(np.isnan(found), [True, False])
