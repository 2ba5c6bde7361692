"""Exported policies, and their evaluation here and in minigrid."""

import json

import jax
import numpy as np
import pytest

from ella.errors import InputError
from ella.networks.actor_critic import ActorCritic, NetworkSettings
from ella.runs.policies import Policy, load_policy, save_policy
from ella.training.evaluation import evaluate
from ella.world.tasks import find

TINY = NetworkSettings(
    variant="onehot", width=8, instruction_width=8, memory_width=8, head_width=8, blocks=1
)


def a_policy(task: str = "openpick-maze") -> Policy:
    network = ActorCritic(TINY, key=jax.random.key(3))
    statistics = jax.tree.map(lambda leaf: leaf + 0.01, network.initial_statistics())
    return Policy(find(task), network, statistics, seed=5, frames=640)


def test_a_policy_reads_back_bit_for_bit(tmp_path):
    policy = a_policy()
    save_policy(policy, tmp_path / "seed-5")
    for name in ("seed-5.json", "seed-5.safetensors"):
        found = load_policy(tmp_path / name)
        assert (found.spec, found.seed, found.frames) == (policy.spec, 5, 640)
        assert found.network.config == TINY
        for a, b in zip(
            jax.tree.leaves((found.network, found.statistics)),
            jax.tree.leaves((policy.network, policy.statistics)),
            strict=True,
        ):
            np.testing.assert_array_equal(a, b)


def test_damaged_and_foreign_policies_are_refused(tmp_path):
    save_policy(a_policy(), tmp_path / "seed-5")
    table = json.loads((tmp_path / "seed-5.json").read_text())
    weights = (tmp_path / "seed-5.safetensors").read_bytes()

    def refused(match: str, **changes) -> None:
        (tmp_path / "seed-5.json").write_text(json.dumps({**table, **changes}))
        with pytest.raises(InputError, match=match):
            load_policy(tmp_path / "seed-5.json")

    refused("format version 7", format_version=7)
    refused("another vocabulary", vocabulary=["go"])
    refused("does not hold the network", network={**table["network"], "width": 16})
    (tmp_path / "seed-5.safetensors").write_bytes(weights[:100])
    refused("cannot read")
    with pytest.raises(InputError, match="is not a run"):
        load_policy(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="holds no policies"):
        load_policy(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [pytest.param("greedy", marks=pytest.mark.thorough), "sampled"])
def test_minigrid_plays_the_same_episodes(mode):
    """The levels, the observations and the random keys are the same, so the episodes are too;
    rounding may turn single actions."""
    policy = a_policy()
    here = evaluate(policy, 24, mode=mode, seed=1)
    there = evaluate(policy, 24, mode=mode, seed=1, backend="minigrid")
    assert (here.length == there.length).mean() > 0.9
    assert here.success_rate.overlaps(there.success_rate)
    assert here.mean_return.overlaps(there.mean_return)
    if mode == "sampled":
        assert len(set(here.length.tolist())) > 1


def test_evaluation_refuses_nonsense():
    with pytest.raises(InputError, match="at least 1"):
        evaluate(a_policy(), 0)
    with pytest.raises(InputError, match="unknown backend"):
        evaluate(a_policy(), 1, backend="gym")
