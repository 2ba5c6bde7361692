"""Reset and step: one environment as pure functions, and many with automatic resets."""

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32, PRNGKeyArray, UInt32

from ella.errors import InputError
from ella.world import levels, mixtures, tasks
from ella.world.dynamics import act
from ella.world.fingerprint import state_fingerprint
from ella.world.language import AbstractLanguage
from ella.world.mixtures import Mixture, Task
from ella.world.observation import view_image
from ella.world.state import InstructionTable, Observation, State, Timestep, pytree
from ella.world.tasks import TaskSpec
from ella.world.verifier import verify

CHUNKS, MIN_CHUNK = 16, 64
"""`replenish` makes a sixteenth of the pool at a time: small enough to follow how many levels were
played, large enough to keep a GPU busy."""


@pytree
@dataclass(frozen=True)
class LevelPool:
    """A ring of P levels. The next `fresh` slots from `head` on have never been played."""

    levels: State
    """[P], before their first step."""
    observations: Observation
    """[P], the levels' first observations."""
    head: Int32[Array, ""]
    """Slot of the next level to play."""
    fresh: Int32[Array, ""]

    @property
    def size(self) -> int:
        """P, of one seed."""
        return self.levels.instruction_id.shape[0]


@pytree
@dataclass(frozen=True)
class VectorState:
    """B environments with automatic resets, and the levels their resets take."""

    states: State
    observation: Observation
    """[B], current: after a reset, the new episode's first."""
    first: Bool[Array, " B"]
    """Whether `observation` is the first of its episode."""
    instruction_row: Int32[Array, " B"]
    """Row of the current instruction in `Environment.instruction_table`."""
    instruction_ids: Int32[Array, " B"]
    """The instructions that were current at the last refill."""
    pool: LevelPool


@pytree
@dataclass(frozen=True)
class Transition:
    """What one action of B environments brought, before any reset."""

    reward: Float[Array, " B"]
    terminated: Bool[Array, " B"]
    truncated: Bool[Array, " B"]
    next_observation: Observation
    reused: Int32[Array, ""]
    """How many of the levels that replace those of ended episodes had been played before, the pool
    being exhausted."""
    fingerprint: UInt32[Array, " B"]
    """A hash of the whole state (`ella.world.fingerprint`)."""


@dataclass(frozen=True)
class Environment:
    """A task's or a mixture's functions. A static value: hash it, close over it, compare it.

    `reset`, `step` and `observe` are for one environment; batch them with `vmap`. `start`,
    `refill` (or `replenish`) and `step_vector` run B environments that reset themselves, taking
    levels from a pool, so that no level is ever generated inside a step.
    """

    spec: Task

    @property
    def one_task(self) -> TaskSpec:
        """The task, for what a mixture cannot do: planning, loading levels, minigrid."""
        if isinstance(self.spec, Mixture):
            raise InputError(f"a mixture cannot do this; make its target, '{self.spec.name}'")
        return self.spec

    @property
    def language(self) -> AbstractLanguage:
        return self.spec.language

    def reset(self, key: PRNGKeyArray) -> Timestep:
        """The start of an episode on a freshly generated level."""
        state = jax.tree.map(lambda leaf: leaf[0], self.generate(key, 1))
        return Timestep(
            state=state,
            observation=self.observe(state),
            reward=jnp.zeros((), jnp.float32),
            terminated=jnp.zeros((), bool),
            truncated=jnp.zeros((), bool),
        )

    def step(self, state: State, action: Int32[Array, ""] | int) -> Timestep:
        """One action (0..6). A finished episode continues; the caller resets."""
        state, reward, terminated, truncated = self._transition(
            state, jnp.asarray(action, jnp.int32)
        )
        return Timestep(state, self.observe(state), reward, terminated, truncated)

    def observe(self, state: State) -> Observation:
        """What the agent is given in this state."""
        return Observation(
            image=view_image(state),
            direction=state.agent_dir,
            mission=self.language.tokens(state.instruction_id),
            instruction_id=state.instruction_id,
        )

    def generate(self, key: PRNGKeyArray, n: int) -> State:
        """n levels that passed every check, [n]; those of a mixture by its own weights."""
        if isinstance(self.spec, Mixture):
            return mixtures.generate(self.spec, key, n)
        return levels.generate(self.spec, key, n)

    def start(self, key: PRNGKeyArray, num_envs: int, pool_size: int) -> VectorState:
        """B = num_envs environments at the start of their first episodes, and a full pool.

        `pool_size` is the number of levels B environments may consume between two refills
        without seeing one twice.
        """
        if num_envs < 1 or pool_size < 1:
            raise InputError(f"num_envs and pool_size must be >= 1, got {num_envs} and {pool_size}")
        return self._started(self.generate(key, num_envs + pool_size), num_envs)

    def start_shapes(self, num_envs: int, pool_size: int) -> VectorState:
        """What `start` makes, as shapes: tracing the generation of levels takes a second."""
        module = mixtures if isinstance(self.spec, Mixture) else levels
        generated = module.shapes(self.spec, num_envs + pool_size)
        return jax.eval_shape(partial(self._started, num_envs=num_envs), generated)

    def _started(self, generated: State, num_envs: int) -> VectorState:
        """Environments at the first levels, the other levels being their pool."""
        pool_size = generated.instruction_id.shape[0] - num_envs
        observed = jax.vmap(self.observe)(generated)
        states, observation = jax.tree.map(lambda leaf: leaf[:num_envs], (generated, observed))
        pooled, pooled_observations = jax.tree.map(
            lambda leaf: leaf[num_envs:], (generated, observed)
        )
        return VectorState(
            states=states,
            observation=observation,
            first=jnp.ones(num_envs, bool),
            instruction_row=pool_size + jnp.arange(num_envs, dtype=jnp.int32),
            instruction_ids=states.instruction_id,
            pool=LevelPool(
                levels=pooled,
                observations=pooled_observations,
                head=jnp.zeros((), jnp.int32),
                fresh=jnp.full((), pool_size, jnp.int32),
            ),
        )

    def refill(self, vector: VectorState, key: PRNGKeyArray) -> VectorState:
        """Replace played levels by new ones; call it between rollouts.

        Makes as many attempts at a level as the pool has slots, so its work is bounded; levels
        not yet played stay. Instruction rows change: environment b's becomes P + b. One task only;
        a mixture needs `replenish`.
        """
        assert isinstance(self.spec, TaskSpec)
        candidates, accepted = jax.vmap(partial(levels.attempt, self.spec))(
            jax.random.split(key, vector.pool.size)
        )
        return _with_pool(vector, self._added(vector.pool, candidates, accepted))

    def replenish(
        self,
        vector: VectorState,
        key: PRNGKeyArray,
        weights: Float[Array, " parts"] | None = None,
    ) -> VectorState:
        """As `refill`, but until every level is fresh: its work follows the number of levels that
        were played. `weights` are those of a mixture's parts, by default its own."""
        size = vector.pool.size
        attempts = min(size, max(MIN_CHUNK, -(-size // CHUNKS)))

        def is_short(carry: tuple[LevelPool, Int32[Array, ""]]) -> Bool[Array, ""]:
            return carry[0].fresh < size

        def add_chunk(
            carry: tuple[LevelPool, Int32[Array, ""]],
        ) -> tuple[LevelPool, Int32[Array, ""]]:
            pool, chunk = carry
            made = self._attempts(jax.random.fold_in(key, chunk), attempts, weights)
            return self._added(pool, *made), chunk + 1

        full, _ = jax.lax.while_loop(is_short, add_chunk, (vector.pool, jnp.int32(0)))
        return _with_pool(vector, full)

    def _attempts(
        self, key: PRNGKeyArray, count: int, weights: Float[Array, " parts"] | None
    ) -> tuple[State, Bool[Array, " N"]]:
        """Candidates for the pool, and which of them are accepted."""
        if isinstance(self.spec, Mixture):
            shares = self.spec.shares if weights is None else weights
            return mixtures.attempts(self.spec, shares, key, count)
        return jax.vmap(partial(levels.attempt, self.spec))(jax.random.split(key, count))

    def _added(self, pool: LevelPool, candidates: State, accepted: Bool[Array, " N"]) -> LevelPool:
        """The pool with accepted levels in place of played ones, as far as they fit."""
        size = pool.size
        observed = jax.vmap(self.observe)(candidates)
        rank = jnp.cumsum(accepted, dtype=jnp.int32) - 1
        fits = accepted & (rank < size - pool.fresh)
        slot = jnp.where(fits, (pool.head + pool.fresh + rank) % size, size)
        new_levels, new_observations = jax.tree.map(
            lambda old, new: old.at[slot].set(new, mode="drop"),
            (pool.levels, pool.observations),
            (candidates, observed),
        )
        return replace(
            pool,
            levels=new_levels,
            observations=new_observations,
            fresh=pool.fresh + fits.sum(dtype=jnp.int32),
        )

    def instruction_table(self, vector: VectorState) -> InstructionTable:
        """The instructions `instruction_row` points into: P pool levels, then the B instructions
        current at the last refill. Valid until the next refill."""
        ids = jnp.concatenate([vector.pool.levels.instruction_id, vector.instruction_ids])
        return InstructionTable(ids=ids, tokens=self.language.tokens(ids))

    def whole_language(self) -> InstructionTable:
        """Every id of the language in order, so that an instruction's row is its id."""
        ids = jnp.arange(self.language.num_ids, dtype=jnp.int32)
        return InstructionTable(ids=ids, tokens=self.language.tokens(ids))

    def step_vector(
        self, vector: VectorState, action: Int32[Array, " B"]
    ) -> tuple[VectorState, Transition]:
        """One action in each of B environments; finished ones continue with the pool's next
        levels."""
        states, reward, terminated, truncated = jax.vmap(self._transition)(vector.states, action)
        next_observation = Observation(
            image=jax.vmap(view_image)(states),
            direction=states.agent_dir,
            mission=vector.observation.mission,
            instruction_id=states.instruction_id,
        )
        done = terminated | truncated
        pool = vector.pool
        size = pool.size
        slot = (pool.head + jnp.cumsum(done, dtype=jnp.int32) - 1) % size
        resets = done.sum(dtype=jnp.int32)

        def take(level_leaf: Array, current: Array) -> Array:
            chosen = level_leaf.at[slot].get(mode="promise_in_bounds")
            return jnp.where(done.reshape((-1,) + (1,) * (current.ndim - 1)), chosen, current)

        new_states, new_observation = jax.tree.map(
            take, (pool.levels, pool.observations), (states, next_observation)
        )
        reused = jnp.maximum(resets - pool.fresh, 0)
        stepped = replace(
            vector,
            states=new_states,
            observation=new_observation,
            first=done,
            instruction_row=jnp.where(done, slot, vector.instruction_row),
            pool=replace(
                pool, head=(pool.head + resets) % size, fresh=pool.fresh - resets + reused
            ),
        )
        return stepped, Transition(
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            next_observation=next_observation,
            reused=reused,
            fingerprint=jax.vmap(state_fingerprint)(states),
        )

    def _transition(
        self, state: State, action: Int32[Array, ""]
    ) -> tuple[State, Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
        """(state, reward, terminated, truncated) after one action."""
        state, fulfilled = verify(self.language, act(state, action), action)
        spent = state.step_count.astype(jnp.float32) / state.max_steps.astype(jnp.float32)
        reward = jnp.where(fulfilled, 1 - 0.9 * spent, 0.0).astype(jnp.float32)
        return state, reward, fulfilled, state.step_count >= state.max_steps


def _with_pool(vector: VectorState, pool: LevelPool) -> VectorState:
    """The environments with a refilled pool: environment b's instruction has row P + b."""
    num_envs = vector.first.shape[0]
    return replace(
        vector,
        instruction_row=pool.size + jnp.arange(num_envs, dtype=jnp.int32),
        instruction_ids=vector.states.instruction_id,
        pool=pool,
    )


def make(task: str | Task) -> Environment:
    """The environment of a named task, of any row of data, or of a mixture."""
    return Environment(tasks.find(task) if isinstance(task, str) else task)
