"""A disk that fills up: one line that says what to do, and what was there before stays."""

import resource
import shutil
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest

from ella.durable_files import replace_durably
from ella.errors import InputError
from ella.offline.cache import cached
from ella.runs.log_sinks import TensorBoardLog
from ella.runs.metrics import LogLine, MetricsFile, read_rows

pytestmark = pytest.mark.thorough
LINE = LogLine(3, 96, 1.0, 50.0, {"loss": np.array([0.5, 0.25])})


@contextmanager
def files_of_at_most(size: int):
    """No file may grow beyond `size` bytes; what fits is written first, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_rows_of_metrics_are_written_whole_or_not_at_all(tmp_path):
    metrics = MetricsFile(tmp_path, ["loss"], [0, 1])
    metrics.start(0)
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
    assert not list(tmp_path.glob("*.safetensors*"))


SAVE_ON_A_FULL_DISK = """
import sys
import time
from pathlib import Path

import numpy as np

from ella.runs.checkpoint import CheckpointStore

store = CheckpointStore(Path(sys.argv[1]) / "checkpoints", "abc")
few = {"a": np.arange(3.0)}
store.save(few, 1)
for attempt in range(5):
    try:
        store.save({f"array{i}": np.full(200, float(i)) for i in range(100)}, 2)
    except OSError as error:
        print(error.strerror)
time.sleep(0.5)
found = store.restore_newest(few)
print(found.iteration, found.state["a"].tolist())
"""
SMALL_DISK = 'mount -t tmpfs -o size=16m,nr_inodes=28 tmpfs "$1" && exec "$2" -c "$3" "$1"'
"""Room enough for the arrays, but not for the files that Orbax makes of them."""


def test_a_disk_that_fills_up_while_orbax_writes_prints_nothing_and_spoils_nothing(tmp_path):
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
    assert done.stdout.splitlines() == ["No space left on device"] * 5 + ["1 [0.0, 1.0, 2.0]"]
