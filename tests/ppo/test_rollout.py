"""A real rollout, replayed through the path that learns from it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_runs import TINY

from ella.networks.actor_critic import ActorCritic, Memory
from ella.networks.settings import NetworkSettings
from ella.ppo.advantage import AdvantageEstimate, estimate_rollout
from ella.ppo.loss import replay, split_into_sequences
from ella.ppo.rollout import Rollout, collect, gather_log_prob, start_environments
from ella.ppo.settings import PPOSettings
from ella.world.environment import Environment, make
from ella.world.tasks import TaskSpec

# Short horizons, so that a rollout holds timeouts as well as successes.
ENV = make(
    TaskSpec(
        "close-by", ("goto",), cols=1, room_size=5, distractors=2, agent_first=True, max_steps=7
    )
)
CONFIG = PPOSettings(
    network=TINY.ppo.network,
    num_envs=16,
    rollout_length=16,
    bptt_length=8,
    minibatch_frames=128,
    pool_size=16,
    bootstrap_truncation=True,
    unroll=1,
)


@dataclasses.dataclass
class Played:
    network: ActorCritic
    start_memory: Memory
    end_memory: Memory
    rollout: Rollout


def play(env: Environment, settings: NetworkSettings) -> Played:
    """A rollout from the middle of episodes: the memory is not zero at its start."""
    config = dataclasses.replace(CONFIG, network=settings)

    @jax.jit
    def run(key: jax.Array) -> tuple:
        keys = jax.random.split(key, 4)
        network = ActorCritic(settings, key=keys[0])
        vector = env.start(keys[1], config.num_envs, config.pool_size)
        vector = dataclasses.replace(vector, first=jnp.arange(config.num_envs) < 4)
        memory = Memory(*jax.random.normal(keys[2], (2, config.num_envs, 8)))
        if settings.clauses == 2:
            share = jnp.linspace(0, 1, config.num_envs)[:, None]
            memory = dataclasses.replace(memory, moved_on=share)
        _, end, rollout = collect(env, config, network, vector, memory, key=keys[3])
        return network, memory, end, rollout

    return Played(*run(jax.random.key(0)))


@pytest.fixture(scope="module")
def played() -> Played:
    return play(ENV, CONFIG.network)


def test_the_rollout_holds_every_kind_of_end(played: Played) -> None:
    trajectory = played.rollout.trajectory
    assert trajectory.terminated.any()
    assert (trajectory.truncated & ~trajectory.terminated).any()
    assert trajectory.first[1:].any()
    np.testing.assert_array_equal(trajectory.first[1:], trajectory.done[:-1])
    length = np.asarray(played.rollout.episode_length)
    assert (length[1:][np.asarray(trajectory.first[1:])] == 1).all()
    assert (length[np.asarray(trajectory.truncated)] == 7).all()
    reset = np.asarray(trajectory.done[:-1])
    later = jax.tree.map(lambda leaf: np.asarray(leaf)[1:], trajectory.observation)
    after = jax.tree.map(lambda leaf: np.asarray(leaf)[:-1], trajectory.next_observation)
    same = (after.image == later.image).all((2, 3, 4)) & (after.direction == later.direction)
    assert same[~reset].all()
    assert not same[reset].all()


@pytest.mark.thorough
def test_a_pool_of_size_0_is_fresh_and_embeds_the_whole_language(played: Played) -> None:
    automatic = dataclasses.replace(CONFIG, pool_size=0, bootstrap_truncation=False)

    @jax.jit
    def play(key: jax.Array) -> Rollout:
        vector = start_environments(ENV, automatic, key=key)
        memory = played.network.initial_memory(automatic.num_envs)
        return collect(ENV, automatic, played.network, vector, memory, key=key)[2]

    rollout = play(jax.random.key(1))
    assert int(played.rollout.levels_reused) > 0, "16 levels are too few here"
    assert int(rollout.levels_reused) == 0
    trajectory = rollout.trajectory
    language = ENV.language
    assert trajectory.instructions.ids.tolist() == list(range(language.num_ids))
    np.testing.assert_array_equal(trajectory.instruction_row, trajectory.instruction_id)
    same = np.asarray(trajectory.instruction_id[1:] == trajectory.instruction_id[:-1])
    assert same[~np.asarray(trajectory.first[1:])].all()
    assert language.is_valid(np.asarray(trajectory.instruction_id)).all()


def replayed(played: Played) -> tuple[jax.Array, jax.Array]:
    """Probabilities and values of the same steps, from the learning path, as [L, N]."""
    nothing = AdvantageEstimate(played.rollout.value, played.rollout.value)

    @jax.jit
    def run(network: ActorCritic, rollout: Rollout) -> tuple:
        sequences = split_into_sequences(rollout, nothing, CONFIG.bptt_length)
        log_probs, values = [], []
        # The k-th sequences of all environments: the rows whose statistics were used in acting.
        for k in range(2):
            rows = k * CONFIG.num_envs + jnp.arange(CONFIG.num_envs)
            some = sequences.take(rows)
            now = replay(network, rollout.trajectory.instructions.tokens, some, unroll=2)
            log_probs.append(gather_log_prob(now.log_probs, some.action))
            values.append(now.value)
        return jnp.concatenate(log_probs), jnp.concatenate(values)

    return run(played.network, played.rollout)


def test_replaying_with_the_same_rows_gives_ratio_one(played: Played) -> None:
    log_prob, value = replayed(played)
    np.testing.assert_allclose(np.exp(log_prob - played.rollout.log_prob), 1, atol=1e-4)
    np.testing.assert_allclose(value, played.rollout.value, atol=1e-4)
    assert np.std(played.rollout.log_prob) > 1e-3


SEQUENCES = make(
    TaskSpec(
        "two-errands", ("goto",), cols=1, room_size=5, distractors=2, form="sequence", max_steps=7
    )
)


@pytest.mark.parametrize(
    ("env", "network"),
    [
        pytest.param(ENV, {"compute_dtype": "bfloat16"}, id="bfloat16"),
        pytest.param(SEQUENCES, {"clauses": 2}, id="two clauses"),
    ],
)
def test_replaying_other_networks_gives_ratio_one(
    env: Environment, network: dict[str, str | int]
) -> None:
    found = play(env, dataclasses.replace(CONFIG.network, **network))
    log_prob, value = replayed(found)
    # Means, as sums in another order may round to the next number of bfloat16 here and there.
    assert np.abs(np.exp(log_prob - found.rollout.log_prob) - 1).mean() < 1e-4
    assert np.abs(value - found.rollout.value).mean() < 1e-4
    assert np.std(found.rollout.log_prob) > 0.05


def test_other_rows_change_the_ratio_under_batch_statistics(played: Played) -> None:
    nothing = AdvantageEstimate(played.rollout.value, played.rollout.value)

    @jax.jit
    def ratios(network: ActorCritic, rollout: Rollout) -> tuple:
        sequences = split_into_sequences(rollout, nothing, CONFIG.bptt_length)
        tokens = rollout.trajectory.instructions.tokens
        some = sequences.take(jnp.arange(8, 24))
        batch = replay(network, tokens, some)
        running = network.initial_statistics()
        all_rows = replay(network, tokens, sequences, running=running)
        few_rows = replay(network, tokens, sequences.take(jnp.arange(8, 24)), running=running)
        return (
            jnp.exp(gather_log_prob(batch.log_probs, some.action) - some.log_prob),
            all_rows.log_probs[:, 8:24] - few_rows.log_probs,
        )

    batch_ratio, evaluation_difference = ratios(played.network, played.rollout)
    assert np.abs(batch_ratio - 1).max() > 1e-3
    np.testing.assert_allclose(evaluation_difference, 0, atol=1e-5)


def test_memory_is_cleared_exactly_where_episodes_begin(played: Played) -> None:
    """Stepping by hand, clearing at `first` and nowhere else, gives the stored memories."""
    trajectory, network = played.rollout.trajectory, played.network

    @jax.jit
    def step(memory: Memory, image: jax.Array, row: jax.Array, first: jax.Array) -> Memory:
        modulations = network.instruct(trajectory.instructions.tokens)
        seen, _ = network.see(image[None], modulations[row][None])
        kept = 1 - first[:, None].astype(jnp.float32)
        memory = Memory(memory.hidden * kept, memory.cell * kept)
        return network.memory.step(seen[0], memory, "float32")

    memory = played.start_memory
    for t in range(CONFIG.rollout_length):
        np.testing.assert_allclose(played.rollout.memory.hidden[t], memory.hidden, atol=1e-5)
        np.testing.assert_allclose(played.rollout.memory.cell[t], memory.cell, atol=1e-5)
        memory = step(
            memory,
            trajectory.observation.image[t],
            trajectory.instruction_row[t],
            trajectory.first[t],
        )
    np.testing.assert_allclose(played.end_memory.cell, memory.cell, atol=1e-5)


def test_timeouts_are_cut_or_bootstrapped(played: Played) -> None:
    rollout, trajectory = played.rollout, played.rollout.trajectory
    reward = 20 * trajectory.reward
    cut_off = dataclasses.replace(rollout, cut_value=None)
    timed_out = np.asarray(trajectory.truncated & ~trajectory.terminated)
    succeeded = np.asarray(trajectory.terminated)

    plain = estimate_rollout(CONFIG, cut_off, reward)
    np.testing.assert_allclose(plain.returns[timed_out], 0, atol=1e-5)
    np.testing.assert_allclose(plain.returns[succeeded], reward[succeeded], rtol=1e-5)
    assert (np.asarray(reward)[succeeded] > 2).all()

    bootstrapped = estimate_rollout(CONFIG, rollout, reward)
    want = CONFIG.discount * np.asarray(rollout.cut_value)[timed_out]
    np.testing.assert_allclose(bootstrapped.returns[timed_out], want, atol=1e-5)
    np.testing.assert_allclose(bootstrapped.returns[succeeded], reward[succeeded], rtol=1e-5)


def test_the_value_before_a_reset_is_that_of_the_next_step_elsewhere(played: Played) -> None:
    """Where no row was reset, the next step saw the very same batch."""
    rollout = played.rollout
    calm = ~np.asarray(rollout.trajectory.done[:-1]).any(axis=1)
    assert calm.any()
    np.testing.assert_allclose(
        np.asarray(rollout.cut_value)[:-1][calm], np.asarray(rollout.value)[1:][calm], atol=1e-4
    )
