"""Seeds over devices: whole seeds on each, and the same numbers as on one."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from ella.random_streams import Stream, stream_key
from ella.training.program import SeedProgram, held_out_key, seed_mesh, training_key

SCRIPT = """
from functools import partial
import jax, jax.numpy as jnp, numpy as np
from ella.training.program import SeedProgram, seed_mesh
from ella.measurement import Mean

assert len(jax.devices()) == 4

def initialise(shaper, key):
    return {"w": jax.random.normal(key, (3,)), "key": key}

def iterate_seed(shaper, iteration, state):
    key, noise = jax.random.split(state["key"])
    w = 0.9 * state["w"] + shaper["pull"] + jax.random.normal(noise, (3,)) * iteration
    return {"w": w, "key": key}, {"size": Mean(w.sum(), jnp.ones(()))}

def iterate(shapers, groups, iteration, numbers):
    done = [jax.vmap(partial(iterate_seed, shaper, iteration))(group)
            for shaper, group in zip(shapers, groups)]
    return tuple(zip(*done))

def trained(devices, *groups):
    mesh = seed_mesh([len(group) for group in groups], devices)
    shapers = [{"pull": jnp.array(0.5 * index), "name": "x"} for index, _ in enumerate(groups)]
    program = SeedProgram(initialise, iterate, shapers, groups, mesh)
    assert program.prepare() == (("size",),) * len(groups)
    states = program.start()
    for start, count in ((0, 3), (3, 2)):
        states, sums = program.advance(states, start, count)
    return states, sums

(alone,), (alone_sums,) = trained(jax.devices()[:1], range(8))
(spread,), (spread_sums,) = trained(jax.devices(), range(8))
shards = spread["w"].addressable_shards
assert len({s.device for s in shards}) == 4 and all(s.data.shape == (2, 3) for s in shards)
np.testing.assert_allclose(np.asarray(spread["w"]), np.asarray(alone["w"]), rtol=1e-6)
np.testing.assert_allclose(spread_sums["size"].total, alone_sums["size"].total, rtol=1e-6)
np.testing.assert_array_equal(np.asarray(spread_sums["size"].count), np.full(8, 2.0))

(seed5,), _ = trained(jax.devices(), (5,))
np.testing.assert_allclose(np.asarray(seed5["w"][0]), np.asarray(spread["w"][5]), rtol=1e-6)

(first, second), _ = trained(jax.devices(), range(8), range(2, 6))
np.testing.assert_allclose(np.asarray(first["w"]), np.asarray(alone["w"]), rtol=1e-6)
assert len({s.device for s in second["w"].addressable_shards}) == 4
assert not np.allclose(np.asarray(second["w"]), np.asarray(alone["w"])[2:6])
"""


@pytest.mark.thorough
def test_four_devices_train_whole_seeds_as_one_device_does():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    env = {**os.environ, "XLA_FLAGS": flags}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(
    ("seeds", "devices", "used"),
    [((8,), 4, 4), ((6,), 4, 3), ((5,), 4, 1), ((2,), 4, 2), ((1,), 1, 1), ((4, 6), 4, 2)],
)
def test_only_devices_that_divide_the_seeds_are_used(seeds, devices, used):
    assert seed_mesh(seeds, jax.devices() * devices).size == used


def numbers(key) -> tuple[int, ...]:
    return tuple(jax.random.key_data(key).tolist())


def test_evaluation_draws_from_another_stream_than_any_training():
    keys = [training_key(seed) for seed in range(50)] + [held_out_key(seed) for seed in range(50)]
    assert len({numbers(key) for key in keys}) == 100


@pytest.mark.parametrize("seed", [0, 7])
def test_evaluation_shares_no_key_with_what_else_is_drawn_from_its_seed(seed):
    """Offline stages and the fit of a switch split the seed's key up to three times."""
    levels, actions = jax.random.split(held_out_key(seed))
    evaluation = [held_out_key(seed), levels, actions]
    evaluation += [jax.random.fold_in(levels, batch) for batch in range(4)]
    used, newest = [], [jax.random.key(seed)]
    for _ in range(4):
        newest = [one for key in newest for one in jax.random.split(key, 4)]
        used += newest
    used += [stream_key(seed, stream) for stream in Stream if stream != Stream.EVALUATION]
    assert not {numbers(key) for key in evaluation} & {numbers(key) for key in used}


def test_weights_of_new_networks_and_of_files_make_one_program():
    new, read = jnp.full(3, 0.0), jnp.zeros(3, jnp.float32)
    assert new.weak_type != read.weak_type
    texts = set()
    for weights in (new, read):
        program = SeedProgram(
            lambda weights, key: weights + jax.random.normal(key, (3,)),
            lambda shapers, states, iteration, numbers: ((states[0] * shapers[0],), ({},)),
            [weights], [(0,)], seed_mesh([1], jax.devices()[:1]),
        )  # fmt: skip
        program.prepare()
        texts.add(program._lowered.as_text() + program._lowered_start().as_text())
    assert len(texts) == 1


def test_loop_and_start_compiled_in_turn_compute_as_they_do_otherwise():
    found = []
    for in_turn in (True, False):
        program = SeedProgram(
            lambda weights, key: weights + jax.random.normal(key, (3,)),
            lambda shapers, states, iteration, numbers: ((states[0] * shapers[0],), ({},)),
            [jnp.full(3, 2.0)], [(0,)], seed_mesh([1], jax.devices()[:1]),
        )  # fmt: skip
        program.prepare()
        if in_turn:
            program.compile_in_turn()
        assert program.is_compiled == in_turn
        states, _ = program.advance(program.start(), 0, 3)
        found.append(states[0].tolist())
    assert found[0] == found[1]
