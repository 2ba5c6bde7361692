"""The CSV file: exact numbers, whole lines, cut back on resume."""

import jax.numpy as jnp
import numpy as np
import pytest

from ella.errors import InputError
from ella.measurement import Mean
from ella.runs.metrics import LONGEST_LINE, MetricsFile, frames_reached, read_rows
from ella.training.log_line import LogLine, averages, non_finite


def a_line(iteration: int) -> LogLine:
    values = {"success_rate": np.array([0.1 + 0.2, np.nan]), "value_loss": np.array([1e-9, 2.0])}
    return LogLine(iteration, 64 * iteration, 1.5 * iteration, 1000.0, values)


@pytest.fixture
def metrics(tmp_path):
    metrics = MetricsFile(tmp_path, ["value_loss", "success_rate"], [4, 5])
    metrics.start(0, 1)
    return metrics


def test_numbers_read_back_exactly_and_nothing_measured_is_empty(metrics, tmp_path):
    metrics.append(a_line(1))
    rows = read_rows(tmp_path)
    assert [row["seed"] for row in rows] == ["4", "5"]
    assert float(rows[0]["success_rate"]) == 0.1 + 0.2
    assert rows[1]["success_rate"] == ""
    assert rows[0]["frames"] == "64"


def test_resuming_drops_later_rows_and_a_line_that_was_cut_off(metrics, tmp_path):
    for iteration in (1, 2, 3):
        metrics.append(a_line(iteration))
    text = metrics.path.read_text()
    metrics.path.write_text(text[:-5])
    assert len(read_rows(tmp_path)) == 5
    assert MetricsFile(tmp_path, ["value_loss", "success_rate"], [4, 5]).start(2, 1) == 3.0
    metrics.append(a_line(3))
    assert metrics.path.read_text() == text


@pytest.mark.parametrize(
    ("rows", "lost"),
    [
        ([3, 6, 9, 10, 13], 0),  # ended at 10 and was made longer
        ([3, 6], 3),
        ([], 5),
        ([6, 13], 3),
        ([3, 9, 13], 2),
    ],
)
def test_resuming_warns_of_missing_log_lines(metrics, tmp_path, rows, lost, caplog):
    for iteration in rows:
        metrics.append(a_line(iteration))
    text = metrics.path.read_text()
    metrics.start(13, 3)
    assert metrics.path.read_text() == text
    said = f"is damaged: {lost} log lines up to iteration 13 are missing;"
    assert [said in line for line in caplog.messages] == [True] * bool(lost)


def test_a_log_line_without_the_row_of_a_seed_counts_as_missing(metrics, caplog):
    for iteration in (1, 2):
        metrics.append(a_line(iteration))
    metrics.path.write_text(metrics.path.read_text()[:-5])
    metrics.start(2, 1)
    metrics.path.unlink()
    metrics.start(2, 1)
    one, two = caplog.messages
    assert "is damaged: 1 log line up to iteration 2 is missing;" in one
    assert "is damaged: 2 log lines up to iteration 2 are missing;" in two


def test_the_last_whole_line_tells_how_far_a_run_has_come(metrics, tmp_path):
    assert frames_reached(tmp_path / "nowhere") == 0
    assert frames_reached(tmp_path) == 0
    for iteration in range(1, 1001):
        metrics.append(a_line(iteration))
    assert metrics.path.stat().st_size > LONGEST_LINE
    assert frames_reached(tmp_path) == 64_000
    text = metrics.path.read_text()
    metrics.path.write_text(text + "4,1001,64")
    assert frames_reached(tmp_path) == 64_000
    for damaged in (text + "4,1001\n", text + "4,1001,x\n", text.replace("frames", "f", 1)):
        metrics.path.write_text(damaged)
        with pytest.raises(InputError, match="damaged"):
            frames_reached(tmp_path)
    for damaged in (text.encode() + b"4," + b"1" * 200_000 + b"\n", text.encode() + b"\xff\n"):
        metrics.path.write_bytes(damaged)
        with pytest.raises(InputError, match="damaged"):
            read_rows(tmp_path)


def test_other_columns_are_refused(metrics, tmp_path):
    metrics.append(a_line(1))
    with pytest.raises(InputError, match="other columns"):
        MetricsFile(tmp_path, ["entropy"], [4, 5]).start(1, 1)


def test_means_are_exact_and_not_finite_sums_are_named():
    measured = {
        "a": Mean(jnp.array([6.0, 0.0]), jnp.array([4.0, 0.0])),
        "b": Mean(jnp.array([1.0, jnp.nan]), jnp.array([1.0, 1.0])),
    }
    np.testing.assert_array_equal(averages(measured)["a"], [1.5, np.nan])
    assert non_finite(measured) == ["b"]
