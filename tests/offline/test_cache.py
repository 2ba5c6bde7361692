"""The cache: shared by processes, and able to recover."""

import errno
import fcntl
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from ella.array_file import load_arrays
from ella.errors import InputError
from ella.offline.cache import FORMAT_VERSION, KIND, cached, default_directory, entry_path

TEMPLATE = {"weight": jnp.zeros((2, 3)), "bias": (jnp.zeros(3),)}


@dataclass(frozen=True)
class Setting:
    episodes: int = 5


def weights(value: float = 1.5):
    return {"weight": jnp.full((2, 3), value), "bias": (jnp.arange(3.0),)}


class Work:
    """A computation that counts how often it is done."""

    def __init__(self) -> None:
        self.done = 0

    def __call__(self):
        self.done += 1
        return weights(), {"accuracy": 0.5}

    def fetch(self, directory: Path, **configuration):
        configuration = {"setting": Setting(), **configuration}
        return cached(directory, "thing", configuration, TEMPLATE, self)


def test_computes_once_per_configuration(tmp_path, caplog):
    work = Work()
    first, record = work.fetch(tmp_path / "deep" / "cache")
    again, record_again = work.fetch(tmp_path / "deep" / "cache")
    assert work.done == 1
    assert record == record_again == {"accuracy": 0.5}
    np.testing.assert_array_equal(first["weight"], again["weight"])
    np.testing.assert_array_equal(again["bias"][0], np.arange(3.0))
    work.fetch(tmp_path / "deep" / "cache", setting=Setting(6))
    work.fetch(tmp_path / "deep" / "cache", seed=1)
    assert work.done == 3
    assert not caplog.messages


def test_an_entry_says_what_it_is(tmp_path):
    Work().fetch(tmp_path)
    path = entry_path(tmp_path, "thing", {"setting": Setting()})
    found = load_arrays(path, kind=KIND, version=FORMAT_VERSION)
    assert found.table["configuration"] == {"setting": {"episodes": 5}}
    assert found.table["record"] == {"accuracy": 0.5}
    assert sorted(each.suffix for each in tmp_path.iterdir()) == [".lock", ".safetensors"]


def damage_cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def damage_flip(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def damage_text(content: bytes) -> bytes:
    return b"not weights"


def damage_empty(content: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("damage", [damage_cut, damage_flip, damage_text, damage_empty])
def test_damage_is_noticed_and_repaired(tmp_path, damage, caplog):
    work = Work()
    work.fetch(tmp_path)
    path = entry_path(tmp_path, "thing", {"setting": Setting()})
    path.write_bytes(damage(path.read_bytes()))
    found, _ = work.fetch(tmp_path)
    assert work.done == 2
    (line,) = set(caplog.messages)
    assert "damaged" in line
    np.testing.assert_array_equal(found["weight"], weights()["weight"])
    work.fetch(tmp_path)
    assert work.done == 2


def test_other_shapes_are_not_taken(tmp_path, caplog):
    work = Work()
    work.fetch(tmp_path)
    template = {"weight": jnp.zeros((2, 4)), "bias": (jnp.zeros(3),)}
    cached(tmp_path, "thing", {"setting": Setting()}, template, work)
    assert work.done == 2
    assert "weight is float32[2, 3], expected float32[2, 4]" in caplog.messages[0]


def test_without_locks_it_computes_all_the_same(tmp_path, monkeypatch, caplog):
    def refuse(file, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    work = Work()
    work.fetch(tmp_path)
    work.fetch(tmp_path)
    assert work.done == 1
    (line,) = caplog.messages
    assert "No locks available" in line


def test_a_failed_computation_leaves_nothing(tmp_path):
    def fail():
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        cached(tmp_path, "thing", {"setting": Setting()}, TEMPLATE, fail)
    assert not list(tmp_path.glob("*.safetensors"))
    work = Work()
    work.fetch(tmp_path)
    assert work.done == 1


def test_what_a_killed_process_left_of_an_entry_is_removed(tmp_path):
    own = entry_path(tmp_path, "thing", {"setting": Setting()})
    (tmp_path / f".{own.name}.0123.unfinished").write_bytes(b"half")
    other = tmp_path / ".another-entry.safetensors.4567.unfinished"
    other.write_bytes(b"being written by another process")
    Work().fetch(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        own.name,
        own.with_suffix(".lock").name,
        other.name,
    }


def test_an_impossible_place_is_an_input_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cache"):
        Work().fetch(tmp_path / "file" / "cache")


def test_the_place_can_be_chosen(monkeypatch, tmp_path):
    monkeypatch.setenv("ELLA_CACHE", str(tmp_path))
    assert default_directory() == tmp_path
    monkeypatch.delenv("ELLA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_directory() == tmp_path / "ella"


PROCESS = """
import logging, sys, time
from pathlib import Path
import jax.numpy as jnp
from ella.offline.cache import cached

place = Path(sys.argv[1])

def compute():
    with (place / "computed").open("a") as file:
        file.write("x")
    # The other process starts while this one holds the lock.
    until = time.monotonic() + 60
    while not (place / "other-waits").exists() and time.monotonic() < until:
        time.sleep(0.02)
    return {"w": jnp.full(4, 7.0)}, {}

class Waits(logging.Handler):
    def emit(self, record):
        if "waiting" in record.getMessage():
            (place / "other-waits").touch()

logging.getLogger("ella").addHandler(Waits())
logging.getLogger("ella").setLevel(logging.INFO)
found, _ = cached(place / "cache", "thing", {}, {"w": jnp.zeros(4)}, compute)
assert (found["w"] == 7).all()
"""


@pytest.mark.thorough
def test_two_processes_compute_once(tmp_path):
    command = [sys.executable, "-c", PROCESS, str(tmp_path)]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(2)]
    for process in processes:
        _, errors = process.communicate(timeout=180)
        assert process.returncode == 0, errors.decode()
    assert (tmp_path / "computed").read_text() == "x"
    assert (tmp_path / "other-waits").exists()
