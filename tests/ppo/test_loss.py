"""The loss by hand, and its gradient against finite differences."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ella.networks.actor_critic import ActorCritic, Memory
from ella.networks.settings import NetworkSettings
from ella.ppo.loss import Sequences, ppo_loss, present_instructions, replay
from ella.ppo.settings import PPOSettings
from ella.world.grammar import VOCABULARY_SIZE

L, N, R, WIDTH = 3, 4, 5, 4
NETWORK = NetworkSettings(
    width=WIDTH, instruction_width=4, memory_width=4, head_width=4, blocks=1, variant="onehot"
)
CONFIG = PPOSettings(
    network=NETWORK,
    num_envs=N,
    rollout_length=L,
    bptt_length=L,
    minibatch_frames=L * N,
    value_clip_range=0.3,
    unroll=1,
)


def make_sequences(dtype: type) -> tuple[jax.Array, Sequences]:
    rng = np.random.default_rng(0)
    tokens = jnp.asarray(rng.integers(0, VOCABULARY_SIZE, (R, 6)), jnp.int32)
    number = lambda scale=1.0: jnp.asarray(rng.normal(size=(L, N)) * scale, dtype)  # noqa: E731
    return tokens, Sequences(
        image=jnp.asarray(rng.integers(0, [11, 6, 3], (L, N, 7, 7, 3)), jnp.uint8),
        first=jnp.asarray(rng.random((L, N)) < 0.3),
        instruction_row=jnp.asarray(rng.integers(0, R, (L, N)), jnp.int32),
        action=jnp.asarray(rng.integers(0, 7, (L, N)), jnp.int32),
        log_prob=-1.9 + number(0.1),
        value=number(),
        advantage=number(),
        returns=number(),
        memory=Memory(*jnp.asarray(rng.normal(size=(2, N, 4)), dtype)),
    )


def test_loss_by_hand() -> None:
    network = jax.jit(lambda key: ActorCritic(NETWORK, key=key))(jax.random.key(0))
    tokens, sequences = make_sequences(np.float32)

    @jax.jit
    def both(network: ActorCritic) -> tuple:
        return ppo_loss(network, CONFIG, tokens, sequences), replay(network, tokens, sequences)

    (loss, (parts, _)), now = both(network)
    total = 0.0
    outside = 0
    for t in range(L):
        rows = []
        for n in range(N):
            log_probs = np.asarray(now.log_probs, np.float64)[t, n]
            ratio = np.exp(log_probs[sequences.action[t, n]] - float(sequences.log_prob[t, n]))
            outside += abs(ratio - 1) > 0.2
            advantage = float(sequences.advantage[t, n])
            gain = min(ratio * advantage, min(max(ratio, 0.8), 1.2) * advantage)
            old, value = float(sequences.value[t, n]), float(now.value[t, n])
            near = old + min(max(value - old, -0.3), 0.3)
            target = float(sequences.returns[t, n])
            error = max((value - target) ** 2, (near - target) ** 2)
            entropy = -(np.exp(log_probs) * log_probs).sum()
            rows.append(-gain - 0.01 * entropy + 0.5 * error)
        total += np.mean(rows)
    np.testing.assert_allclose(loss, total / L, rtol=1e-4)
    np.testing.assert_allclose(parts.clip_fraction, outside / (L * N), rtol=1e-6)
    assert 0 < outside < L * N


@jax.jit
def loss_and_gradient(
    network: ActorCritic, tokens: jax.Array, sequences: Sequences, counted: jax.Array
) -> tuple[jax.Array, ActorCritic]:
    return jax.value_and_grad(
        lambda network: ppo_loss(network, CONFIG, tokens, sequences, counted)[0]
    )(network)


@pytest.mark.thorough
def test_instructions_that_do_not_occur_and_frames_that_do_not_count_change_nothing() -> None:
    network = jax.jit(lambda key: ActorCritic(NETWORK, key=key))(jax.random.key(0))
    tokens, sequences = make_sequences(np.float32)
    rows = jnp.where(sequences.instruction_row % 2 == 0, 1, 4)
    assert set(np.unique(rows)) == {1, 4}
    sequences = dataclasses.replace(sequences, instruction_row=rows)
    everything = jnp.ones((L, N), bool)
    loss, gradient = loss_and_gradient(network, tokens, sequences, everything)
    for capacity in (1, 2, R):
        present, places, known = present_instructions(tokens, rows, capacity)
        assert present.shape == (capacity, tokens.shape[1])
        assert (known == (rows == 1)).all() if capacity == 1 else known.all()
        np.testing.assert_array_equal(present[places][known], tokens[rows][known])
    compact = dataclasses.replace(sequences, instruction_row=places)
    found, compact_gradient = loss_and_gradient(network, present, compact, known)
    np.testing.assert_allclose(found, loss, rtol=1e-5)
    for one, other in zip(
        jax.tree.leaves(gradient), jax.tree.leaves(compact_gradient), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)

    counted = jnp.arange(L * N).reshape(L, N) % 3 > 0
    strange = jnp.where(counted, sequences.returns, 1e3)
    halves = [
        loss_and_gradient(network, tokens, some, half)[0]
        for some, half in (
            (dataclasses.replace(sequences, returns=strange), counted),
            (sequences, ~counted),
        )
    ]
    share = float(counted.mean())
    np.testing.assert_allclose(share * halves[0] + (1 - share) * halves[1], loss, rtol=1e-5)


@pytest.mark.thorough
def test_a_detached_critic_leaves_the_rest_of_the_network_to_the_policy() -> None:
    network = jax.jit(lambda key: ActorCritic(NETWORK, key=key))(jax.random.key(0))
    tokens, sequences = make_sequences(np.float32)

    @functools.partial(jax.jit, static_argnums=0)
    def gradient(config: PPOSettings) -> ActorCritic:
        return jax.grad(lambda network: ppo_loss(network, config, tokens, sequences)[0])(network)

    both = gradient(CONFIG)
    detached = gradient(dataclasses.replace(CONFIG, detach_critic=True))
    policy = gradient(dataclasses.replace(CONFIG, value_coefficient=0.0))
    for name in ("language", "stem", "tail", "memory", "actor"):
        for one, other, with_value in zip(
            *(jax.tree.leaves(getattr(found, name)) for found in (detached, policy, both)),
            strict=True,
        ):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-7)
            assert name == "actor" or not np.allclose(one, with_value, rtol=1e-4, atol=1e-7)
    for one, other in zip(
        jax.tree.leaves(detached.critic), jax.tree.leaves(both.critic), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.thorough
def test_gradient_is_that_of_finite_differences() -> None:
    with jax.enable_x64(True):
        config = dataclasses.replace(NETWORK, compute_dtype="float64")
        network = jax.jit(lambda key: ActorCritic(config, key=key))(jax.random.key(0))
        network = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), network)
        tokens, sequences = make_sequences(np.float64)
        loss = jax.jit(lambda network: ppo_loss(network, CONFIG, tokens, sequences)[0])
        gradient = jax.jit(jax.grad(loss))(network)
        slopes = map(np.asarray, jax.tree.leaves(gradient))
        leaves, structure = jax.tree.flatten(network)
        rng = np.random.default_rng(1)
        checked = 0
        for index, (leaf, slope) in enumerate(zip(leaves, slopes, strict=True)):
            direction = rng.normal(size=leaf.shape)
            step = 1e-6
            sides = [
                float(loss(structure.unflatten([
                    other + sign * step * direction if i == index else other
                    for i, other in enumerate(leaves)
                ])))
                for sign in (1, -1)
            ]  # fmt: skip
            numeric = (sides[0] - sides[1]) / (2 * step)
            np.testing.assert_allclose(np.sum(slope * direction), numeric, rtol=2e-4, atol=1e-7)
            checked += abs(numeric) > 1e-4
        assert checked > 0.6 * len(leaves)
