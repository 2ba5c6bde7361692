"""The whole policy network."""

import dataclasses
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ella.errors import InputError
from ella.networks.actor_critic import LSTM, ActorCritic, Memory, act
from ella.networks.language import InstructionEncoder, clauses_of
from ella.networks.linear import Linear, look_up
from ella.networks.settings import SMALL_NETWORK, NetworkSettings
from ella.world.grammar import VOCABULARY_SIZE, tokenise
from ella.world.state import Observation

TINY = dataclasses.replace(SMALL_NETWORK, width=8, instruction_width=8, memory_width=8, blocks=1)


@partial(jax.jit, static_argnames="clauses")
def tiny(key: jax.Array, clauses: int = 1) -> ActorCritic:
    return ActorCritic(dataclasses.replace(TINY, clauses=clauses), key=key)


def count(tree: object) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def test_parameters_are_the_originals_but_for_known_differences() -> None:
    made = jax.eval_shape(lambda: ActorCritic(NetworkSettings(), key=jax.random.key(0)))
    original, smaller_vocabulary = 1_068_168, (100 - VOCABULARY_SIZE) * 128
    redundant_biases = 2 * 128 + 4 * 128 + 4 * 128
    assert count(made) == original - smaller_vocabulary - redundant_biases == 1_057_160
    onehot = NetworkSettings(variant="onehot")
    made = jax.eval_shape(lambda: ActorCritic(onehot, key=jax.random.key(0)))
    assert count(made) == 1_057_160 + 17 * 4 * 128


def test_linear_layers_start_on_the_unit_sphere() -> None:
    layer = Linear(16, 5, key=jax.random.key(0))
    np.testing.assert_allclose(np.square(layer.weight).sum(0), 1, rtol=1e-5)
    assert not layer.bias.any()


def test_encoder_reads_to_the_last_word() -> None:
    """Against a GRU in plain NumPy."""
    encoder = eqx.filter_jit(lambda key: InstructionEncoder(6, 8, key=key))(jax.random.key(0))
    read = eqx.filter_jit(InstructionEncoder.__call__)

    def sigmoid(x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-x))

    hidden = np.zeros(8)
    for token in (3, 1, 2):
        inputs = np.asarray(encoder.embedding)[token] @ encoder.input_weight + encoder.input_bias
        i_reset, i_update, i_new = np.split(inputs, 3)
        h_reset, h_update, h_new = np.split(hidden @ np.asarray(encoder.hidden_weight), 3)
        reset, update = sigmoid(i_reset + h_reset), sigmoid(i_update + h_update)
        new = np.tanh(i_new + reset * (h_new + encoder.new_hidden_bias))
        hidden = (1 - update) * new + update * hidden
    for tokens in ([3, 1, 2, 0, 0], [3, 1, 2]):
        np.testing.assert_allclose(read(encoder, jnp.array(tokens)), hidden, atol=1e-6)


def test_lstm_step() -> None:
    """Against PyTorch's cell."""
    torch = pytest.importorskip("torch")
    cell = LSTM(5, 4, key=jax.random.key(0))
    reference = torch.nn.LSTMCell(5, 4)
    with torch.no_grad():
        reference.weight_ih.copy_(torch.tensor(np.asarray(cell.input_weight).T))
        reference.weight_hh.copy_(torch.tensor(np.asarray(cell.hidden_weight).T))
        reference.bias_ih.copy_(torch.tensor(np.asarray(cell.bias)))
        reference.bias_hh.zero_()
    inputs = [
        np.random.default_rng(i).normal(size=(3, n)).astype(np.float32)
        for i, n in enumerate((5, 4, 4))
    ]
    x, h, c = map(torch.tensor, inputs)
    want_h, want_c = reference(x, (h, c))
    x, h, c = map(jnp.asarray, inputs)
    got = cell.step(cell.project(x, "float32"), Memory(h, c), "float32")
    np.testing.assert_allclose(got.hidden, want_h.detach().numpy(), atol=1e-6)
    np.testing.assert_allclose(got.cell, want_c.detach().numpy(), atol=1e-6)


def test_looking_up_rows_has_the_gradient_of_indexing() -> None:
    table = jax.random.normal(jax.random.key(0), (5, 2, 3))
    rows = jnp.array([[0, 4, 4], [1, 4, 0]])
    probe = jax.random.normal(jax.random.key(1), (2, 3, 2, 3))
    got = jax.grad(lambda t: (look_up(t, rows) * probe).sum())(table)
    want = jax.grad(lambda t: (t[rows] * probe).sum())(table)
    np.testing.assert_allclose(got, want, atol=1e-6)


def inputs(T: int, B: int, seed: int = 0) -> tuple[jax.Array, jax.Array]:
    rng = np.random.default_rng(seed)
    image = rng.integers(0, [11, 6, 3], (T, B, 7, 7, 3)).astype(np.uint8)
    tokens = rng.integers(1, VOCABULARY_SIZE, (B, 4)).astype(np.int32)
    return jnp.asarray(image), jnp.asarray(tokens)


@pytest.mark.thorough
def test_bfloat16_is_close_to_float32() -> None:
    config = NetworkSettings(width=32, instruction_width=32, memory_width=32)
    narrow = dataclasses.replace(config, compute_dtype="bfloat16")
    image, tokens = inputs(1, 64)

    @partial(jax.jit, static_argnums=0)
    def logits(config: NetworkSettings) -> jax.Array:
        network = ActorCritic(config, key=jax.random.key(0))
        seen, _ = network.see(image, network.instruct(tokens)[None])
        memory = network.remember(seen[0], network.initial_memory(64), jnp.ones(64, bool))
        return network.logits(memory.hidden)

    one, other = logits(config), logits(narrow)
    assert one.dtype == other.dtype == jnp.float32
    assert 0 < np.abs(one - other).max() < 0.02
    assert np.std(one) > 0.05


@pytest.mark.parametrize("clauses", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_policy_acts_alone_as_in_a_batch_with_the_same_statistics(clauses: int) -> None:
    network = tiny(jax.random.key(0), clauses=clauses)
    image, tokens = inputs(1, 3)
    memory = Memory(*jax.random.normal(jax.random.key(3), (2, 3, 8)))
    if clauses == 2:
        memory = dataclasses.replace(memory, moved_on=jnp.array([[0.0], [0.3], [1.0]]))
    observation = Observation(
        image=image[0],
        direction=jnp.zeros(3, int),
        mission=tokens,
        instruction_id=jnp.zeros(3, int),
    )
    one = jax.tree.map(lambda leaf: leaf[1], (observation, memory))

    @jax.jit
    def run(network: ActorCritic, keys: jax.Array) -> tuple:
        modulations = network.instruct(tokens)
        _, moments = network.see(image, modulations[None])
        statistics = network.initial_statistics().updated(moments, 1.0)
        seen, _ = network.see(image, modulations[None], statistics)
        after = network.remember(seen[0], memory, jnp.zeros(3, bool))
        together = jax.vmap(lambda o, m: act(network, statistics, o, m))(observation, memory)
        alone = act(network, statistics, *one, modulations=modulations[1])
        sample = partial(act, network, statistics, *one, "sampled", modulations=modulations[1])
        drawn = jax.vmap(lambda key: sample(key=key).action)(keys)
        return network.logits(after.hidden), together, alone, drawn

    want, together, alone, drawn = run(network, jax.random.split(jax.random.key(5), 4000))
    np.testing.assert_allclose(together.logits, want, atol=1e-5)
    np.testing.assert_array_equal(together.action, together.logits.argmax(-1))
    np.testing.assert_allclose(alone.logits, together.logits[1], atol=1e-5)
    np.testing.assert_allclose(alone.memory.cell, together.memory.cell[1], atol=1e-5)
    frequency = np.bincount(drawn, minlength=7) / len(drawn)
    np.testing.assert_allclose(frequency, jax.nn.softmax(alone.logits), atol=0.04)
    with pytest.raises(InputError, match="mode"):
        act(network, network.initial_statistics(), *one, "random")


def test_memory_is_cleared_where_an_episode_begins() -> None:
    network = tiny(jax.random.key(0))
    seen = jax.random.normal(jax.random.key(1), (2, 32))
    memory = Memory(*jax.random.normal(jax.random.key(2), (2, 2, 8)))
    after = network.remember(seen, memory, jnp.array([True, False]))
    fresh = network.remember(seen, network.initial_memory(2), jnp.array([False, False]))
    np.testing.assert_array_equal(after.hidden[0], fresh.hidden[0])
    assert not np.allclose(after.hidden[1], fresh.hidden[1])


def test_bad_settings_are_refused() -> None:
    with pytest.raises(InputError, match="variant"):
        NetworkSettings(variant="pixels")
    with pytest.raises(InputError, match="width"):
        NetworkSettings(width=0)
    with pytest.raises(InputError, match="clauses"):
        NetworkSettings(clauses=3)
    with pytest.raises(InputError, match="normalisation"):
        NetworkSettings(normalisation="group")


def sentences(*texts: str) -> jax.Array:
    tokens = [tokenise(text) for text in texts]
    return jnp.asarray([row + [0] * (16 - len(row)) for row in tokens], jnp.int32)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("open the red door", ("open the red door", "open the red door")),
        ("go to a key, then pick up the ball", ("go to a key", "pick up the ball")),
        ("go to a key after you open a door", ("open a door", "go to a key")),
        ("go to a key and open a door", ("go to a key", "open a door")),
    ],
)
def test_clauses_are_read_in_the_order_they_are_carried_out(
    text: str, parts: tuple[str, str]
) -> None:
    found = clauses_of(sentences(text))
    assert [part[part > 0].tolist() for part in found[0]] == [tokenise(part) for part in parts]


def test_a_clause_is_seen_alike_wherever_it_stands() -> None:
    network = tiny(jax.random.key(0), clauses=2)
    image = jnp.repeat(inputs(1, 1)[0], 4, axis=1)
    tokens = sentences(
        "go to a key",
        "go to a key, then open the red door",
        "open the red door after you go to a key",
        "open the red door, then go to a key",
    )

    @jax.jit
    def see(network: ActorCritic) -> jax.Array:
        modulations = network.instruct(tokens)[None]
        return network.see(image, modulations, network.initial_statistics())[0][0]

    alone, before, after, last = np.asarray(see(network))
    for found in (before[0], after[0], last[1]):
        np.testing.assert_allclose(found, alone[0], atol=1e-6)
    np.testing.assert_allclose(before, after, atol=1e-6)
    np.testing.assert_allclose(last[0], before[1], atol=1e-6)
    assert not np.allclose(before[0], before[1])
    np.testing.assert_allclose(alone[1], alone[0], atol=1e-6)


@pytest.mark.thorough
def test_the_memory_decides_when_to_move_on_to_the_second_clause() -> None:
    network = tiny(jax.random.key(0), clauses=2)
    steps, rows, width = 5, 3, network.config.memory_width
    keys = jax.random.split(jax.random.key(1), 4)
    seen = jax.random.normal(keys[0], (steps, rows, 2, 4 * width))
    first = jax.random.bernoulli(keys[1], 0.3, (steps, rows))
    begun = Memory(
        *jax.random.normal(keys[2], (2, rows, width)), jax.random.uniform(keys[3], (rows, 1))
    )
    found = eqx.filter_jit(ActorCritic.remember_all)(network, seen, begun, first)
    weight, bias = network.switch.weight, network.switch.bias
    memory = begun
    for step in range(steps):
        memory = memory.cleared(first[step])
        assert (memory.moved_on[first[step]] == 0).all()
        stays = 1 / (1 + jnp.exp(memory.hidden @ weight + bias))
        moved_on = 1 - (1 - memory.moved_on) * stays
        assert (moved_on >= memory.moved_on).all()
        assert (moved_on[first[step]] < 0.02).all(), "an episode begins with the first clause"
        mixed = (1 - moved_on) * seen[step, :, 0] + moved_on * seen[step, :, 1]
        memory = dataclasses.replace(
            network.memory.step(mixed, memory, "float32"), moved_on=moved_on
        )
        np.testing.assert_allclose(found[step], memory.hidden, atol=1e-5)
    assert first.any()
    slope = jax.grad(lambda layer: eqx.tree_at(lambda n: n.switch, network, layer)
                     .remember_all(seen, begun, first).sum())(network.switch)  # fmt: skip
    assert jnp.abs(slope.weight).max() > 0
