"""Environments for Stable-Baselines3, stepped as one compiled program."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import (
    VecEnvIndices,
    VecEnvObs,
    VecEnvStepReturn,
)

from ella.adapters.gymnasium_vector import EllaVectorEnv
from ella.errors import InputError
from ella.world import TaskSpec
from ella.world.render import TILE_SIZE


class EllaVecEnv(VecEnv):
    """B environments of a task: `PPO("MultiInputPolicy", EllaVecEnv("goto-room", 64))`.

    The same environments as `EllaVectorEnv`, with Stable-Baselines3's conventions: where an
    episode ends, `step` returns the next episode's first observation,
    `info["terminal_observation"]` the last of the one that ended, and
    `info["TimeLimit.truncated"]` whether it was cut off. `reset_infos` hold the running episodes'
    missions. Put a `VecMonitor` around it for the trainer's statistics of episodes.
    """

    def __init__(
        self,
        task: str | TaskSpec,
        num_envs: int,
        *,
        render_mode: str | None = None,
        tile_size: int = TILE_SIZE,
        pool_size: int | None = None,
    ) -> None:
        """The arguments are those of `EllaVectorEnv`; missions are token ids."""
        self._vector = EllaVectorEnv(
            num_envs, task, render_mode=render_mode, tile_size=tile_size, pool_size=pool_size
        )
        self.metadata = self._vector.metadata
        self._actions: np.ndarray | None = None
        super().__init__(
            num_envs, self._vector.single_observation_space, self._vector.single_action_space
        )

    def reset(self) -> VecEnvObs:
        """Start every environment on a fresh level. `seed(n)` before it fixes all levels; options
        are not understood."""
        observations, infos = self._vector.reset(seed=self._seeds[0])
        self._reset_seeds()
        self._reset_options()
        self.reset_infos = [_told(infos, index) for index in range(self.num_envs)]
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        if self._actions is None:
            raise InputError("step_async(actions) must come before step_wait()")
        observations, rewards, terminated, truncated, infos = self._vector.step(self._actions)
        self._actions = None
        done = terminated | truncated
        told = []
        for index in range(self.num_envs):
            ended = bool(done[index])
            # As in Stable-Baselines3's own: the info is that of the episode the action belongs to.
            info = _told(infos["final_info"] if ended else infos, index)
            info["TimeLimit.truncated"] = bool(truncated[index] and not terminated[index])
            if ended:
                info["terminal_observation"] = infos["final_obs"][index]
                self.reset_infos[index] = _told(infos, index)
            told.append(info)
        return observations, rewards.astype(np.float32), done, told

    def close(self) -> None:
        self._vector.close()

    def get_images(self) -> Sequence[np.ndarray | None]:
        """A picture uint8[H, W, 3] of every environment."""
        pictures = self._vector.render()
        return [None] * self.num_envs if pictures is None else pictures

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """`mission`, or an attribute that all environments share, such as `render_mode`."""
        chosen = list(self._get_indices(indices))
        if attr_name == "mission":
            return [self.reset_infos[index].get("mission") for index in chosen]
        return [getattr(self._vector, attr_name)] * len(chosen)

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        raise InputError(f"environments of one compiled program have no '{attr_name}' to set")

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **kwargs: Any
    ) -> list[Any]:
        raise InputError(f"environments of one compiled program have no method '{method_name}'")

    def env_is_wrapped(self, wrapper_class: type, indices: VecEnvIndices = None) -> list[bool]:
        return [False for _ in self._get_indices(indices)]


def _told(infos: dict[str, Any], index: int) -> dict[str, Any]:
    return {
        "mission": str(infos["mission"][index]),
        "instruction_id": int(infos["instruction_id"][index]),
    }
