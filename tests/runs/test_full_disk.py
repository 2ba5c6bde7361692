"""A disk that fills up: one line that says what to do, and what was there before stays."""

import errno
import shutil
import subprocess
import sys

import numpy as np
import pytest
from limited_resources import files_of_at_most

from ella.durable_files import replace_durably
from ella.errors import InputError
from ella.offline.cache import cached
from ella.runs.checkpoint import CheckpointStore
from ella.runs.log_sinks import TensorBoardLog
from ella.runs.metrics import MetricsFile, read_rows
from ella.training.log_line import LogLine

pytestmark = pytest.mark.thorough
LINE = LogLine(3, 96, 1.0, 50.0, {"loss": np.array([0.5, 0.25])})


def test_rows_of_metrics_are_written_whole_or_not_at_all(tmp_path):
    metrics = MetricsFile(tmp_path, ["loss"], [0, 1])
    metrics.start(0, 1)
    metrics.append(LINE)
    text = metrics.path.read_text()
    with files_of_at_most(len(text) + 5), pytest.raises(OSError, match="too large"):
        metrics.append(LINE)
    assert metrics.path.read_text() == text
    metrics.append(LINE)
    assert len(read_rows(tmp_path)) == 4


def test_a_file_that_cannot_be_replaced_stays_and_leaves_no_other(tmp_path):
    path = tmp_path / "policy.safetensors"
    replace_durably(path, b"old")
    with files_of_at_most(100), pytest.raises(OSError, match=r"policy\.safetensors"):
        replace_durably(path, bytes(1000))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_events_that_do_not_fit_are_one_line_from_no_other_thread(tmp_path, capfd):
    log = TensorBoardLog(tmp_path, [0, 1])
    size = max(path.stat().st_size for path in tmp_path.rglob("events*"))
    with files_of_at_most(size), pytest.raises(InputError, match="make room, then resume"):
        log.write(LINE)
    log.close()
    assert capfd.readouterr().err == ""


def test_a_cache_without_room_is_one_line_and_keeps_no_half_entry(tmp_path):
    weights = {"weight": np.zeros(1000)}
    with files_of_at_most(500), pytest.raises(InputError, match=r"make room there or .*ELLA_CACHE"):
        cached(tmp_path, "thing", {}, weights, lambda: (weights, {}))
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


def test_a_checkpoint_that_does_not_fit_leaves_the_one_before(tmp_path):
    store = CheckpointStore(tmp_path, {})
    small, large = {"a": np.arange(3.0)}, {"a": np.zeros(100_000)}
    store.save(small, 1)
    for _ in range(3):
        with files_of_at_most(100_000), pytest.raises(OSError, match="too large") as full:
            store.save(large, 2)
        assert full.value.errno == errno.EFBIG
    assert list(tmp_path.iterdir()) == store.paths()
    assert store.restore_newest(small).iteration == 1
    store.save(large, 2)
    assert store.restore_newest(large).iteration == 2


SAVE_ON_A_FULL_DISK = """
import sys
from pathlib import Path

import numpy as np

from ella.runs.checkpoint import CheckpointStore

store = CheckpointStore(Path(sys.argv[1]) / "checkpoints", {})
few = {"a": np.arange(3.0)}
store.save(few, 1)
for size in (1_000_000, 100_000_000):
    try:
        store.save({"a": np.ones(size)}, 2)
    except OSError as error:
        print(error.strerror)
found = store.restore_newest(few)
left = [path.name for path in store.directory.iterdir()]
print(found.iteration, found.state["a"].tolist(), *left)
"""
SMALL_DISK = 'mount -t tmpfs -o size=4m tmpfs "$1" && exec "$2" -c "$3" "$1"'


def test_a_disk_that_is_really_full_prints_nothing_and_spoils_nothing(tmp_path):
    unshare = ["unshare", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"]).returncode:
        pytest.skip("needs a mount namespace of its own")
    done = subprocess.run(
        [*unshare, "sh", "-c", SMALL_DISK, "sh", tmp_path, sys.executable, SAVE_ON_A_FULL_DISK],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        *["No space left on device"] * 2,
        "1 [0.0, 1.0, 2.0] 000000001.safetensors",
    ]
