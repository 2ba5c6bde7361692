"""Checkpoints: complete or absent, damage noticed, the wrong ones refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ella.array_file import named_arrays, save_arrays
from ella.durable_files import UNFINISHED
from ella.errors import InputError
from ella.methods.ride import RIDE
from ella.runs.checkpoint import CheckpointStore
from ella.runs.config_file import read_run, write_config
from ella.runs.stores import checkpoint_store
from ella.training.settings import TrainingSettings
from ella.world.tasks import find

SETTINGS = {"method": "ppo", "ppo.epochs": 4, "also": ["goto-room"]}


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


@pytest.fixture
def store(tmp_path):
    return CheckpointStore(tmp_path / "checkpoints", SETTINGS, keep=2)


def test_every_dtype_and_random_key_comes_back_bit_for_bit(store):
    store.save(a_state(), 5)
    found = store.restore_newest(a_state(0.0))
    assert found.iteration == 5
    assert_same(found.state, a_state())


def test_the_newest_few_are_kept(store):
    for iteration in (1, 2, 3, 10):
        store.save(a_state(iteration), iteration)
    assert [path.name for path in store.paths()] == [
        "000000003.safetensors",
        "000000010.safetensors",
    ]
    assert_same(store.restore_newest(a_state()).state, a_state(10))


def test_an_empty_directory_has_nothing_to_restore(store):
    assert store.restore_newest(a_state()) is None


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty"])
def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(store, damage, caplog):
    store.save(a_state(1), 1)
    newest = store.save(a_state(2), 2)
    content = bytearray(newest.read_bytes())
    if damage == "flip":
        content[-3] ^= 1
    newest.write_bytes(content[: {"truncate": -1, "flip": None, "empty": 0}[damage]])
    found = store.restore_newest(a_state())
    assert found.iteration == 1
    assert_same(found.state, a_state(1))
    (line,) = caplog.messages
    assert "000000002.safetensors is damaged" in line


def test_nothing_but_damaged_checkpoints_is_an_error(store):
    store.save(a_state(), 1).write_bytes(b"")
    with pytest.raises(InputError, match="every checkpoint"):
        store.restore_newest(a_state())


def test_the_newest_up_to_an_iteration_can_be_asked_for(store):
    for iteration in (1, 2):
        store.save(a_state(iteration), iteration)
    assert_same(store.restore_newest(a_state(), at_most=1).state, a_state(1))
    assert store.restore_newest(a_state(), at_most=0) is None


def test_what_a_killed_process_left_is_neither_used_nor_kept(store):
    store.save(a_state(1), 1)
    unfinished = store.directory / f".000000002.safetensors.0f{UNFINISHED}"
    unfinished.write_bytes(store.paths()[0].read_bytes()[:100])
    assert store.restore_newest(a_state()).iteration == 1
    store.save(a_state(2), 2)
    assert not unfinished.exists()


def test_other_settings_formats_and_shapes_are_refused(store):
    path = store.save(a_state(), 1)
    other = CheckpointStore(store.directory, {**SETTINGS, "ppo.epochs": 3})
    with pytest.raises(InputError, match=r"other settings \(ppo.epochs 4 instead of 3\)"):
        other.restore_newest(a_state())
    with pytest.raises(InputError, match=r"other names or sizes \(cells is uint8\[4\]"):
        store.restore_newest({**a_state(), "cells": jnp.zeros(5, jnp.uint8)})
    save_arrays(path, named_arrays(a_state()), kind="checkpoint", version=99, table={})
    with pytest.raises(InputError, match="format version 99"):
        store.restore_newest(a_state())


def test_settings_that_versions_add_or_drop_do_not_matter(store):
    store.save(a_state(), 1)
    for settings in ({"method": "ppo"}, {**SETTINGS, "ppo.new": 1}):
        assert CheckpointStore(store.directory, settings).restore_newest(a_state()) is not None


def test_a_run_can_be_resumed_after_a_default_has_changed(tmp_path, monkeypatch):
    spec = find("goto-room")
    write_config(tmp_path, spec, TrainingSettings(method=RIDE()))
    checkpoint_store(tmp_path, *read_run(tmp_path)).save(a_state(), 1)
    make, before = RIDE.__init__, RIDE().decay
    defaults = tuple(0.5 if value == before else value for value in make.__defaults__)
    monkeypatch.setattr(make, "__defaults__", defaults)
    assert RIDE().decay == 0.5
    found, settings = read_run(tmp_path)
    assert settings.method.decay == before
    assert checkpoint_store(tmp_path, found, settings).restore_newest(a_state()).iteration == 1
