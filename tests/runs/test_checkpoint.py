"""Checkpoints: complete or absent, damage noticed, the wrong ones refused."""

import json
import threading
from contextlib import suppress
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ella.errors import InputError
from ella.runs.checkpoint import UNFINISHED, CheckpointStore, fingerprint


def a_state(scale: float = 1.0) -> dict:
    return {
        "weights": {"a": jnp.arange(6.0).reshape(2, 3) * scale, "b": jnp.ones(2, jnp.bfloat16)},
        "key": jax.random.split(jax.random.key(7), 2),
        "counters": (jnp.array([3, 4], jnp.int32), jnp.array([True, False])),
        "cells": jnp.arange(4, dtype=jnp.uint8),
    }


def raw(tree):
    return [
        np.asarray(jax.random.key_data(leaf))
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        else np.asarray(leaf)
        for leaf in jax.tree.leaves(tree)
    ]


def assert_same(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(raw(left), raw(right), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def largest_file(path: Path) -> Path:
    files = [file for file in (path / "state").rglob("*") if file.is_file()]
    return max(files, key=lambda file: file.stat().st_size)


@pytest.fixture
def store(tmp_path):
    return CheckpointStore(tmp_path / "checkpoints", "abc", keep=2)


def test_every_dtype_and_random_key_comes_back_bit_for_bit(store):
    store.save(a_state(), 5)
    found = store.restore_newest(a_state(0.0))
    assert found.iteration == 5
    assert_same(found.state, a_state())


def test_a_write_that_failed_and_still_goes_on_does_not_disturb_the_next(store):
    """Orbax's threads may fill the directory of a failed write after it was removed."""
    stop, seen = threading.Event(), set()

    def write_late():
        while not stop.is_set():
            present = set(store.directory.glob(f"{UNFINISHED}*"))
            for gone in seen - present:
                with suppress(FileNotFoundError):  # removed again at this very moment
                    (gone / "state").mkdir(parents=True, exist_ok=True)
            seen.update(present)

    late = threading.Thread(target=write_late)
    late.start()
    try:
        for scale in range(5):
            store.save(a_state(scale), 5)
    finally:
        stop.set()
        late.join()
    assert_same(store.restore_newest(a_state()).state, a_state(4))


def test_the_newest_few_are_kept(store):
    for iteration in (1, 2, 3, 10):
        store.save(a_state(iteration), iteration)
    assert [path.name for path in store.paths()] == ["000000003", "000000010"]
    assert_same(store.restore_newest(a_state()).state, a_state(10))


def test_an_empty_directory_has_nothing_to_restore(store):
    assert store.restore_newest(a_state()) is None


@pytest.mark.parametrize("damage", ["cut", "flip", "remove", "manifest"])
def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(store, damage):
    store.save(a_state(1), 1)
    newest = store.save(a_state(2), 2)
    file = newest / "manifest.json" if damage == "manifest" else largest_file(newest)
    content = bytearray(file.read_bytes())
    if damage == "remove":
        file.unlink()
    elif damage == "flip":
        content[len(content) // 2] ^= 1
        file.write_bytes(bytes(content))
    else:
        file.write_bytes(bytes(content[: len(content) // 2]))
    lines = []
    found = store.restore_newest(a_state(), on_damage=lines.append)
    assert found.iteration == 1
    assert_same(found.state, a_state(1))
    assert len(lines) == 1
    assert "000000002 is damaged" in lines[0]


def test_nothing_but_damaged_checkpoints_is_an_error(store):
    largest_file(store.save(a_state(), 1)).write_bytes(b"")
    with pytest.raises(InputError, match="every checkpoint"):
        store.restore_newest(a_state())


def test_an_unfinished_checkpoint_is_neither_used_nor_kept(store):
    store.save(a_state(1), 1)
    unfinished = store.directory / ".unfinished-2"
    (unfinished / "state").mkdir(parents=True)
    assert store.restore_newest(a_state()).iteration == 1
    store.save(a_state(2), 2)
    assert not unfinished.exists()


def test_other_settings_formats_and_shapes_are_refused(store):
    path = store.save(a_state(), 1)
    with pytest.raises(InputError, match="other settings"):
        CheckpointStore(store.directory, "xyz").restore_newest(a_state())
    with pytest.raises(InputError, match="other names or sizes"):
        store.restore_newest({**a_state(), "cells": jnp.zeros(5, jnp.uint8)})
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["format_version"] = 99
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="format version 99"):
        store.restore_newest(a_state())


def test_a_fingerprint_depends_on_every_setting_but_not_on_their_order():
    settings = {"a": 1, "b": [1.5, None]}
    assert fingerprint(settings) == fingerprint(dict(reversed(settings.items())))
    assert fingerprint({**settings, "a": 2}) != fingerprint(settings)
