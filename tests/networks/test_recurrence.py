"""Hand-written backward passes of the GRU and the LSTM against differentiated loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from ella.networks.linear import matmul
from ella.networks.recurrence import lstm_step, read_words, remember_sequence

STEPS, ROWS, WIDTH = 6, 5, 4


def normal(seed: int, *shape: int) -> Array:
    return jax.random.normal(jax.random.key(seed), shape)


def plain_gru(inputs: Array, present: Array, weight: Array, new_bias: Array) -> Array:
    state = jnp.zeros((ROWS, WIDTH))
    for step in range(STEPS):
        in_reset, in_update, in_new = jnp.split(inputs[step], 3, axis=-1)
        state_reset, state_update, state_new = jnp.split(state @ weight, 3, axis=-1)
        reset = jax.nn.sigmoid(in_reset + state_reset)
        update = jax.nn.sigmoid(in_update + state_update)
        new = jnp.tanh(in_new + reset * (state_new + new_bias))
        state = jnp.where(present[step, :, None], (1 - update) * new + update * state, state)
    return state


def plain_lstm(inputs: Array, first: Array, hidden: Array, cell: Array, weight: Array) -> Array:
    hiddens = []
    for step in range(STEPS):
        kept = 1.0 - first[step, :, None].astype(jnp.float32)
        hidden, cell = lstm_step(inputs[step] + (hidden * kept) @ weight, cell * kept)
        hiddens.append(hidden)
    return jnp.stack(hiddens)


def assert_same(got: tuple[Array, ...], want: tuple[Array, ...], tolerance: float) -> None:
    for ours, theirs in zip(got, want, strict=True):
        assert np.abs(theirs).max() > 0.01
        np.testing.assert_allclose(ours, theirs, atol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 0.05)])
def test_gru_value_and_gradient(dtype: str, tolerance: float) -> None:
    inputs, weight = normal(0, STEPS, ROWS, 3 * WIDTH), normal(1, WIDTH, 3 * WIDTH)
    new_bias, probe = normal(2, WIDTH), normal(3, ROWS, WIDTH)
    # Sentences of different lengths, one of them of no words at all.
    present = jnp.arange(STEPS)[:, None] < jnp.array([6, 3, 1, 0, 5])

    def ours(inputs: Array, weight: Array, new_bias: Array) -> Array:
        return (read_words(inputs, present, weight, new_bias, dtype) * probe).sum()

    def theirs(inputs: Array, weight: Array, new_bias: Array) -> Array:
        return (plain_gru(inputs, present, weight, new_bias) * probe).sum()

    primals = (inputs, weight, new_bias)
    got, got_gradient = jax.jit(jax.value_and_grad(ours, (0, 1, 2)))(*primals)
    want, want_gradient = jax.jit(jax.value_and_grad(theirs, (0, 1, 2)))(*primals)
    np.testing.assert_allclose(got, want, atol=tolerance)
    assert_same(got_gradient, want_gradient, tolerance)
    assert not got_gradient[0][:, 3].any()


@pytest.mark.parametrize("unroll", [1, 3, 20])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 0.1)])
def test_lstm_value_and_gradient(dtype: str, tolerance: float, unroll: int) -> None:
    inputs, weight = normal(0, STEPS, ROWS, 4 * WIDTH), normal(1, WIDTH, 4 * WIDTH)
    hidden, cell = normal(2, ROWS, WIDTH), normal(3, ROWS, WIDTH)
    probe = normal(4, STEPS, ROWS, WIDTH)
    first = jax.random.bernoulli(jax.random.key(5), 0.3, (STEPS, ROWS))
    first = first.at[0].set(jnp.arange(ROWS) == 0)

    def ours(inputs: Array, hidden: Array, cell: Array, weight: Array) -> Array:
        after = remember_sequence(inputs, first, hidden, cell, weight, dtype, unroll)
        return (after * probe).sum()

    def theirs(inputs: Array, hidden: Array, cell: Array, weight: Array) -> Array:
        return (plain_lstm(inputs, first, hidden, cell, weight) * probe).sum()

    primals = (inputs, hidden, cell, weight)
    got, got_gradient = jax.jit(jax.value_and_grad(ours, (0, 1, 2, 3)))(*primals)
    want, want_gradient = jax.jit(jax.value_and_grad(theirs, (0, 1, 2, 3)))(*primals)
    np.testing.assert_allclose(got, want, atol=tolerance)
    assert_same(got_gradient, want_gradient, tolerance)
    assert not got_gradient[1][0].any(), "what came before an episode has no gradient"


def test_bfloat16_rounds_only_the_products() -> None:
    """States pass from step to step in float32."""
    inputs, weight = normal(0, 1, ROWS, 4 * WIDTH), normal(1, WIDTH, 4 * WIDTH)
    hidden, cell = normal(2, ROWS, WIDTH), normal(3, ROWS, WIDTH)
    first = jnp.zeros((1, ROWS), bool)
    got = remember_sequence(inputs, first, hidden, cell, weight, "bfloat16", 1)
    want, _ = lstm_step(inputs[0] + matmul(hidden, weight, "bfloat16"), cell)
    # An optimiser may fuse sums and products; rounding to bfloat16 would differ by 1e-3.
    np.testing.assert_allclose(got[0], want, rtol=1e-6)
