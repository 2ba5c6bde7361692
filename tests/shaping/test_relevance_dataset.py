"""D against a plain dictionary."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ella.shaping import relevance_dataset as rd

NUM_IDS, L, T, B = 5, 40, 4, 3

record = jax.jit(rd.record)
sample_eight = jax.jit(lambda dataset: rd.sample_seen(dataset, 8, key=jax.random.key(0)))
record_seeds = jax.jit(jax.vmap(rd.record))


def update_dictionary(table: dict, ids, found, success) -> None:
    for t in range(T):
        for b in range(B):
            latest = frozenset(np.flatnonzero(found[t, b]))
            if success[t, b] and latest:
                shared = table.get(int(ids[t, b]), latest) & latest
                table[int(ids[t, b])] = shared or latest


def as_dictionary(dataset: rd.RelevanceDataset) -> dict:
    bits = np.asarray(rd.unpack(dataset.members, L))
    return {row: frozenset(np.flatnonzero(bits[row])) for row in range(NUM_IDS) if bits[row].any()}


@st.composite
def rollouts(draw):
    seed = draw(st.integers(0, 2**32 - 1))
    density = draw(st.sampled_from([0.02, 0.1, 0.6]))
    rng = np.random.default_rng(seed)
    return [
        (
            rng.integers(0, NUM_IDS, (T, B)).astype(np.int32),
            rng.random((T, B, L)) < density,
            rng.random((T, B)) < draw(st.sampled_from([0.2, 1.0])),
        )
        for _ in range(draw(st.integers(1, 4)))
    ]


@given(rollouts())
@settings(max_examples=60, deadline=None)
def test_equals_a_dictionary(history):
    table: dict = {}
    dataset = rd.empty(NUM_IDS, L)
    for ids, found, success in history:
        update_dictionary(table, ids, found, success)
        dataset = record(dataset, ids, found, success)
        assert as_dictionary(dataset) == table
        assert int(dataset.num_seen) == len(table)
        assert int(dataset.num_members) == sum(map(len, table.values()))


@given(rollouts(), rollouts())
@settings(max_examples=15, deadline=None)
def test_seeds_do_not_mix(history, other):
    tables: list[dict] = [{}, {}]
    dataset = jax.tree.map(lambda x: jnp.stack([x, x]), rd.empty(NUM_IDS, L))
    for rollout in zip(history, other, strict=False):
        for table, (ids, found, success) in zip(tables, rollout, strict=True):
            update_dictionary(table, ids, found, success)
        dataset = record_seeds(dataset, *(np.stack(part) for part in zip(*rollout, strict=True)))
    for index, table in enumerate(tables):
        assert as_dictionary(jax.tree.map(lambda x: x[index], dataset)) == table  # noqa: B023


def test_many_successes_of_one_instruction_are_taken_in_order():
    found = np.zeros((T, B, L), bool)
    found[..., 0] = True
    found[0, 0, 1] = True
    found[2, 1] = False
    found[2, 1, 5] = True  # shares nothing with what came before: replaces it
    found[2, 2] = False
    found[2, 2, [5, 6]] = True
    found[3] = False
    dataset = record(rd.empty(NUM_IDS, L), np.full((T, B), 3, np.int32), found, np.ones((T, B)) > 0)
    assert as_dictionary(dataset) == {3: frozenset({5})}


def test_bits_round_trip():
    bits = np.random.default_rng(0).random((7, 45)) < 0.5
    assert (np.asarray(rd.unpack(rd.pack(jnp.asarray(bits)), 45)) == bits).all()


def test_the_table_is_written_in_place():
    # 4.8 million rows must not be copied at every update.
    dataset = rd.empty(100_000, L)
    arguments = (np.zeros((T, B), np.int32), np.ones((T, B, L), bool), np.ones((T, B), bool))
    compiled = jax.jit(rd.record, donate_argnums=0).lower(dataset, *arguments).compile()
    memory = compiled.memory_analysis()
    assert memory.temp_size_in_bytes < dataset.members.nbytes / 10


@pytest.mark.parametrize("num_seen", [0, 5, 8, 30])
def test_samples_only_what_was_seen(num_seen):
    ids = np.random.default_rng(num_seen).choice(200, 30, replace=False).astype(np.int32)
    seen = np.arange(30) < num_seen
    dataset = record(rd.empty(200, L), ids, np.ones((30, L), bool), seen)
    sampled, used = sample_eight(dataset)
    sampled = np.asarray(sampled)[np.asarray(used)]
    assert len(sampled) == min(num_seen, 8)
    assert len(set(sampled)) == len(sampled)
    assert set(sampled) <= set(ids[seen])
