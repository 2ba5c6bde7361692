"""An agent's own successes tell it when a clause is done."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_runs import TINY

from ella.errors import InputError
from ella.networks.actor_critic import ActorCritic
from ella.runs.policies import load_policy
from ella.training.clause_switch import EARLY, fitted, with_switch
from ella.training.policy import Policy
from ella.training.warm_start import check_fits
from ella.world.tasks import find


def played(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Memories [T N M] of missions that are done at some step, or never; two of sixteen numbers
    tell, with noise. In a hundredth of the missions they lie from the start."""
    generator = np.random.default_rng(seed)
    end = generator.integers(4, 40, size=count)
    is_done = np.arange(32)[:, None] >= end
    tells = is_done | (np.arange(count) % 100 == 1)
    found = generator.normal(size=(32, count, 16)).astype(np.float32)
    found[..., 3] += 6 * tells
    found[..., 7] -= 6 * tells
    return np.tanh(found), is_done


@pytest.mark.thorough
def test_it_moves_on_after_a_clause_and_rarely_before():
    switch = fitted(*played(4800, 0))
    memories, is_done = played(2000, 1)
    moves = np.asarray(switch.layer(jnp.asarray(memories), "float32"))[..., 0] > 0
    after = moves[is_done].mean()
    assert after > 0.95
    assert switch.recall == pytest.approx(after, abs=0.03)
    too_early = (moves & ~is_done).any(axis=0).mean()
    assert 0.005 < too_early < 3 * EARLY


@pytest.mark.thorough
def test_an_agent_without_successes_is_refused():
    network = eqx.filter_jit(lambda key: ActorCritic(TINY.ppo.network, key=key))(jax.random.key(9))
    policy = Policy(find("goto-small"), network, network.initial_statistics(), 0, 0)
    with pytest.raises(InputError, match="of 8 single clauses, too few"):
        with_switch(policy, "sequence-room", levels=8, steps=4)


@pytest.mark.thorough
def test_an_agent_of_single_clauses_gets_a_switch_that_knows_when_it_is_done(caplog):
    caplog.set_level("INFO", "ella")
    policy = load_policy("agent:putnext-maze")
    switched = with_switch(policy, find("sequence-maze"), levels=96, steps=48)
    assert switched.network.config.clauses == 2
    assert switched.network.switch is not None
    check_fits(switched, replace(policy.network.config, clauses=2))
    share = float(caplog.messages[-1].split()[4].rstrip("%"))
    assert share > 50
    ours, theirs = (jax.tree.leaves(one.network) for one in (policy, switched))
    for leaf in ours:
        assert any(leaf is other or np.array_equal(leaf, other) for other in theirs)
