"""The environment's functions for callers on the host, each compiled once per task and size.

Any number of objects can drive the same task without compiling it again.
"""

from functools import partial

import jax
from jaxtyping import Array, Int32, PRNGKeyArray

from ella.compilation import jit_for_few_calls
from ella.world.environment import Environment, Transition, VectorState
from ella.world.expert import expert_action as choose
from ella.world.state import State, Timestep


@partial(jit_for_few_calls, static_argnums=0)
def reset(env: Environment, key: PRNGKeyArray) -> Timestep:
    return env.reset(key)


@partial(jax.jit, static_argnums=0)
def step(env: Environment, state: State, action: Int32[Array, ""]) -> Timestep:
    return env.step(state, action)


@partial(jax.jit, static_argnums=0)
def expert_action(env: Environment, state: State) -> Int32[Array, ""]:
    return choose(env.one_task, state)


@partial(jax.jit, static_argnums=(0, 2, 3))
def start(env: Environment, key: PRNGKeyArray, num_envs: int, pool_size: int) -> VectorState:
    return env.start(key, num_envs, pool_size)


@partial(jax.jit, static_argnums=0)
def step_vector(
    env: Environment, vector: VectorState, action: Int32[Array, " B"]
) -> tuple[VectorState, Transition]:
    return env.step_vector(vector, action)


@partial(jax.jit, static_argnums=0)
def refill(env: Environment, vector: VectorState, key: PRNGKeyArray) -> VectorState:
    return env.refill(vector, key)
