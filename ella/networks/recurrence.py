"""GRU over sentences and LSTM over sequences with hand-written backward passes.

Differentiating a scan stores every intermediate of every step and runs a dozen small operations a
step in the backward pass. Here the forward pass stores its states and what the gates are made of.
A step of the backward loop has one matrix product and little else, and the weights' gradient is one
product at the end.

Time is the first axis. Call with all rows at once: the weights' gradient of a vmap over rows is
not one product.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from ella.networks.linear import matmul, weight_gradient, widened
from ella.networks.normalisation import in_order


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def read_words(
    inputs: Float[Array, "T *rows H3"],
    present: Bool[Array, " T *rows"],
    weight: Float[Array, "H H3"],
    new_bias: Float[Array, " H"],
    dtype: str,
) -> Float[Array, "*rows H"]:
    """The last state of a GRU that starts from zero and stays where it is at absent words.

    `inputs` is the input's part of the gates, in the order reset, update, new; `new_bias` is
    added to the state's part of the last. With its own backward pass 1.56 times as fast as
    differentiated by JAX (benchmarks/network_kernels.py).
    """
    return _read_words_forward(inputs, present, weight, new_bias, dtype)[0]


def _gru_gates(inputs: Array, from_state: Array, new_bias: Array) -> tuple[Array, ...]:
    """(reset, update, new, the state's part of new before it is reset)."""
    in_reset, in_update, in_new = jnp.split(inputs, 3, axis=-1)
    state_reset, state_update, state_new = jnp.split(from_state, 3, axis=-1)
    reset = jax.nn.sigmoid(in_reset + state_reset)
    update = jax.nn.sigmoid(in_update + state_update)
    state_new = state_new + new_bias
    return reset, update, jnp.tanh(in_new + reset * state_new), state_new


def _read_words_forward(
    inputs: Array, present: Array, weight: Array, new_bias: Array, dtype: str
) -> tuple[Array, tuple[Any, ...]]:
    narrow = weight.astype(dtype)
    state = jnp.zeros((*inputs.shape[1:-1], weight.shape[0]), inputs.dtype)
    before, from_states = [], []
    for word, here in zip(inputs, present, strict=True):
        from_state = matmul(state, narrow, dtype)
        before.append(state)
        from_states.append(from_state)
        _, update, new, _ = _gru_gates(word, from_state, new_bias)
        state = jnp.where(here[..., None], (1 - update) * new + update * state, state)
    return state, (inputs, present, weight, new_bias, before, from_states)


def _read_words_backward(
    dtype: str, kept: tuple[Any, ...], gradient: Array
) -> tuple[Array, None, Array, Array]:
    inputs, present, weight, new_bias, before, from_states = kept
    narrow = weight.astype(dtype)
    at_inputs, at_products = [], []
    steps = list(zip(inputs, present, before, from_states, strict=True))
    for word, here, state, from_state in reversed(steps):
        reset, update, new, state_new = _gru_gates(word, from_state, new_bias)
        here = here[..., None]
        changed = jnp.where(here, gradient, 0)
        at_new = changed * (1 - update) * (1 - jnp.square(new))
        at_reset = at_new * state_new * reset * (1 - reset)
        at_update = changed * (state - new) * update * (1 - update)
        at_inputs.append(jnp.concatenate([at_reset, at_update, at_new], axis=-1))
        at_product = jnp.concatenate([at_reset, at_update, at_new * reset], axis=-1)
        at_products.append(at_product.astype(dtype))
        through = matmul(at_products[-1], narrow.T, dtype)
        gradient = gradient * jnp.where(here, update, 1) + through
    # Materialised once, in the compute dtype; otherwise XLA recomputes it in every user.
    products = in_order(jnp.stack(at_products[::-1]))
    width = new_bias.shape[0]
    return (
        jnp.stack(at_inputs[::-1]),
        None,
        weight_gradient(jnp.stack(before), products, dtype),
        widened(products[..., -width:]).reshape(-1, width).sum(axis=0),
    )


read_words.defvjp(_read_words_forward, _read_words_backward)


def _lstm_gates(gates: Float[Array, "*rows M4"]) -> tuple[Array, ...]:
    """(input, forget, candidate, output) gates from their sums."""
    enter, forget, candidate, leave = jnp.split(gates, 4, axis=-1)
    return (
        jax.nn.sigmoid(enter),
        jax.nn.sigmoid(forget),
        jnp.tanh(candidate),
        jax.nn.sigmoid(leave),
    )


def lstm_step(gates: Float[Array, "*rows M4"], cell: Float[Array, "*rows M"]) -> tuple[Array, ...]:
    """(hidden, cell) after a step, from the gates' sums in the order input, forget, candidate,
    output."""
    enter, forget, candidate, leave = _lstm_gates(gates)
    cell = forget * cell + enter * candidate
    return leave * jnp.tanh(cell), cell


@partial(jax.custom_vjp, nondiff_argnums=(5, 6))
def remember_sequence(
    inputs: Float[Array, "T *rows M4"],
    first: Bool[Array, " T *rows"],
    hidden: Float[Array, "*rows M"],
    cell: Float[Array, "*rows M"],
    weight: Float[Array, "M M4"],
    dtype: str,
    unroll: int,
) -> Float[Array, "T *rows M"]:
    """The hidden states of an LSTM after each step, its memory being cleared before steps that
    are `first`. `inputs` is the input's part of the gates.

    With its own backward pass 1.41 times as fast as differentiated by JAX, 1.16 times by `unroll`
    (benchmarks/network_kernels.py).
    """
    return _remember_forward(inputs, first, hidden, cell, weight, dtype, unroll)[0]


Steps = Array | tuple[Array, ...]
"""[T, ...], or an array for each of T steps."""


def _together(steps: Steps) -> Shaped[Array, "T ..."]:
    return jnp.stack(steps) if isinstance(steps, tuple) else steps


def _over_steps(
    step: Callable[[Any, Any], tuple[Any, tuple[Array, ...]]],
    carry: Any,
    steps: tuple[Steps, ...],
    unroll: int,
    *,
    reverse: bool = False,
) -> tuple[Any, tuple[Steps, ...]]:
    """`jax.lax.scan`, but fully unrolled where `unroll` covers all steps: the outputs of the steps
    then stay separate arrays, which saves a copy."""
    times = range(len(steps[0]))
    if unroll < len(times):
        return jax.lax.scan(step, carry, steps, reverse=reverse, unroll=unroll)
    found = []
    for time in reversed(times) if reverse else times:
        carry, now = step(carry, tuple(part[time] for part in steps))
        found.append(now)
    return carry, tuple(zip(*(reversed(found) if reverse else found), strict=True))


def _remember_forward(
    inputs: Array, first: Array, hidden: Array, cell: Array, weight: Array, dtype: str, unroll: int
) -> tuple[Array, tuple[Any, ...]]:
    narrow = weight.astype(dtype)

    def step(
        memory: tuple[Array, ...], now: tuple[Array, Array]
    ) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        inputs, first = now
        hidden, cell = (jnp.where(first[..., None], 0, part) for part in memory)
        gates = inputs + matmul(hidden, narrow, dtype)
        memory = lstm_step(gates, cell)
        return memory, (*memory, gates)

    start = (hidden.astype(inputs.dtype), cell.astype(inputs.dtype))
    _, (hiddens, cells, gates) = _over_steps(step, start, (inputs, first), unroll)
    return _together(hiddens), (first, hidden, cell, weight, hiddens, cells, gates)


def _remember_backward(
    dtype: str, unroll: int, kept: tuple[Any, ...], gradient: Array
) -> tuple[Array, None, Array, Array, Array]:
    first, hidden, cell, weight, hiddens, cells, gates = kept
    narrow = weight.astype(dtype)

    def before(start: Array, after: Steps) -> Steps:
        if isinstance(after, tuple):
            earlier = (start.astype(after[0].dtype), *after[:-1])
            return tuple(
                jnp.where(now[..., None], 0, part) for now, part in zip(first, earlier, strict=True)
            )
        return jnp.where(
            first[..., None], 0, jnp.concatenate([start[None].astype(after.dtype), after[:-1]])
        )

    def back(
        later: tuple[Array, Array], now: tuple[Array, ...]
    ) -> tuple[tuple[Array, ...], tuple[Array]]:
        gradient, gates, cell, cell_before, first = now
        enter, forget, candidate, leave = _lstm_gates(gates)
        shown = jnp.tanh(cell)
        at_hidden = gradient + later[0]
        at_cell = later[1] + at_hidden * leave * (1 - jnp.square(shown))
        at_gates = jnp.concatenate(
            [
                at_cell * candidate * enter * (1 - enter),
                at_cell * cell_before * forget * (1 - forget),
                at_cell * enter * (1 - jnp.square(candidate)),
                at_hidden * shown * leave * (1 - leave),
            ],
            axis=-1,
        ).astype(dtype)
        earlier = (matmul(at_gates, narrow.T, dtype), at_cell * forget)
        return tuple(jnp.where(first[..., None], 0, part) for part in earlier), (at_gates,)

    nothing = (jnp.zeros_like(gradient[0]), jnp.zeros_like(gradient[0]))
    steps = (gradient, gates, cells, before(cell, cells), first)
    (at_start, at_start_cell), (found,) = _over_steps(back, nothing, steps, unroll, reverse=True)
    # Materialised once, in the compute dtype.
    at_gates = in_order(_together(found))
    return (
        widened(at_gates),
        None,
        at_start.astype(hidden.dtype),
        at_start_cell.astype(cell.dtype),
        weight_gradient(_together(before(hidden, hiddens)), at_gates, dtype),
    )


remember_sequence.defvjp(_remember_forward, _remember_backward)
