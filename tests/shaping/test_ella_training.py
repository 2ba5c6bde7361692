"""ELLA fits the training loop: every high-level task, several seeds, iterations in a scan."""

import jax
import jax.numpy as jnp
import pytest

from ella.networks.settings import TerminationNetworkSettings
from ella.offline.termination import TrainedTermination
from ella.offline.train_termination import empty_model
from ella.shaping.ella import ella_shaper
from ella.shaping.oracle import low_level_of
from ella.shaping.relevance import OracleRelevance
from ella.trajectory import InstructionTable, Trajectory
from ella.world.state import GridObservation
from ella.world.tasks import all_tasks, find

SEEDS, T, B, R = 2, 8, 4, 12
QUICK = ("putnext-room",)
MEASURED = {
    *("bonus_per_episode", "low_level_completions", "decomposition_size", "instructions_seen"),
    *("success_charge", "insolvent_successes", "success_net_reward"),
}
RELEVANCE = {"relevance_accuracy", "relevance_precision", "relevance_recall"}


@pytest.fixture(scope="module")
def untrained():
    settings = TerminationNetworkSettings(width=8, instruction_width=8, head_width=4, blocks=1)
    return jax.jit(empty_model, static_argnums=0)(settings, key=jax.random.key(0))


@pytest.mark.parametrize(
    "oracle",
    [
        pytest.param(False, id="learned", marks=pytest.mark.thorough),
        pytest.param(True, id="oracle"),
    ],
)
@pytest.mark.parametrize(
    "task",
    [
        pytest.param(spec.name, marks=() if spec.name in QUICK else pytest.mark.thorough)
        for spec in all_tasks()
        if spec.low_level
    ],
)
def test_state_keeps_its_shape(task, oracle, untrained):
    """Traced, not run."""
    spec = find(task)
    termination = TrainedTermination(low_level_of(spec), untrained, {}).prepared("bfloat16", 10)
    shaper = ella_shaper(spec, termination, OracleRelevance(spec) if oracle else None)

    def rollout(key):
        ids = jax.random.randint(key, (R,), 0, spec.language.num_ids)
        zero = jnp.zeros((T, B), jnp.int32)
        seen = GridObservation(jnp.zeros((T, B, 7, 7, 3), jnp.uint8), zero)
        return Trajectory(
            observation=seen, first=zero == 1, instruction_row=zero, action=zero,
            reward=zero.astype(jnp.float32), terminated=zero == 1, truncated=zero == 1,
            next_observation=seen, instructions=InstructionTable(ids, spec.language.tokens(ids)),
        )  # fmt: skip

    def one_iteration(state, key, iteration):
        trajectory = rollout(key)
        state, bonus, shaped = shaper.shape(state, trajectory)
        state, fitted = shaper.fit(state, trajectory, iteration, key=key)
        return state, (bonus, {**shaped, **fitted})

    def train(keys):
        states = jax.vmap(lambda key: shaper.init(B, key=key))(keys)
        iterate = jax.vmap(one_iteration, in_axes=(0, 0, None))
        return states, jax.lax.scan(
            lambda states, iteration: iterate(states, keys, iteration), states, jnp.arange(3)
        )

    keys = jax.random.split(jax.random.key(0), SEEDS)
    before, (after, (bonus, measured)) = jax.eval_shape(train, keys)
    assert jax.tree.leaves(before) == jax.tree.leaves(after)
    assert bonus.shape == (3, SEEDS, T, B)
    assert measured.keys() == (MEASURED if oracle else MEASURED | RELEVANCE)
    assert after.dataset.members.shape[:2] == (SEEDS, spec.language.num_ids)
