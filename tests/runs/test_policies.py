"""Exported policies: one file each, exact."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from ella.array_file import ArrayFile, load_arrays, save_arrays
from ella.errors import InputError
from ella.networks.actor_critic import ActorCritic, NetworkSettings
from ella.runs.policies import load_policy, policy_files
from ella.training.policy import FORMAT_VERSION, KIND, Policy
from ella.world.tasks import find

TINY = NetworkSettings(
    variant="onehot", width=8, instruction_width=8, memory_width=8, head_width=8, blocks=1
)


def a_policy() -> Policy:
    network = ActorCritic(TINY, key=jax.random.key(3))
    statistics = jax.tree.map(lambda leaf: leaf + 1e5, network.initial_statistics())
    return Policy(find("openpick-maze"), network, statistics, seed=5, frames=640)


def weights(policy: Policy) -> list[np.ndarray]:
    return jax.tree.leaves((policy.network, policy.statistics))


def assert_same_policy(found: Policy, expected: Policy) -> None:
    assert replace(found, network=None, statistics=None) == replace(
        expected, network=None, statistics=None
    )
    assert found.network.config == expected.network.config
    for a, b in zip(weights(found), weights(expected), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_saving_makes_the_folders_that_are_missing(tmp_path):
    a_policy().save(tmp_path / "new" / "folder" / "unlock")
    assert_same_policy(load_policy(tmp_path / "new" / "folder" / "unlock.safetensors"), a_policy())
    (tmp_path / "file").write_text("")
    for place in ("file/unlock", "file/folder/unlock"):
        with pytest.raises(InputError, match=f"{tmp_path / 'file'}.* is not a folder"):
            a_policy().save(tmp_path / place)


def test_a_policy_is_one_file_that_reads_back_bit_for_bit(tmp_path):
    policy = a_policy()
    policy.save(tmp_path / "seed-5")
    assert [path.name for path in tmp_path.iterdir()] == ["seed-5.safetensors"]
    for name in ("seed-5.safetensors", "seed-5"):
        assert_same_policy(load_policy(tmp_path / name), policy)


def test_a_dot_in_a_policys_name_is_no_suffix(tmp_path):
    names = ("lambda0.25", "lambda0.5", "unlock.json", "version.safetensors.old")
    for seed, name in enumerate(names):
        replace(a_policy(), seed=seed).save(tmp_path / name)
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.safetensors" for name in names}
    for seed, name in enumerate(names):
        for named in (name, f"{name}.safetensors"):
            assert load_policy(tmp_path / named).seed == seed


def test_a_policy_that_was_saved_without_what_follows_its_dot_is_named(tmp_path):
    """Never read in place of another: it may be any policy whose name began so."""
    a_policy().save(tmp_path / "lambda0")
    with pytest.raises(InputError, match=r"neither .* saved it as .*/lambda0\.safetensors"):
        load_policy(tmp_path / "lambda0.25")
    with pytest.raises(InputError, match=r"nor a policy file$"):
        load_policy(tmp_path / "lambda1.25")


def test_policies_of_a_run_are_found_in_the_order_of_seeds(tmp_path):
    (tmp_path / "policies").mkdir()
    for seed in (10, 9):
        replace(a_policy(), seed=seed).save(tmp_path / "policies" / f"seed-{seed}")
    assert [load_policy(path).seed for path in policy_files(tmp_path)] == [9, 10]
    assert load_policy(tmp_path, 1).seed == 10
    with pytest.raises(InputError, match=r"seed index 2 is outside 0\.\.1"):
        load_policy(tmp_path, 2)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_half_the_size_and_loads_as_float32(tmp_path, dtype):
    policy = a_policy()
    policy.save(tmp_path / "full")
    policy.save(tmp_path / "half", dtype=dtype)

    def stored(name: str) -> int:
        found = load_arrays(tmp_path / name, kind=KIND, version=FORMAT_VERSION).arrays
        return sum(array.nbytes for key, array in found.items() if key.startswith("network."))

    assert stored("half.safetensors") == stored("full.safetensors") / 2
    found = load_policy(tmp_path / "half")
    rounded = jax.tree.map(lambda leaf: leaf.astype(jnp.dtype(dtype)), policy.network)
    expected = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), rounded)
    assert_same_policy(found, replace(policy, network=expected))


def test_damaged_and_foreign_policies_are_refused(tmp_path):
    path = tmp_path / "seed-5.safetensors"
    a_policy().save(path)
    whole = load_arrays(path, kind=KIND, version=FORMAT_VERSION)
    content = path.read_bytes()

    def refused(match: str, file: ArrayFile = whole, version: int = FORMAT_VERSION, **changes):
        table = {**file.table, **changes}
        save_arrays(path, file.arrays, kind=KIND, version=version, table=table)
        with pytest.raises(InputError, match=match):
            load_policy(path)

    refused("format version 7", version=7)
    refused("another vocabulary", vocabulary=["go"])
    refused("does not hold the network", network={**whole.table["network"], "width": 16})
    refused("seed must be a whole number", seed="five")
    refused("expected a table with a name", task=None)
    less = {name: array for name, array in whole.arrays.items() if "critic" not in name}
    refused("critic.* is missing", ArrayFile(less, whole.table))
    for damaged in (content[:100], content[:-1] + b"x"):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="is damaged"):
            load_policy(path)
    safetensors.numpy.save_file(less, path)
    with pytest.raises(InputError, match="another program"):
        load_policy(path)
    with pytest.raises(InputError, match="neither the directory of a run nor a policy"):
        load_policy(tmp_path / "seed-6")
    with pytest.raises(InputError, match="is not a run"):
        load_policy(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="holds no policies"):
        load_policy(tmp_path)
