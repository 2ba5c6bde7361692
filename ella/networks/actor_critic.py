"""BabyAI's FiLM actor-critic.

At the paper's sizes the original has 1,068,168 parameters. Ours has 9,728 fewer for a vocabulary
of 24 instead of 100 tokens (128 numbers each), 256 fewer in the GRU and 512 fewer in the LSTM,
whose second biases are redundant, and 512 fewer in the four convolutions that a normalisation
follows, whose biases are too: 1,057,160. The one-hot variant adds 17 input channels, which is
8,704 weights in the first convolution.
"""

from dataclasses import dataclass, replace
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32, PRNGKeyArray, UInt8

from ella.errors import InputError
from ella.networks.convolution import assembled
from ella.networks.film import FiLMTail, Stem
from ella.networks.language import InstructionEncoder, clauses_of
from ella.networks.linear import Linear, TanhHead, matmul, uniform
from ella.networks.normalisation import Moments, moving_average
from ella.networks.recurrence import lstm_step, remember_sequence
from ella.networks.residual import ResidualStem, ResidualTail
from ella.networks.settings import NetworkSettings
from ella.world.encoding import NUM_ACTIONS
from ella.world.state import Observation


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Memory:
    """What the LSTM carries from step to step, and with two clauses how far it has moved on."""

    hidden: Float[Array, "*B M"]
    cell: Float[Array, "*B M"]
    moved_on: Float[Array, "*B 1"] | None = None
    """From 0, only the first of two clauses counts, to 1, only the second; None for one clause."""

    def cleared(self, first: Bool[Array, "*B"]) -> "Memory":
        """Zero where an episode begins."""
        return jax.tree.map(lambda part: jnp.where(first[..., None], 0, part), self)


class LSTM(eqx.Module):
    """A step at a time, the input's part of the product being left to the caller to batch."""

    input_weight: Float[Array, "I M4"]
    """Gates in the order input, forget, candidate, output."""
    hidden_weight: Float[Array, "M M4"]
    bias: Float[Array, " M4"]

    def __init__(self, inputs: int, width: int, *, key: PRNGKeyArray):
        keys = jax.random.split(key, 4)
        self.input_weight = uniform((inputs, 4 * width), width, key=keys[0])
        self.hidden_weight = uniform((width, 4 * width), width, key=keys[1])
        # The sum of PyTorch's two biases.
        first, second = (uniform((4 * width,), width, key=bias_key) for bias_key in keys[2:])
        self.bias = first + second

    def project(self, x: Float[Array, "*rows I"], dtype: str) -> Float[Array, "*rows M4"]:
        return matmul(x, self.input_weight, dtype) + self.bias

    def step(self, projected: Float[Array, "*rows M4"], memory: Memory, dtype: str) -> Memory:
        gates = projected + matmul(memory.hidden, self.hidden_weight, dtype)
        return Memory(*lstm_step(gates, memory.cell))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RunningStatistics:
    """Running normalisation statistics, in the order of computation."""

    stem: tuple[Moments, ...]
    tail: tuple[Moments, ...]

    def updated(self, batches: "RunningStatistics", momentum: float) -> "RunningStatistics":
        """After the batches whose moments [T, C] are given, in time order."""
        return jax.tree.map(
            lambda running, batch: moving_average(running, batch, momentum),
            self,
            batches,
            is_leaf=lambda node: isinstance(node, Moments),
        )


class ActorCritic(eqx.Module):
    """Embed instructions, see, remember, then act and value. All leaves are parameters."""

    language: InstructionEncoder
    stem: Stem | ResidualStem
    tail: FiLMTail | ResidualTail
    memory: LSTM
    actor: TanhHead
    critic: TanhHead
    switch: Linear | None
    """From the memory, whether to move on to the second of two clauses; None for one."""
    config: NetworkSettings = eqx.field(static=True)

    def __init__(self, config: NetworkSettings, *, key: PRNGKeyArray):
        keys = jax.random.split(key, 6)
        width, instruction, memory = config.width, config.instruction_width, config.memory_width
        self.language = InstructionEncoder(instruction, instruction, key=keys[0])
        kind, blocks = config.normalisation, config.blocks
        if config.trunk == "residual":
            self.stem = ResidualStem(width, kind, key=keys[1])
            self.tail = ResidualTail(instruction, width, kind, blocks=blocks, key=keys[2])
        else:
            self.stem = Stem(width, config.variant, kind, key=keys[1])
            self.tail = FiLMTail(instruction, width, kind, blocks=blocks, key=keys[2])
        self.memory = LSTM(width, memory, key=keys[3])
        self.actor = TanhHead(memory, config.head_width, NUM_ACTIONS, key=keys[4])
        self.critic = TanhHead(memory, config.head_width, 1, key=keys[5])
        self.switch = None
        if config.clauses == 2:
            switch = Linear(memory, 1, key=jax.random.fold_in(key, 6))
            # A new network moves on within about a hundred steps, whatever it sees: an agent of
            # single clauses then already carries out seven sequences in eight (docs/wide.md).
            self.switch = eqx.tree_at(lambda layer: layer.bias, switch, jnp.full(1, -4.5))
        self.config = config

    def ready_to_act(self) -> "ActorCritic":
        """The same network with its matrices assembled and in the compute dtype: done once before
        a loop over steps, which makes an iteration 1.11 times as fast
        (benchmarks/network_kernels.py). Not to be differentiated, since gradients would be
        narrowed too."""
        dtype = self.config.compute_dtype
        return eqx.tree_at(
            lambda network: (
                network.memory.input_weight,
                network.memory.hidden_weight,
                network.actor.hidden.weight,
                network.actor.output.weight,
            ),
            assembled(self, dtype),
            replace_fn=lambda weight: weight.astype(dtype),
        )

    def initial_statistics(self) -> RunningStatistics:
        return RunningStatistics(self.stem.initial_statistics(), self.tail.initial_statistics())

    def initial_memory(self, *batch: int) -> Memory:
        zeros = jnp.zeros((*batch, self.config.memory_width))
        return Memory(zeros, zeros, None if self.switch is None else jnp.zeros((*batch, 1)))

    def instruct(self, tokens: Int32[Array, "R L"]) -> Float[Array, "R *K N 2 C"]:
        """What each instruction does to each modulated block; with two clauses, each of them in
        the order in which they are to be carried out."""
        dtype = self.config.compute_dtype
        if self.config.clauses == 1:
            return self.tail.modulations(self.language(tokens, dtype), dtype)
        clauses = clauses_of(tokens)
        read = self.language(clauses.reshape(-1, tokens.shape[-1]), dtype)
        each = self.tail.modulations(read, dtype)
        return each.reshape(*clauses.shape[:2], *each.shape[1:])

    def see(
        self,
        image: UInt8[Array, "T B 7 7 3"],
        modulations: Float[Array, "T B *K N 2 C"],
        running: RunningStatistics | None = None,
    ) -> tuple[Float[Array, "T B *K M4"], RunningStatistics]:
        """The memory's input, of each clause where there are two, and the moments of the batch's
        normalisations [T, C].

        Given `running`, normalisation uses those statistics and rows do not affect one another.
        """
        stem, tail = (running.stem, running.tail) if running else (None, None)
        dtype = self.config.compute_dtype
        features, stem_moments = self.stem(image, stem, dtype)
        clauses, (steps, rows) = self.config.clauses, image.shape[:2]
        if clauses > 1:
            # Clauses are further rows to the blocks.
            features = jnp.repeat(features, clauses, axis=1)
            modulations = modulations.reshape(steps, rows * clauses, *modulations.shape[3:])
        features, tail_moments = self.tail(features, modulations, tail)
        if clauses > 1:
            features = features.reshape(steps, rows, clauses, self.config.width)
        projected = self.memory.project(features, dtype)
        return projected, RunningStatistics(stem_moments, tail_moments)

    def remember(
        self, seen: Float[Array, "..."], memory: Memory, first: Bool[Array, "*B"]
    ) -> Memory:
        """One step of the memory, cleared before it where `first`. Of two clauses [*B 2 M4] it gets
        the first until it moves on to the second, which it decides itself at every step; it may
        move on in part, and never goes back."""
        memory = memory.cleared(first)
        dtype, moved_on = self.config.compute_dtype, memory.moved_on
        if self.switch is not None:
            assert moved_on is not None
            moves = jax.nn.sigmoid(self.switch(memory.hidden, dtype).astype(jnp.float32))
            moved_on = moved_on + (1 - moved_on) * moves
            share = moved_on.astype(seen.dtype)
            seen = (1 - share) * seen[..., 0, :] + share * seen[..., 1, :]
        return replace(self.memory.step(seen, memory, dtype), moved_on=moved_on)

    def remember_all(
        self,
        seen: Float[Array, "T B *K M4"],
        memory: Memory,
        first: Bool[Array, "T B"],
        *,
        unroll: int = 1,
    ) -> Float[Array, "T B M"]:
        """The hidden states of T steps of `remember`."""
        if self.switch is not None:

            def step(memory: Memory, now: tuple[Array, Array]) -> tuple[Memory, Array]:
                memory = self.remember(now[0], memory, now[1])
                return memory, memory.hidden

            return jax.lax.scan(step, memory, (seen, first), unroll=unroll)[1]
        weight, dtype = self.memory.hidden_weight, self.config.compute_dtype
        return remember_sequence(seen, first, memory.hidden, memory.cell, weight, dtype, unroll)

    def logits(self, hidden: Float[Array, "*B M"]) -> Float[Array, "*B A"]:
        return self.actor(hidden, self.config.compute_dtype)

    def value(self, hidden: Float[Array, "*B M"]) -> Float[Array, "*B"]:
        return self.critic(hidden, self.config.compute_dtype)[..., 0]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Decision:
    """What a policy made of one observation."""

    action: Int32[Array, ""]
    memory: Memory
    logits: Float[Array, " A"]
    value: Float[Array, ""]


def act(
    network: ActorCritic,
    statistics: RunningStatistics,
    observation: Observation,
    memory: Memory,
    mode: Literal["greedy", "sampled"] = "greedy",
    *,
    modulations: Float[Array, "*K N 2 C"] | None = None,
    key: PRNGKeyArray | None = None,
) -> Decision:
    """One environment's policy acting alone, with running statistics; vmap for more.

    Start each episode with `network.initial_memory()`. `modulations` spares embedding the mission
    at every step: `network.instruct(mission[None])[0]`. A `key` is needed to sample.
    """
    if mode not in ("greedy", "sampled"):
        raise InputError(f"mode must be greedy or sampled, got '{mode}'")
    if modulations is None:
        modulations = network.instruct(observation.mission[None])[0]
    seen, _ = network.see(observation.image[None, None], modulations[None, None], statistics)
    memory = network.remember(seen[0, 0], memory, jnp.zeros((), bool))
    logits = network.logits(memory.hidden)
    if mode == "greedy":
        action = jnp.argmax(logits)
    elif key is None:
        raise InputError("sampling an action needs a key")
    else:
        action = jax.random.categorical(key, logits)
    return Decision(action.astype(jnp.int32), memory, logits, network.value(memory.hidden))
