"""Trained policies on fresh levels, in this world or in the real minigrid."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32, PRNGKeyArray

from ella.compilation import jit_for_few_calls
from ella.errors import InputError, unknown_name
from ella.intervals import SHARE, Interval, student_t, wilson
from ella.networks.actor_critic import ActorCritic, Memory, RunningStatistics, act
from ella.offline.stage import AbstractStageProgress
from ella.training.policy import Policy
from ella.training.program import held_out_key
from ella.world.description import describe
from ella.world.environment import Environment, make
from ella.world.grammar import tokenise
from ella.world.state import Observation, State

logger = logging.getLogger(__name__)

Mode = Literal["greedy", "sampled"]
Backend = Literal["ella", "minigrid"]
MODES: tuple[Mode, ...] = ("greedy", "sampled")
BACKENDS: tuple[Backend, ...] = ("ella", "minigrid")
BATCH = 256
"""Episodes played side by side."""
SECONDS_BETWEEN_LINES = 5.0
"""The least time between two log lines of progress."""


@dataclass(frozen=True)
class EvaluatedEpisodes:
    """What each evaluation episode came to; host arrays [episodes]."""

    success: np.ndarray
    reward: np.ndarray
    """The episode's return: undiscounted, unscaled, without bonus."""
    length: np.ndarray

    @property
    def success_rate(self) -> Interval:
        return wilson(int(self.success.sum()), len(self.success))

    @property
    def mean_return(self) -> Interval:
        return student_t(self.reward, SHARE)

    def __repr__(self) -> str:
        """A summary: the arrays have an entry for every episode."""
        success = self.success_rate
        low, high = (f"{100 * end:.1f}" for end in (success.low, success.high))
        return (
            f"EvaluatedEpisodes(success {100 * success.value:.1f} % [{low}, {high}], return "
            f"{self.mean_return.value:.2f}, length {self.length.mean():.1f}, "
            f"{len(self.success)} episodes)"
        )


class _Progress(AbstractStageProgress):
    """A log line every few seconds while levels are left to play."""

    def __init__(self) -> None:
        super().__init__("playing levels", "episodes")
        self._logged = time.monotonic()

    def show(self, share: float, text: str) -> None:
        if share < 1 and time.monotonic() - self._logged >= SECONDS_BETWEEN_LINES:
            self._logged = time.monotonic()
            logger.info(text)

    def close(self) -> None:
        """Every line is whole."""


def evaluate(
    policy: Policy,
    episodes: int,
    *,
    mode: Mode = "greedy",
    backend: Backend = "ella",
    seed: int = 0,
) -> EvaluatedEpisodes:
    """Play `episodes` levels that training never draws. The same seed gives the same levels in
    both backends and for every policy."""
    check_request(episodes, backend, seed)
    if mode not in MODES:
        raise unknown_name("mode", mode, MODES)
    env = make(policy.spec)
    batch = min(episodes, BATCH)
    level_key, action_key = jax.random.split(held_out_key(seed))
    played: list[tuple[Any, Any, Any]] = []
    progress = _Progress()

    def tell(before: int, ended: int) -> None:
        progress(min(before + ended, episodes), episodes)

    for index in range(-(-episodes // batch)):
        levels = _levels(env, batch, jax.random.fold_in(level_key, index))
        key = jax.random.fold_in(action_key, index)
        if backend == "ella":
            greedy = np.bool_(mode == "greedy")
            found = _play(env, policy.network, policy.statistics, levels, key, greedy)
        else:
            found = _play_in_minigrid(env, mode, policy, levels, key, partial(tell, index * batch))
        # Waits for the device, so that progress tells of episodes that have ended.
        played.append(jax.device_get(found))
        tell(index * batch, batch)
    success, reward, length = (
        np.concatenate(parts)[:episodes] for parts in zip(*played, strict=True)
    )
    return EvaluatedEpisodes(success, reward, length)


def check_request(episodes: int, backend: str = "ella", seed: int = 0) -> None:
    """Refuse what `evaluate` cannot play, before anything is logged as played."""
    if episodes < 1:
        raise InputError(f"episodes must be >= 1, got {episodes}")
    if backend not in BACKENDS:
        raise unknown_name("backend", backend, BACKENDS)
    if not 0 <= seed < 2**32:
        raise InputError(f"a seed lies between 0 and {2**32 - 1}, got {seed}")


def success_card(policy: Policy, episodes: int, backends: Sequence[Backend]) -> dict[str, Any]:
    """The success rate on the same fresh levels, by backend and mode, and the number of levels."""
    check_request(episodes)
    found: dict[str, Any] = {"episodes": episodes}
    for backend in backends:
        found[backend] = {}
        for mode in MODES:
            logger.info("playing %s levels in %s, actions %s", f"{episodes:,}", backend, mode)
            played = evaluate(policy, episodes, mode=mode, backend=backend)
            found[backend][mode] = vars(played.success_rate)
    return found


@partial(jit_for_few_calls, static_argnums=(0, 1))
def _levels(env: Environment, count: int, key: PRNGKeyArray) -> State:
    return env.generate(key, count)


# Most of the time is taken by matrix products, which are no faster for more optimisation.
@partial(jit_for_few_calls, level=1, static_argnums=0)
def _play(
    env: Environment,
    network: ActorCritic,
    statistics: RunningStatistics,
    levels: State,
    key: PRNGKeyArray,
    greedy: Bool[Array, ""],
) -> tuple[Bool[Array, " N"], Float[Array, " N"], Int32[Array, " N"]]:
    """(success, return, length) of one episode on each of N levels."""
    count = levels.step_count.shape[0]
    modulations = network.instruct(env.language.tokens(levels.instruction_id))
    network = network.ready_to_act()

    def unfinished(carry: Any) -> Array:
        return ~carry[2].all()

    def step(carry: Any) -> Any:
        states, memory, done, success, reward, time = carry
        observation = jax.vmap(env.observe)(states)
        actions, memory = _decide(
            network, statistics, greedy, observation, memory, modulations,
            jax.random.fold_in(key, time),
        )  # fmt: skip
        after = jax.vmap(env.step)(states, actions)
        reward = reward + jnp.where(done, 0.0, after.reward)
        success = success | (~done & after.terminated & (after.reward > 0))
        states = jax.tree.map(
            lambda new, old: jnp.where(done.reshape((-1,) + (1,) * (new.ndim - 1)), old, new),
            after.state,
            states,
        )
        done = done | after.terminated | after.truncated
        return states, memory, done, success, reward, time + 1

    nothing = jnp.zeros(count, bool)
    start = (levels, network.initial_memory(count), nothing, nothing, jnp.zeros(count), 0)
    states, _, _, success, reward, _ = jax.lax.while_loop(unfinished, step, start)
    return success, reward, states.step_count


def _decide(
    network: ActorCritic,
    statistics: RunningStatistics,
    greedy: Bool[Array, ""] | bool,
    observation: Observation,
    memory: Memory,
    modulations: Float[Array, "N *K F 2 C"],
    key: PRNGKeyArray,
) -> tuple[Int32[Array, " N"], Memory]:
    """Every environment's action, each by the policy acting alone. Both modes are one program."""

    def one(
        observation: Observation, memory: Memory, modulations: Array, key: PRNGKeyArray
    ) -> tuple[Array, Memory]:
        decision = act(
            network, statistics, observation, memory, "sampled", modulations=modulations, key=key
        )
        best = jnp.argmax(decision.logits).astype(jnp.int32)
        return jnp.where(greedy, best, decision.action), decision.memory

    keys = jax.random.split(key, modulations.shape[0])
    return jax.vmap(one)(observation, memory, modulations, keys)


def _play_in_minigrid(
    env: Environment,
    mode: Mode,
    policy: Policy,
    levels: State,
    key: PRNGKeyArray,
    tell: Callable[[int], None],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As `_play`, but the levels are played in minigrid from minigrid's own observations. `tell` is
    called after every step with how many of the episodes have ended."""
    from ella.adapters.minigrid_bridge import minigrid_environment

    count = levels.step_count.shape[0]
    worlds, seen = [], []
    for index in range(count):
        level = describe(jax.tree.map(lambda leaf, i=index: leaf[i], jax.device_get(levels)))
        worlds.append(minigrid_environment(env.one_task))
        seen.append(worlds[-1].reset(options={"level": level})[0])
    tokens = np.zeros((count, env.language.max_tokens), np.int32)
    for row, observation in zip(tokens, seen, strict=True):
        words = tokenise(observation["mission"])
        row[: len(words)] = words
    modulations = eqx.filter_jit(type(policy.network).instruct)(policy.network, jnp.asarray(tokens))
    memory = policy.network.initial_memory(count)
    decide = eqx.filter_jit(partial(_decide, policy.network, policy.statistics, mode == "greedy"))

    success, reward = np.zeros(count, bool), np.zeros(count)
    length, done = np.zeros(count, np.int32), np.zeros(count, bool)
    time = 0
    while not done.all():
        observation = Observation(
            image=jnp.asarray(np.stack([item["image"] for item in seen])),
            direction=jnp.asarray([item["direction"] for item in seen], jnp.int32),
            mission=jnp.asarray(tokens),
            instruction_id=jnp.zeros(count, jnp.int32),
        )
        actions, memory = decide(observation, memory, modulations, jax.random.fold_in(key, time))
        for index in map(int, np.flatnonzero(~done)):
            action = worlds[index].actions(int(actions[index]))
            seen[index], gained, terminated, truncated, _ = worlds[index].step(action)
            reward[index] += gained
            success[index] = terminated and gained > 0
            length[index] += 1
            done[index] = terminated or truncated
        time += 1
        tell(int(done.sum()))
    return success, reward, length
