"""The hand-written kernels of training, and calls of them at training's shapes.

For `network_kernels.py`, which times them against `plain_kernels.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import plain_kernels as plain
from jaxtyping import Array, PyTree
from plain_kernels import Patch

from ella.networks import convolution, film, impact, language, linear, normalisation, recurrence
from ella.networks.actor_critic import ActorCritic
from ella.networks.normalisation import Normalisation
from ella.networks.orthogonal import StridedConvolution
from ella.ppo import advantage
from ella.ppo.settings import PPOSettings
from ella.shaping import ella as ella_shaping
from ella.shaping.ella import EllaShaper
from ella.shaping.oracle import low_level_of
from ella.shaping.relevance import OracleRelevance
from ella.shaping.termination import JudgedTermination
from ella.world.encoding import NUM_COLOURS, NUM_STATES, NUM_TYPES
from ella.world.environment import Environment
from ella.world.grammar import VOCABULARY_SIZE
from ella.world.state import GridObservation

CELL_VALUES = (NUM_TYPES, NUM_COLOURS, NUM_STATES)
NORMAL_NUMBERS = 1_000_003
"""A prime, so that no axis repeats them."""
CHUNK_STEPS = 4
"""Steps of all environments that the termination classifier judges at once: 256 views."""


class Scale:
    """Sizes, and random arguments of these sizes with the seed axis first."""

    def __init__(self, env: Environment, seeds: int, ppo: PPOSettings):
        self.env, self.seeds, self.ppo = env, seeds, ppo
        self.width, self.memory = ppo.network.width, ppo.network.memory_width
        self.dtype = ppo.network.compute_dtype
        self.steps, self.rows = ppo.bptt_length, ppo.minibatch_sequences
        self.instructions = ppo.pool_size + ppo.num_envs
        # Drawn on the host, since on the device every shape would need a program of its own, and
        # drawn once, since larger arrays than this one take seconds.
        self._rng = np.random.default_rng(0)
        self._normal = self._rng.standard_normal(NORMAL_NUMBERS, np.float32)

    def normal(self, *shape: int, dtype: str = "float32", scale: float = 1.0) -> Array:
        rolled = scale * np.roll(self._normal, self._rng.integers(NORMAL_NUMBERS))
        return jnp.asarray(np.resize(rolled.astype(dtype), (self.seeds, *shape)))

    def integers(self, high: int, *shape: int, dtype: str = "int32") -> Array:
        drawn = self._rng.integers(0, high, (self.seeds, *shape), np.int32)
        return jnp.asarray(drawn.astype(dtype))

    def chance(self, probability: float, *shape: int) -> Array:
        return jnp.asarray(self._rng.random((self.seeds, *shape), np.float32) < probability)

    def images(self, *shape: int) -> Array:
        drawn = self._rng.integers(0, CELL_VALUES, (self.seeds, *shape, 7, 7, 3), np.int32)
        return jnp.asarray(drawn.astype(np.uint8))

    def filled(self, build: Callable[[], PyTree]) -> PyTree:
        """The parameters `build` would make, all of them random and small."""
        shapes = jax.eval_shape(build)
        return jax.tree.map(lambda leaf: self.normal(*leaf.shape, scale=0.1), shapes)

    def norm(self) -> Normalisation:
        return self.filled(lambda: Normalisation(self.width, "batch"))

    def signs(self) -> Array:
        return jnp.asarray(np.sign(self.normal(self.width, dtype=self.dtype)))

    @property
    def words(self) -> int:
        """In a sentence."""
        one = jax.ShapeDtypeStruct((1,), jnp.int32)
        return int(jax.eval_shape(self.env.language.tokens, one).shape[-1])

    def tokens(self) -> Array:
        return self.integers(VOCABULARY_SIZE, self.instructions, self.words)

    @cached_property
    def termination(self) -> plain.Termination:
        chunk = CHUNK_STEPS * self.ppo.num_envs
        build = eqx.filter_jit(plain.Termination)
        return build(self.env.spec, self.images(256)[0], self.width, self.dtype, chunk)

    def patches(self) -> Array:
        """Inputs of the first convolution: 16 windows of 4 outputs that see 2x2 cells each."""
        return self.integers(NUM_COLOURS, self.steps, self.rows, 16, 4, 12, dtype=self.dtype)

    def windows(self) -> Array:
        """Outputs of the second convolution."""
        return self.normal(self.steps, self.rows, 4, film.POOL**2, self.width, dtype=self.dtype)


@dataclass(frozen=True)
class Case:
    """A call of one kernel for one seed: `call(*learned, *data, *shared)`."""

    call: Callable[..., PyTree]
    learned: tuple[PyTree, ...] = ()
    """Arguments that are differentiated."""
    data: tuple[PyTree, ...] = ()
    shared: tuple[PyTree, ...] = ()
    """Arguments without a seed axis."""


@dataclass(frozen=True)
class Kernel:
    """One hand-written thing and its plain version."""

    plain: str
    """The plain version in words."""
    patches: tuple[Patch, ...]
    """They turn ours into plain; the first names the kernel's symbol."""
    case: Callable[[Scale], Case] | None
    """None where only a whole iteration shows a difference."""
    per_step: int = 1
    """Calls of this size in one gradient step."""
    method: str = "ppo"
    """Whose iteration is the context."""
    symbol: str = ""

    def __post_init__(self) -> None:
        owner, name, _ = self.patches[0]
        module = owner.__module__ if isinstance(owner, type) else owner.__name__
        path = [owner.__qualname__, name] if isinstance(owner, type) else [name]
        named = f"{module.replace('.', '/')}.py:{'.'.join(path)}"
        object.__setattr__(self, "symbol", self.symbol or named)


def gru_case(s: Scale) -> Case:
    width, shape = s.ppo.network.instruction_width, (s.words, s.instructions)
    return Case(
        lambda inputs, weight, bias, present: recurrence.read_words(
            inputs, present, weight, bias, s.dtype
        ),
        learned=(
            s.normal(*shape, 3 * width),
            s.normal(width, 3 * width, scale=width**-0.5),
            s.normal(width),
        ),
        data=(s.chance(0.7, *shape),),
    )


def lstm_case(s: Scale) -> Case:
    return Case(
        lambda inputs, weight, first, hidden, cell: recurrence.remember_sequence(
            inputs, first, hidden, cell, weight, s.dtype, s.ppo.unroll
        ),
        learned=(
            s.normal(s.steps, s.rows, 4 * s.memory),
            s.normal(s.memory, 4 * s.memory, scale=s.memory**-0.5),
        ),
        data=(
            s.chance(0.05, s.steps, s.rows),
            s.normal(s.rows, s.memory),
            s.normal(s.rows, s.memory),
        ),
    )


def encoder_case(s: Scale) -> Case:
    width = s.ppo.network.instruction_width
    encoder = s.filled(lambda: language.InstructionEncoder(width, width, key=jax.random.key(0)))
    return Case(lambda encoder, tokens: encoder(tokens, s.dtype), (encoder,), (s.tokens(),))


def look_up_case(s: Scale) -> Case:
    table = s.normal(s.instructions, s.ppo.network.blocks, 2, s.width)
    rows = s.integers(s.instructions, s.steps, s.rows)
    return Case(lambda table, rows: linear.look_up(table, rows), (table,), (rows,))


def grid_matrix_case(s: Scale) -> Case:
    weight = s.normal(3, 3, s.width, s.width)
    return Case(lambda weight: convolution.grid_matrix(weight, 4, film.POOL, s.dtype), (weight,))


def convolution_case(grid: int, pool: int) -> Callable[[Scale], Case]:
    def case(s: Scale) -> Case:
        layer = s.filled(
            lambda: convolution.Convolution(
                s.width, s.width, 3, grid=grid, pool=pool, bias=False, key=jax.random.key(0)
            )
        )
        x = s.normal(s.steps, s.rows, grid**2, s.width, dtype=s.dtype)
        return Case(lambda layer, x: convolution.on_grid(layer, x), (layer, x))

    return case


def first_case(s: Scale) -> Case:
    def call(norm: Normalisation, weight: Array, image: Array) -> Array:
        x = film.convolved_windows(image, weight.astype(s.dtype), "paper")
        return norm.pooled(x, None)[0]

    image = s.images(s.steps, s.rows)
    return Case(call, (s.norm(), s.normal(12, s.width)), (image,))


def maximum_case(s: Scale) -> Case:
    return Case(
        lambda x, signs: normalisation._signed_maximum(x, signs),
        (s.windows(),),
        (s.signs(),),
    )


def pooled_case(s: Scale) -> Case:
    return Case(lambda norm, x: norm.pooled(x, None)[0], (s.norm(), s.windows()))


def scaled_relu_case(s: Scale) -> Case:
    x = s.normal(s.steps, s.rows, 4, s.width, dtype=s.dtype)
    scale, shift = (s.normal(s.steps, 1, 1, s.width) for _ in range(2))
    return Case(lambda *arrays: normalisation._scaled_relu(*arrays), (x, scale, shift))


def moments_case(s: Scale) -> Case:
    return Case(
        lambda x: normalisation._mean_and_variance(linear.widened(x), (1, 2, 3)), (s.windows(),)
    )


def advantage_case(s: Scale) -> Case:
    shape = (s.ppo.rollout_length, s.ppo.num_envs)
    return Case(
        lambda *arrays: vars(advantage.estimate(*arrays, discount=0.99, gae_lambda=0.99)),
        data=(s.normal(*shape), s.normal(*shape), s.normal(shape[1]), s.chance(0.05, *shape)),
    )


def ledger_case(s: Scale) -> Case:
    shape, task = (s.ppo.rollout_length, s.ppo.num_envs), s.env.spec
    shaper = ella_shaping.ella_shaper(task, JudgedTermination(), OracleRelevance(task))
    low_level = low_level_of(s.env.spec).language.num_ids

    def call(first: Array, success: Array, terminated: Array, relevant: Array) -> Array:
        nothing = jnp.zeros((shape[1], low_level), bool)
        ledger = ella_shaping.EpisodeLedger(nothing, nothing, jnp.zeros(shape[1]))
        reward = success.astype(jnp.float32)
        steps = SimpleNamespace(first=first, success=success, reward=reward)
        return shaper.keep_account(ledger, steps, terminated, relevant)[1].bonus

    marks = (s.chance(0.1, *shape, low_level), s.chance(0.5, *shape, low_level))
    return Case(call, data=(s.chance(0.05, *shape), s.chance(0.02, *shape), *marks))


def termination_case(s: Scale) -> Case:
    views = s.images(s.ppo.rollout_length * s.ppo.num_envs)
    return Case(
        lambda image, judge: judge(GridObservation(image)), data=(views,), shared=(s.termination,)
    )


def embedding_case(s: Scale) -> Case:
    views = s.images(2, s.ppo.rollout_length, s.ppo.num_envs)
    return Case(
        lambda embedding, image: embedding(image),
        (s.filled(lambda: impact.StateEmbedding(key=jax.random.key(0))),),
        (views,),
    )


JAX_GRADIENT = "the same loop, differentiated by JAX"
CONVOLUTION, PATCHES = "XLA's convolution", "a product of 3x3 patches"
NO_UNROLLING = "loops not unrolled"


KERNELS: dict[str, Kernel] = {
    "gru": Kernel(JAX_GRADIENT, ((recurrence, "read_words", plain.gru),), gru_case),
    "lstm": Kernel(JAX_GRADIENT, ((recurrence, "remember_sequence", plain.lstm),), lstm_case),
    "lstm-unroll": Kernel(
        NO_UNROLLING, ((recurrence, "remember_sequence", plain.unrolled_once),), lstm_case
    ),
    "word-projections": Kernel(
        "embedding[tokens], then projected",
        ((language.InstructionEncoder, "__call__", plain.encoder),),
        encoder_case,
    ),
    "look-up": Kernel(
        "table[rows]", ((linear, "look_up", lambda table, rows, *_: table[rows]),), look_up_case
    ),
    "grid-matrix": Kernel(
        "gather and transpose, differentiated by JAX",
        ((convolution, "grid_matrix", plain.grid_matrix),),
        grid_matrix_case,
    ),
    "convolution-4x4": Kernel(
        CONVOLUTION,
        plain.instead_of_grid_matrices(4, plain.by_convolution),
        convolution_case(4, film.POOL),
    ),
    "convolution-4x4-patches": Kernel(
        PATCHES, plain.instead_of_grid_matrices(4, plain.by_patches), convolution_case(4, film.POOL)
    ),
    "convolution-2x2": Kernel(
        CONVOLUTION,
        plain.instead_of_grid_matrices(2, plain.by_convolution),
        convolution_case(2, 1),
        per_step=4,
    ),
    "convolution-2x2-patches": Kernel(
        PATCHES,
        plain.instead_of_grid_matrices(2, plain.by_patches),
        convolution_case(2, 1),
        per_step=4,
    ),
    "first-convolution": Kernel(
        "XLA's convolution, then pooled",
        ((film, "convolved_windows", plain.convolved_windows),),
        first_case,
    ),
    "signed-maximum": Kernel(
        "jnp.max", ((normalisation, "_signed_maximum", plain.signed_maximum),), maximum_case
    ),
    "pooling-before-scaling": Kernel(
        "normalise, relu, then jnp.max",
        ((Normalisation, "pooled", plain.pooled),),
        pooled_case,
    ),
    "scaled-relu": Kernel(
        "differentiated by JAX",
        ((normalisation, "_scaled_relu", plain.scaled_relu),),
        scaled_relu_case,
        per_step=3,
    ),
    "in-order": Kernel(
        "memory laid out as XLA likes", ((normalisation, "in_order", lambda x: x),), pooled_case
    ),
    "one-pass-moments": Kernel(
        "mean, then variance",
        ((normalisation, "_mean_and_variance", plain.two_passes),),
        moments_case,
    ),
    "ready-to-act": Kernel(
        "matrices assembled at every step",
        ((ActorCritic, "ready_to_act", lambda self: self),),
        None,
    ),
    "advantage-unroll": Kernel(
        NO_UNROLLING,
        ((advantage, "estimate", plain.rolled(advantage.estimate)),),
        advantage_case,
        per_step=0,
    ),
    "ledger-unroll": Kernel(
        NO_UNROLLING,
        ((EllaShaper, "keep_account", plain.rolled(EllaShaper.keep_account)),),
        ledger_case,
        per_step=0,
        method="ella",
    ),
    "termination-table": Kernel(
        "stem once per view, then the trunk's own code",
        ((plain.Termination, "__call__", plain.Termination.unfolded),),
        termination_case,
        per_step=0,
        method="ella",
        symbol="ella/networks/termination.py:TerminationTable",
    ),
    "strided-convolution": Kernel(
        CONVOLUTION,
        ((StridedConvolution, "__call__", plain.strided_convolution),),
        embedding_case,
        per_step=0,
        method="ride",
    ),
}
