"""The figures for print."""

from dataclasses import replace

import matplotlib as mpl
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from ella.networks.actor_critic import NetworkConfig
from ella.ppo.settings import PPOConfig
from ella.report.figures import STYLE, draw
from ella.report.summary import summarise

WIDE = NetworkConfig(variant="onehot", compute_dtype="bfloat16", statistics_momentum=0.0123456789)


@pytest.mark.parametrize("tasks", [("goto-room",), ("goto-room", "goto-maze", "pick-maze")])
def test_legends_of_long_names_lie_inside(write_run, tmp_path, tasks) -> None:
    """Runs that differ in many settings are called by all of them."""
    configs = [
        PPOConfig(),
        PPOConfig(network=WIDE, learning_rate=7e-4, discount=0.987654321),
        replace(PPOConfig(network=WIDE, clip_range=0.123456789), entropy_coefficient=0.0123),
    ]
    for task in tasks:
        for index, config in enumerate(configs):
            write_run(tmp_path / f"{task}-{index}", task=task, ppo=config)
    summary = summarise([tmp_path])
    assert max(len(label) for label in summary.labels) > 80
    with mpl.rc_context(STYLE):
        for name, figure in draw(summary):
            canvas = FigureCanvasAgg(figure)
            canvas.draw()
            for legend in figure.legends:
                box = legend.get_window_extent(canvas.get_renderer())
                width = figure.get_figwidth() * figure.dpi
                assert box.x0 >= 0, name
                assert box.x1 <= width, name
