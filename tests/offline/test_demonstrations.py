"""The expert's episodes, played again step by step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ella
from ella.errors import InputError
from ella.offline.demonstrations import demonstrations, record_episodes
from ella.world.encoding import encode_triples


@pytest.mark.thorough
def test_recorded_episodes_and_demonstrations_hold_what_was_seen() -> None:
    env = ella.make("goto-room")
    episodes = record_episodes(env, jax.random.key(1), 40, chunk=32)
    N, T = episodes.actions.shape
    assert N == 40
    assert episodes.images.shape == (N, T + 1, 7, 7, 3)
    assert episodes.directions.shape == (N, T + 1)
    assert episodes.success.all()
    states = env.generate(jax.random.split(jax.random.key(1))[0], 32)
    observe, step = jax.jit(jax.vmap(env.observe)), jax.jit(jax.vmap(env.step))
    for t in range(int(episodes.lengths[:32].max())):
        seen = observe(states)
        playing = t <= episodes.lengths[:32]
        np.testing.assert_array_equal(episodes.images[:32, t][playing], seen.image[playing])
        np.testing.assert_array_equal(episodes.directions[:32, t][playing], seen.direction[playing])
        states = step(states, jnp.asarray(episodes.actions[:32, t], jnp.int32)).state

    short = demonstrations(env, jax.random.key(1), 40, chunk=32)
    assert short.success.all()
    assert (short.earlier_steps < short.lengths).all()
    assert (short.earlier_steps >= 0).all()
    assert len(np.unique(short.earlier_steps)) > 3
    # The target stands right before the agent at the end, and not at the moment before.
    targets = np.asarray(env.language.decode(jnp.asarray(short.instruction_ids)).objects[:, 0, 0])
    in_front = encode_triples(short.final_images[:, 3, 5])
    np.testing.assert_array_equal(in_front, targets)
    assert (encode_triples(short.earlier_images[:, 3, 5]) != targets).all()


def test_demonstrations_need_at_least_one_episode() -> None:
    with pytest.raises(InputError, match="num_episodes must be >= 1, got 0"):
        demonstrations(ella.make("goto-room"), jax.random.key(0), 0)
