"""The figures for print."""

from dataclasses import replace

import matplotlib as mpl
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from ella.cli import main
from ella.networks.settings import NetworkSettings
from ella.ppo.settings import PPOSettings
from ella.report.figure_files import FOLDER, NAMES
from ella.report.figures import STYLE, draw, write_figures
from ella.report.method_styles import panels_by_method
from ella.report.page import render
from ella.report.summary import summarise
from ella.settings_table import to_json

WIDE = NetworkSettings(variant="onehot", compute_dtype="bfloat16", statistics_momentum=0.0123456789)


@pytest.mark.parametrize(
    ("seeds", "name"),
    [
        ((1, 4), "range of seeds"),
        ((5, 5), "95 % expanded bootstrap interval"),
        ((5, 4), "95 % expanded bootstrap interval (range of seeds where fewer than 5)"),
    ],
)
def test_figure_and_page_call_the_band_what_it_is(write_run, tmp_path, seeds, name) -> None:
    for method, count in zip(("ppo", "ella"), seeds, strict=True):
        write_run(tmp_path / method, method=method, seeds=count, lines=4)
    summary = summarise([tmp_path])
    figure = dict(draw(summary))["learning-curves-iqm"]
    title = figure.legends[0].get_title().get_text().replace("\n", " ")
    assert title == f"interquartile mean over seeds, {name}"
    assert f">IQM, {name}</button>" in render(summary)


@pytest.mark.parametrize(("count", "shape"), [(2, (1, 2)), (3, (1, 3)), (4, (2, 2)), (5, (2, 3))])
def test_rows_of_panels_are_as_long_as_each_other(write_run, tmp_path, count, shape) -> None:
    tasks = ("goto-room", "goto-maze", "pick-maze", "open-maze", "opengoto-maze")
    for task in tasks[:count]:
        write_run(tmp_path / task, task=task)
    figure = dict(draw(summarise([tmp_path])))["learning-curves"]
    grid = figure.axes[0].get_subplotspec().get_gridspec()
    assert (grid.nrows, grid.ncols) == shape


@pytest.mark.thorough
@pytest.mark.parametrize("tasks", [("goto-room",), ("goto-room", "goto-maze", "pick-maze")])
def test_legends_of_long_names_lie_inside(write_run, tmp_path, tasks) -> None:
    """Runs that differ in many settings are called by all of them."""
    configs = [
        PPOSettings(),
        PPOSettings(network=WIDE, learning_rate=7e-4, discount=0.987654321),
        replace(PPOSettings(network=WIDE, clip_range=0.123456789), entropy_coefficient=0.0123),
    ]
    for task in tasks:
        for index, config in enumerate(configs):
            write_run(tmp_path / f"{task}-{index}", task=task, ppo=to_json(config))
    summary = summarise([tmp_path])
    assert max(len(label) for label in summary.labels) > 80
    with mpl.rc_context(STYLE):
        for name, figure in draw(summary):
            if figure is None:
                continue
            canvas = FigureCanvasAgg(figure)
            canvas.draw()
            for legend in figure.legends:
                box = legend.get_window_extent(canvas.get_renderer())
                width = figure.get_figwidth() * figure.dpi
                assert box.x0 >= 0, name
                assert box.x1 <= width, name


@pytest.mark.thorough
def test_pictures_of_an_earlier_report_are_removed(write_run, tmp_path) -> None:
    folder = tmp_path / "figures"
    folder.mkdir()
    (folder / "frames-ratio.png").mkdir()
    kept = ["mine.png", "ella.txt", "frames-ratio.png"]
    for name in ("ella.png", "ella.pdf", "probability-of-improvement.pdf", *kept[:2]):
        (folder / name).write_text("from before")
    written = write_figures(summarise([write_run(tmp_path / "run", lines=2)]), folder)
    assert {path.name for path in folder.iterdir()} == {*kept, *(path.name for path in written)}
    assert "ella" not in {path.stem for path in written}


def test_figures_of_a_report_are_no_artefacts_of_a_run(write_run, tmp_path) -> None:
    """As after `ella report RUN --out RUN`, beside pictures of the run."""
    run = write_run(tmp_path / "run", method="ella", lines=2)
    (run / FOLDER).mkdir()
    figures = [f"{FOLDER}/{name}.png" for name in (*NAMES, *panels_by_method())]
    own = ["ella.png", f"{FOLDER}/frames-ratio.gif", f"{FOLDER}/mine.png"]
    for name in (*figures, *own):
        Image.new("RGB", (4, 3)).save(run / name)
    (artefacts,) = summarise([run]).artefacts
    assert [image.name for image in artefacts.images] == own


def test_names_of_figures_are_all_known(write_run, tmp_path) -> None:
    summary = summarise([write_run(tmp_path / "run", lines=2)])
    assert [name for name, _ in draw(summary)] == [*NAMES, *panels_by_method()]


@pytest.mark.thorough
def test_a_report_in_the_folder_of_its_run_does_not_show_itself(write_run, tmp_path) -> None:
    run = write_run(tmp_path / "run", lines=2)
    for _ in range(2):
        assert main(["report", str(run), "--out", str(run)]) == 0
    assert list((run / FOLDER).glob("*.png"))
    assert "<figcaption>" not in (run / "index.html").read_text()
