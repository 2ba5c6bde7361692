"""Many environments for Gymnasium, stepped as one compiled program."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from ella.adapters.gymnasium_env import (
    FRAMES_PER_SECOND,
    check_options,
    check_render_mode,
    draw_key,
    fixed_levels_error,
    level_generator,
    level_seeds,
    observation_space,
)
from ella.errors import InputError
from ella.world import Observation, TaskSpec, Timestep, VectorState, compiled, describe, make
from ella.world.encoding import NUM_ACTIONS
from ella.world.environment import LevelPool
from ella.world.instructed_levels import begin, levels_with_instruction
from ella.world.render import TILE_SIZE, frame


class EllaVectorEnv(VectorEnv[dict[str, Any], np.ndarray, np.ndarray]):
    """B environments; `gymnasium.make_vec("ELLA/PutNext-Room-v0", num_envs=64)`.

    The autoreset mode is `SAME_STEP`: where an episode ends, `step` returns the next episode's
    first observation, and `infos["final_obs"]` (with the mask `infos["_final_obs"]`) has the
    last observation of the episode that ended. New episodes take fresh levels from a pool that
    is refilled before it runs dry, so no level is played twice.

    With `levels`, as in `EllaEnv`, every episode is on one of them, drawn uniformly.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012  Gymnasium declares it so
        "render_modes": ["rgb_array"],
        "render_fps": FRAMES_PER_SECOND,
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(
        self,
        num_envs: int,
        task: str | TaskSpec,
        *,
        mission: str = "tokens",
        levels: int | Sequence[int] | None = None,
        render_mode: str | None = None,
        tile_size: int = TILE_SIZE,
        pool_size: int | None = None,
    ) -> None:
        """`pool_size` levels, at least `num_envs` (default: the larger of 256 and
        4 * num_envs), are kept ready for resets."""
        check_render_mode(render_mode, ("rgb_array",))
        if num_envs < 1:
            raise InputError(f"num_envs must be >= 1, got {num_envs}")
        if pool_size is not None and pool_size < num_envs:
            raise InputError(f"pool_size must be >= num_envs = {num_envs}, got {pool_size}")
        self.world = make(task)
        self.num_envs = num_envs
        self.pool_size = pool_size or max(256, 4 * num_envs)
        self._levels = level_seeds(levels)
        self._starts: Timestep | None = None
        self._mission_form = mission
        self.render_mode = render_mode
        self.tile_size = tile_size
        self.single_observation_space = observation_space(self.world.language, mission)
        self.single_action_space = gymnasium.spaces.Discrete(NUM_ACTIONS)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._vector: VectorState | None = None
        self._texts = np.full(num_envs, "", object)
        self._ids = np.full(num_envs, -1)

    def reset(
        self,
        *,
        seed: int | Sequence[int] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start every environment on a fresh level; the same seed gives the same levels.

        With one seed for each environment, its first level is that of `EllaEnv.reset(seed=...)`.

        With the option `mission`, the first episode of every environment has that instruction;
        the episodes after it have any, as those of Gymnasium's own vector environments.
        """
        whole, seeds = self._seeds(seed)
        super().reset(seed=whole)
        if options and "reset_mask" in options:
            raise InputError("environments that reset themselves take no reset_mask")
        mission = check_options(options, ("mission",)).get("mission")
        if self._levels and mission is not None:
            raise fixed_levels_error()
        if seeds and (self._levels or mission is not None):
            raise InputError("where levels= or a mission choose the levels, give one seed")
        vector = compiled.start(self.world, draw_key(self.np_random), self.num_envs, self.pool_size)
        if self._levels:
            vector = self._refilled_from_fixed(_on_levels(vector, self._draw_fixed(self.num_envs)))
        if seeds:
            vector = _on_levels(vector, self._starts_of(seeds))
        if mission is not None:
            levels = levels_with_instruction(
                self.world, mission, draw_key(self.np_random), self.num_envs
            )
            vector = _on_levels(vector, begin(self.world, levels))
        self._vector = vector
        observation: Observation = jax.device_get(self._vector.observation)
        self._read_missions(observation, np.ones(self.num_envs, bool))
        return self._values(observation), self._infos()

    def step(
        self, actions: np.ndarray
    ) -> tuple[dict[str, Any], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Take one action in every environment."""
        vector = self._ready()
        vector, transition = compiled.step_vector(self.world, vector, self._checked(actions))
        observation, outcome, fresh = jax.device_get(
            (vector.observation, transition, vector.pool.fresh)
        )
        while fresh < self.num_envs:
            if self._levels:
                vector = self._refilled_from_fixed(vector)
            else:
                vector = compiled.refill(self.world, vector, draw_key(self.np_random))
            fresh = jax.device_get(vector.pool.fresh)
        self._vector = vector

        ended = np.asarray(outcome.terminated | outcome.truncated)
        finals = self._final_infos(outcome.next_observation, ended) if ended.any() else {}
        self._read_missions(observation, ended)
        return (
            self._values(observation),
            outcome.reward.astype(np.float64),
            np.array(outcome.terminated),
            np.array(outcome.truncated),
            finals | self._infos(),
        )

    def render(self) -> tuple[np.ndarray, ...] | None:
        """A picture uint8[H, W, 3] of every environment."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() needs render_mode='rgb_array' in make_vec()")
            return None
        vector = jax.device_get(self._ready())
        pictures = []
        for index in range(self.num_envs):
            state, view = jax.tree.map(
                lambda leaf, index=index: leaf[index], (vector.states, vector.observation.image)
            )
            pictures.append(frame(describe(state), view=view, tile_size=self.tile_size))
        return tuple(pictures)

    def _draw_fixed(self, count: int) -> Timestep:
        """The starts [count] of episodes on fixed levels."""
        if self._starts is None:
            self._starts = self._starts_of(self._levels)
        chosen = self.np_random.integers(len(self._levels), size=count)
        return jax.tree.map(lambda leaf: leaf[chosen], self._starts)

    def _starts_of(self, levels: Sequence[int]) -> Timestep:
        """The starts of episodes on these levels, stacked."""
        each = [compiled.reset(self.world, draw_key(level_generator(level))) for level in levels]
        starts: Timestep = jax.tree.map(lambda *leaves: np.stack(leaves), *jax.device_get(each))
        return starts

    def _seeds(self, seed: int | Sequence[int] | None) -> tuple[int | None, tuple[int, ...]]:
        """The seed of all environments together and, where a reset has them, those of each."""
        if not isinstance(seed, Sequence | np.ndarray):
            return seed, ()
        if len(seed) != self.num_envs:
            raise InputError(f"seeds must be one or {self.num_envs}, got {len(seed)}")
        each = level_seeds(seed)
        mixed = np.random.SeedSequence([int(one) for one in each])
        return int(mixed.generate_state(1)[0]), each

    def _refilled_from_fixed(self, vector: VectorState) -> VectorState:
        starts = self._draw_fixed(self.pool_size)
        return replace(
            vector,
            pool=LevelPool(
                levels=starts.state,
                observations=starts.observation,
                head=jnp.int32(0),
                fresh=jnp.int32(self.pool_size),
            ),
        )

    def _ready(self) -> VectorState:
        if self._vector is None:
            raise InputError("the environments have no levels yet; call reset() first")
        return self._vector

    def _checked(self, actions: np.ndarray) -> np.ndarray:
        actions = np.asarray(actions)
        if actions.shape != (self.num_envs,) or not np.issubdtype(actions.dtype, np.integer):
            raise InputError(
                f"actions are {self.num_envs} integers, got {actions.dtype}{list(actions.shape)}"
            )
        wrong = np.flatnonzero((actions < 0) | (actions >= NUM_ACTIONS))
        if wrong.size:
            raise InputError(
                f"an action is an integer from 0 to {NUM_ACTIONS - 1}, got {actions[wrong[0]]} "
                f"for environment {wrong[0]}"
            )
        return actions.astype(np.int32)

    def _read_missions(self, observation: Observation, changed: np.ndarray) -> None:
        """Bring the sentences up to date where a new episode began."""
        for index in np.flatnonzero(changed):
            self._ids[index] = observation.instruction_id[index]
            self._texts[index] = self.world.language.text(int(self._ids[index]))

    def _values(self, observation: Observation) -> dict[str, Any]:
        values = {
            "image": np.array(observation.image),
            "direction": observation.direction.astype(np.int64),
            "mission": np.array(observation.mission),
        }
        if self._mission_form == "text":
            values["mission_text"] = tuple(self._texts)
        return values

    def _infos(self) -> dict[str, Any]:
        everyone = np.ones(self.num_envs, bool)
        return {
            "mission": self._texts.copy(),
            "_mission": everyone,
            "instruction_id": self._ids.copy(),
            "_instruction_id": everyone.copy(),
        }

    def _final_infos(self, last: Observation, ended: np.ndarray) -> dict[str, Any]:
        """What Gymnasium's own vector environments report for episodes that ended."""
        final_obs = np.full(self.num_envs, None, object)
        for index in np.flatnonzero(ended):
            final_obs[index] = {
                "image": last.image[index].copy(),
                "direction": int(last.direction[index]),
                "mission": last.mission[index].copy(),
            }
            if self._mission_form == "text":
                final_obs[index]["mission_text"] = self._texts[index]
        texts = np.full(self.num_envs, None, object)
        texts[ended] = self._texts[ended]
        final_info = {
            "mission": texts,
            "_mission": ended.copy(),
            "instruction_id": np.where(ended, self._ids, 0),
            "_instruction_id": ended.copy(),
        }
        return {
            "final_obs": final_obs,
            "_final_obs": ended.copy(),
            "final_info": final_info,
            "_final_info": ended.copy(),
        }


def _on_levels(vector: VectorState, starts: Timestep) -> VectorState:
    """The environments with their first episodes on other levels [B]."""
    return replace(
        vector,
        states=starts.state,
        observation=starts.observation,
        instruction_ids=starts.state.instruction_id,
    )
