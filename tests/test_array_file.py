"""Array files: exact, checked, and whole whoever writes them or dies doing so."""

import json
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from subprocess import PIPE
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from ella.array_file import (
    DamagedFileError,
    MismatchedArraysError,
    load_arrays,
    named_arrays,
    replace_arrays,
    save_arrays,
)
from ella.errors import InputError

ARRAYS: dict[str, np.ndarray] = {
    "bool": np.array([[True], [False]]),
    "uint8": np.arange(5, dtype=np.uint8),
    "uint32": np.array([2**32 - 1, 0], np.uint32),
    "int32": np.array([-(2**31), 7], np.int32),
    "float16": np.array([1.5, np.inf], np.float16),
    "bfloat16": np.array([1.5, -2.0, np.nan], jnp.bfloat16),
    "float32": np.arange(6, dtype=np.float32).reshape(2, 3),
    "float64": np.array(np.pi),
    "empty": np.zeros((0, 3), np.float32),
    "strided": np.arange(12).reshape(3, 4)[:, ::2],
}


def save(path: Path, arrays: Any = ARRAYS, **changes: Any) -> None:
    save_arrays(path, arrays, **({"kind": "thing", "version": 3, "table": {"seed": 7}} | changes))


def load(path: Path) -> dict[str, np.ndarray]:
    return load_arrays(path, kind="thing", version=3).arrays


def assert_same_arrays(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> None:
    assert left.keys() == right.keys()
    for name in left:
        assert (left[name].dtype, left[name].shape) == (right[name].dtype, right[name].shape)
        assert left[name].tobytes() == right[name].tobytes()


def test_every_dtype_and_the_table_read_back_exactly(tmp_path):
    save(tmp_path / "file")
    found = load_arrays(tmp_path / "file", kind="thing", version=3)
    assert_same_arrays(found.arrays, ARRAYS)
    assert found.table == {"seed": 7}
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_safetensors_itself_reads_the_file(tmp_path):
    save(tmp_path / "file")
    assert_same_arrays(safetensors.numpy.load_file(tmp_path / "file"), ARRAYS)


def test_a_file_that_others_may_read_stays_so(tmp_path):
    (tmp_path / "plain").write_text("")
    save(tmp_path / "file")
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_every_flipped_bit_and_every_truncation_is_noticed(tmp_path):
    path = tmp_path / "file"
    save(path, {"a": ARRAYS["bfloat16"], "b": ARRAYS["float32"]})
    content = path.read_bytes()
    damaged = [content[:length] for length in range(len(content))]
    for position in range(len(content)):
        flipped = bytearray(content)
        flipped[position] ^= 1 << position % 8
        damaged.append(bytes(flipped))
    for each in [*damaged, content + b"\0"]:
        path.write_bytes(each)
        with pytest.raises(DamagedFileError) as reason:
            load(path)
        assert len(str(reason.value).splitlines()) == 1


def test_arrays_that_change_places_are_noticed(tmp_path):
    """The bytes are all there and right, but not under their names."""
    path = tmp_path / "file"
    save(path, {"a": np.zeros(2), "b": np.ones(2)})
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header["a"], header["b"] = header["b"], header["a"]
    swapped = json.dumps(header).encode().ljust(length)
    path.write_bytes(content[:8] + swapped + content[8 + length :])
    np.testing.assert_array_equal(safetensors.numpy.load_file(path)["a"], np.ones(2))
    with pytest.raises(DamagedFileError, match="checksum"):
        load(path)


def test_other_kinds_versions_and_programs_are_refused(tmp_path):
    path = tmp_path / "file"
    save(path, kind="policy")
    with pytest.raises(InputError, match="holds a policy, not a thing"):
        load(path)
    save(path, version=4)
    with pytest.raises(InputError, match="format version 4, this version of ella reads 3"):
        load(path)
    safetensors.numpy.save_file({"a": np.zeros(1)}, path)
    with pytest.raises(DamagedFileError, match="another program"):
        load(path)
    safetensors.numpy.save_file({"a": np.zeros(1)}, path, {"ella": "{}"})
    with pytest.raises(DamagedFileError, match="checksum is wrong"):
        load(path)
    path.write_bytes(b"\x80\x04]q\x00.")  # a pickle
    with pytest.raises(DamagedFileError, match="no readable safetensors"):
        load(path)
    with pytest.raises(FileNotFoundError) as missing:
        load(tmp_path / "nowhere")
    assert missing.value.strerror == "No such file or directory"


def test_a_dtype_without_a_place_is_refused_before_anything_is_written(tmp_path):
    for array in (np.array([1j]), np.array(["text"]), np.array([object()])):
        with pytest.raises(TypeError, match="a has dtype"):
            save(tmp_path / "file", {"a": array})
    assert not list(tmp_path.iterdir())


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    save(tmp_path / "file")
    before = (tmp_path / "file").read_bytes()
    with pytest.raises(TypeError):
        save(tmp_path / "file", table={"a": object()})
    assert (tmp_path / "file").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


WRITER = """
import sys
from pathlib import Path
import numpy as np
from ella.array_file import save_arrays

path, value, times = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
print("ready", flush=True)
input()
for _ in range(times):
    save_arrays(path, {"a": np.full(100_000, value)}, kind="thing", version=3, table={"seed": 7})
print("done")
"""


def begin_writers(path: Path, *values: int, times: int) -> list[subprocess.Popen]:
    """Processes that write `values` to `path` again and again, all beginning now."""
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(value), str(times)],
            stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True,
        )
        for value in values
    ]  # fmt: skip
    for process in writers:
        assert process.stdout.readline() == "ready\n"
    for process in writers:
        process.stdin.write("\n")
        process.stdin.flush()
    return writers


@pytest.mark.thorough
def test_two_writers_at_once_both_succeed_and_readers_see_whole_files(tmp_path):
    path = tmp_path / "file"
    writers = begin_writers(path, 1, 2, times=20)
    seen = set()
    while any(process.poll() is None for process in writers):
        if path.exists():
            values = np.unique(load(path)["a"])
            assert len(values) == 1
            seen.update(values.tolist())
        time.sleep(0.01)
    for process in writers:
        assert process.communicate() == ("done\n", "")
    assert seen == {1, 2}
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_writer_killed_at_any_time_leaves_a_whole_file(tmp_path):
    path = tmp_path / "file"
    save(path, {"a": np.full(100_000, 1)})
    (process,) = begin_writers(path, 2, times=10_000)

    def is_being_written() -> bool:
        try:
            return any(one != path and one.stat().st_size for one in tmp_path.iterdir())
        except FileNotFoundError:  # renamed meanwhile
            return False

    while not is_being_written():
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert len(np.unique(load(path)["a"])) == 1


def a_tree() -> dict[str, Any]:
    return {
        "weights": (jnp.arange(6.0).reshape(2, 3), [jnp.ones(2, jnp.bfloat16), None, jnp.tanh]),
        "keys": jax.random.split(jax.random.key(7), 2),
        "step": jnp.array(3, jnp.uint32),
    }


def test_a_tree_becomes_named_arrays_and_back(tmp_path):
    tree = a_tree()
    named = named_arrays(tree)
    assert list(named) == ["keys", "step", "weights.0", "weights.1.0"]
    assert named["keys"].dtype == jnp.uint32
    save(tmp_path / "file", named)
    shapes = eqx.filter_eval_shape(lambda: tree)
    for like in (tree, shapes):
        found = replace_arrays(like, load(tmp_path / "file"))
        assert jax.tree.structure(found) == jax.tree.structure(tree)
        assert found["weights"][1][2] is jnp.tanh
        np.testing.assert_array_equal(found["weights"][0], tree["weights"][0])
        np.testing.assert_array_equal(
            jax.random.uniform(found["keys"][1], 3), jax.random.uniform(tree["keys"][1], 3)
        )


def test_two_arrays_of_one_name_are_an_error():
    with pytest.raises(ValueError, match=r"two arrays are named a\.b"):
        named_arrays({"a.b": jnp.zeros(1), "a": {"b": jnp.zeros(1)}})


def test_arrays_that_do_not_fit_the_tree_are_named():
    like = {"a": jnp.zeros(2), "b": jnp.zeros(1, jnp.int32)}
    a, b = np.zeros(2, np.float32), np.zeros(1, np.int32)
    for arrays, reason in (
        ({"a": a}, "b is missing"),
        ({"a": a, "b": b, "c": a}, "c is unknown"),
        ({"a": a[:1], "b": b}, r"a is float32\[1\], expected float32\[2\]"),
        ({"a": a, "b": b.astype(np.int64)}, r"b is int64\[1\], expected int32\[1\]"),
    ):
        with pytest.raises(MismatchedArraysError, match=reason):
            replace_arrays(like, arrays)
