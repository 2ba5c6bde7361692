"""ELLA around the environments of a Stable-Baselines3 trainer."""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np

try:
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
    from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"ella.adapters.stable_baselines3 needs the extra stable-baselines3: {error.msg} (in the "
        "clone: pip install -e '.[stable-baselines3]')",
        name=error.name,
    ) from None

from ella.adapters.gymnasium_shaping import copied, with_rows
from ella.adapters.host_ella import HostElla
from ella.errors import InputError

logger = logging.getLogger(__name__)


def told_missions(venv: VecEnv) -> list[str]:
    """The current instructions: from the infos of the newest resets, as ELLA's own environments
    tell them, or from the environments' attribute `mission`, as minigrid's have it."""
    inner = venv
    while isinstance(inner, VecEnvWrapper):  # wrappers do not pass the infos of resets on
        inner = inner.venv
    told = [info.get("mission") for info in inner.reset_infos]
    if not all(isinstance(text, str) for text in told) and inner.has_attr("mission"):
        told = inner.get_attr("mission")
    if not all(isinstance(text, str) for text in told):
        raise InputError(
            "the environments tell no 'mission' in words, in their infos or as an attribute; give "
            "the wrapper a function that finds the instructions"
        )
    return [str(text) for text in told]


class ShapedVecEnv(VecEnvWrapper):
    """Environments whose rewards are their own plus ELLA's bonuses, times `reward_scale`.

    `info["unshaped_reward"]` is an environment's own reward; a `Monitor` inside the environment
    counts those. A success is an episode that terminated with a positive reward, or whatever
    `info["is_success"]` says where an environment tells it.

    `missions` is called after resets and tells the current instruction of every environment.
    """

    def __init__(
        self,
        venv: VecEnv,
        ella: HostElla,
        *,
        missions: Callable[[VecEnv], list[str]] = told_missions,
        reward_scale: float = 1.0,
    ) -> None:
        super().__init__(venv)
        self.ella = ella
        self.reward_scale = reward_scale
        self._missions_of = missions
        self._observations: Any = None
        self._missions: list[str] = []
        self._first = np.ones(self.num_envs, bool)

    def reset(self) -> VecEnvObs:
        observations = self.venv.reset()
        self.ella.start(self.num_envs, owner=self)
        self._missions = self._missions_of(self.venv)
        self._observations = copied(observations)
        self._first = np.ones(self.num_envs, bool)
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        if not self._missions:
            raise InputError("the environments have no episodes yet; call reset() first")
        self.venv.step_async(actions)

    def step_wait(self) -> VecEnvStepReturn:
        observations, rewards, dones, infos = self.venv.step_wait()
        success = np.array(
            [
                info.get("is_success", reward > 0 and not info.get("TimeLimit.truncated", False))
                for reward, info in zip(rewards, infos, strict=True)
            ],
            bool,
        )
        last = {int(index): infos[index]["terminal_observation"] for index in np.flatnonzero(dones)}
        bonus = self.ella.shape(
            self._observations,
            self._missions,
            self._first,
            success & dones,
            dones,
            rewards=rewards,
            last_observations=with_rows(observations, last),
            owner=self,
        )
        for info, reward in zip(infos, rewards, strict=True):
            info["unshaped_reward"] = float(reward)
        self._observations, self._first = copied(observations), dones.copy()
        if dones.any():
            told = self._missions_of(self.venv)
            self._missions = [
                new if ended else old
                for new, old, ended in zip(told, self._missions, dones, strict=True)
            ]
        shaped = (self.reward_scale * (rewards + bonus)).astype(np.float32)
        return observations, shaped, dones, list(infos)

    def close(self) -> None:
        self.ella.warn_if_not_updated()
        super().close()


class EllaLog(BaseCallback):
    """Records what ELLA does (`ella/...`) in the trainer's log after every rollout.

    Warns if the trainer's discount is not ELLA's, and at the end if relevance was never learned.
    """

    def __init__(self, ella: HostElla) -> None:
        super().__init__()
        self.ella = ella

    def _on_training_start(self) -> None:
        gamma = getattr(self.model, "gamma", self.ella.discount)
        if gamma != self.ella.discount:
            logger.warning(
                "the trainer's gamma is %g and HostElla's discount %g: successes are not neutral",
                gamma,
                self.ella.discount,
            )

    def _on_training_end(self) -> None:
        self.ella.warn_if_not_updated()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        for name, value in self.ella.measurements().items():
            self.logger.record(f"ella/{name}", value)
        self.logger.record("ella/updates", self.ella.updates)
