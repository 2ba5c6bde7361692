"""What ELLA learned of relevance, exported and read back."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ella
from ella import agents
from ella.array_file import load_arrays, named_arrays, save_arrays
from ella.methods.method import BuildContext
from ella.runs.config_file import read_run
from ella.runs.relevance_file import (
    FORMAT_VERSION,
    KIND,
    RELEVANCE_FILE,
    SEEN,
    TABLE,
    load_relevance,
    save_relevance,
)
from ella.shaping.settings import RelevanceSettings
from ella.training.assembly import build_shaper
from ella.world.tasks import find

SPEC = find("unlock-small")
MANY = 100_000.0
"""More than half precision holds."""


@cache
def shaper(labels: str) -> ella.EllaShaper:
    relevance = RelevanceSettings(labels=labels, recent_successes=16, fewest_successes=2)
    method = ella.ELLA(relevance=relevance)
    return method.build(BuildContext(SPEC, ella.PPOSettings(), only_judges=True))


def a_state(labels: str):
    """Every array different from zero; D has two rows, counts are large."""

    def filled(leaf):
        if leaf.dtype == np.float32:
            return jnp.linspace(0.1, 0.9, leaf.size, dtype=leaf.dtype).reshape(leaf.shape)
        return jnp.ones(leaf.shape, leaf.dtype)

    state = jax.tree.map(filled, shaper(labels).state_shapes(1))
    members = state.dataset.members * 0
    members = members.at[jnp.array([1, 3])].set(5)
    state = replace(state, dataset=replace(state.dataset, members=members))
    if labels == "beliefs":
        rates = replace(state.relevance.rates, episodes=jnp.asarray(MANY))
        state = replace(state, relevance=replace(state.relevance, rates=rates))
    return state


def stored(folder) -> dict[str, np.ndarray]:
    return load_arrays(folder / RELEVANCE_FILE, kind=KIND, version=FORMAT_VERSION).arrays


@pytest.mark.parametrize("labels", ["intersections", "beliefs"])
def test_all_but_what_training_needs_reads_back_and_only_weights_are_rounded(tmp_path, labels):
    state = a_state(labels)
    save_relevance(tmp_path, state)
    saved = stored(tmp_path)
    assert not [name for name in saved if "optimiser" in name or name.startswith("ledger")]
    halved = {name for name, array in saved.items() if array.dtype == np.float16}
    assert halved
    assert all(".classifier." in name for name in halved)

    _, found = load_relevance(tmp_path, SPEC, shaper(labels))
    expected = named_arrays(state)
    for name, array in named_arrays(found).items():
        if "optimiser" in name or name.startswith("ledger"):
            assert not np.asarray(array).any(), name
        else:
            rounded = np.asarray(expected[name], np.float16 if name in halved else None)
            np.testing.assert_array_equal(array, rounded.astype(array.dtype), err_msg=name)
    if labels == "beliefs":
        assert found.relevance.rates.episodes == MANY


def test_a_file_with_the_optimiser_of_beliefs_is_read(tmp_path):
    """As earlier versions exported it, with every number in half precision."""
    state = a_state("beliefs")
    with np.errstate(over="ignore"):
        arrays = {
            name: np.asarray(array, np.float16 if array.dtype == np.float32 else None)
            for name, array in named_arrays(state).items()
            if not name.startswith(("ledger.", "relevance.optimiser."))
        }
    assert any(name.startswith("relevance.learner.optimiser.") for name in arrays)
    arrays[SEEN] = np.array([1, 3], np.int32)
    arrays[TABLE] = arrays[TABLE][arrays[SEEN]]
    save_arrays(tmp_path / RELEVANCE_FILE, arrays, kind=KIND, version=FORMAT_VERSION, table={})
    _, found = load_relevance(tmp_path, SPEC, shaper("beliefs"))
    weights = named_arrays(found.relevance.learner.classifier)
    for name, array in named_arrays(state.relevance.learner.classifier).items():
        np.testing.assert_array_equal(
            weights[name], np.asarray(array, np.float16).astype(np.float32), err_msg=name
        )
    np.testing.assert_array_equal(found.dataset.members, state.dataset.members)


def test_the_files_of_the_agents_that_come_with_the_package_are_read():
    for name in agents.names():
        folder = agents.FOLDER / name
        spec, settings = read_run(folder)
        judging = build_shaper(spec, settings, trained=False, only_judges=True)
        saved, found = stored(folder), named_arrays(load_relevance(folder, spec, judging)[1])
        for key in saved.keys() - {SEEN, TABLE}:
            np.testing.assert_array_equal(found[key], saved[key].astype(found[key].dtype))
            assert np.isfinite(found[key]).all()
        np.testing.assert_array_equal(found[TABLE][saved[SEEN]], saved[TABLE])
