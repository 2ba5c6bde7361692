"""The evaluation of policies here and in minigrid."""

import logging
import math

import jax
import numpy as np
import pytest

from ella import load_policy
from ella.errors import InputError
from ella.networks.actor_critic import ActorCritic
from ella.networks.settings import NetworkSettings
from ella.training import evaluation
from ella.training.evaluation import EvaluatedEpisodes, evaluate
from ella.training.policy import Policy
from ella.world.tasks import find

TINY = NetworkSettings(
    variant="onehot", width=8, instruction_width=8, memory_width=8, head_width=8, blocks=1
)


def a_policy(task: str = "openpick-maze") -> Policy:
    network = ActorCritic(TINY, key=jax.random.key(3))
    statistics = jax.tree.map(lambda leaf: leaf + 0.01, network.initial_statistics())
    return Policy(find(task), network, statistics, seed=5, frames=640)


def test_printed_episodes_are_a_summary():
    length = np.arange(1000, dtype=np.int32)
    played = EvaluatedEpisodes(length >= 2, np.full(1000, 0.89), length)
    assert repr(played) == (
        "EvaluatedEpisodes(success 99.8 % [99.3, 99.9], return 0.89, length 499.5, 1000 episodes)"
    )


def test_progress_is_logged_between_batches_and_changes_nothing(monkeypatch, caplog):
    caplog.set_level(logging.INFO, "ella")
    monkeypatch.setattr(evaluation, "BATCH", 2)
    monkeypatch.setattr(evaluation, "SECONDS_BETWEEN_LINES", math.inf)
    silent = evaluate(a_policy("goto-small"), 5)
    assert caplog.messages == []
    monkeypatch.setattr(evaluation, "SECONDS_BETWEEN_LINES", 0.0)
    played = evaluate(a_policy("goto-small"), 5)
    # The third batch ends the evaluation.
    assert [line.split("  ")[0] for line in caplog.messages] == ["2/5 episodes", "4/5 episodes"]
    for name in ("success", "reward", "length"):
        found = getattr(played, name)
        assert found.shape == (5,)
        assert np.array_equal(found, getattr(silent, name))


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["greedy", "sampled"])
def test_minigrid_plays_the_same_episodes(mode):
    """The levels, the observations and the random keys are the same, so the episodes are too;
    rounding may turn single actions."""
    policy = load_policy("agent:putnext-room")
    here = evaluate(policy, 24, mode=mode, seed=1)
    there = evaluate(policy, 24, mode=mode, seed=1, backend="minigrid")
    assert (here.length == there.length).mean() > 0.9
    assert here.success_rate.overlaps(there.success_rate)
    assert here.mean_return.overlaps(there.mean_return)
    assert len(set(here.length.tolist())) > 5


def test_progress_in_minigrid_is_logged_within_a_batch(monkeypatch, caplog):
    caplog.set_level(logging.INFO, "ella")
    monkeypatch.setattr(evaluation, "SECONDS_BETWEEN_LINES", 0.0)
    played = evaluate(a_policy("goto-small"), 24, mode="sampled", backend="minigrid")
    ended = [line.split(" ")[0] for line in caplog.messages]
    # Of steps after which all have ended there is one, of which nothing is logged.
    lengths = sorted(played.length.tolist())
    expected = [sum(length <= step for length in lengths) for step in range(1, lengths[-1])]
    assert ended == [f"{count}/24" for count in expected]
    assert len(set(expected)) > 1


def test_evaluation_refuses_nonsense():
    with pytest.raises(InputError, match="episodes must be >= 1, got 0"):
        evaluate(a_policy(), 0)
    with pytest.raises(InputError, match="unknown backend"):
        evaluate(a_policy(), 1, backend="gym")
    with pytest.raises(InputError, match="unknown mode 'Greedy'; did you mean greedy"):
        evaluate(a_policy(), 1, mode="Greedy")
    for seed in (-1, 2**32):
        with pytest.raises(InputError, match=f"between 0 and 4294967295, got {seed}"):
            evaluate(a_policy(), 1, seed=seed)
