"""ELLA around any Gymnasium environment that gives its agent instructions."""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from ella.adapters.host_ella import HostElla
from ella.errors import InputError

Missions = Callable[[Any, dict[str, Any]], Sequence[str | None]]
"""Observations and infos of B environments, as they return them, to their B instructions; asked
when episodes begin, and of those environments only."""

NO_MISSION = (
    "neither infos nor observations hold a 'mission' in words; give the wrapper a function that "
    "finds the instructions in them"
)


def told_missions(observations: Any, infos: dict[str, Any]) -> Sequence[str | None]:
    """Instructions from `infos["mission"]`, as ELLA's own environments tell them, or from
    `observations["mission"]`, as minigrid's do."""
    for place in (infos, observations):
        if isinstance(place, dict) and "mission" in place:
            found = place["mission"]
            if any(isinstance(text, str) for text in found):
                return list(found)
    raise InputError(NO_MISSION)


def told_mission(observation: Any, info: dict[str, Any]) -> str:
    """As `told_missions`, of a single environment."""
    for place in (info, observation):
        if isinstance(place, dict) and isinstance(place.get("mission"), str):
            return str(place["mission"])
    raise InputError(NO_MISSION)


class ShapedVectorEnv(VectorWrapper):
    """A vector environment whose rewards are its own plus ELLA's bonuses, times `reward_scale`.

    `infos["unshaped_reward"]` holds its own rewards. A success is an episode that terminated with
    a positive reward, or whatever `infos["is_success"]` says where an environment tells it.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        ella: HostElla,
        *,
        missions: Missions = told_missions,
        reward_scale: float = 1.0,
    ) -> None:
        super().__init__(env)
        self.ella = ella
        self.reward_scale = reward_scale
        self._missions_of = missions
        self._autoreset = AutoresetMode(env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        self._observations: Any = None
        self._missions = np.full(self.num_envs, "", object)
        self._first = np.ones(self.num_envs, bool)
        self._resetting = np.zeros(self.num_envs, bool)

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        # Read before the reset, since environments pop it from the options.
        mask = (options or {}).get("reset_mask")
        observations, infos = self.env.reset(seed=seed, options=options)
        if not isinstance(infos, dict):
            raise InputError(
                f"ShapedVectorEnv reads infos as a dictionary, got a {type(infos).__name__}; wrap "
                "in the other order: DictInfoToList(ShapedVectorEnv(envs, ella))"
            )
        begun = np.ones(self.num_envs, bool) if mask is None else np.asarray(mask, bool)
        if mask is None:
            self.ella.start(self.num_envs, owner=self)
        self._take(observations, infos, begun)
        self._first = self._first | begun
        self._resetting = self._resetting & ~begun
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        if self._observations is None:
            raise InputError("the environments have no episodes yet; call reset() first")
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        rewards = np.asarray(rewards, np.float64)
        done = np.asarray(terminated) | np.asarray(truncated)
        idle = self._resetting
        bonus = self.ella.shape(
            self._observations,
            self._missions.tolist(),
            self._first,
            successes(rewards, terminated, done, infos),
            done,
            rewards=rewards,
            idle=idle,
            last_observations=with_last(observations, infos),
            owner=self,
        )
        begun = np.zeros_like(done)
        if self._autoreset == AutoresetMode.SAME_STEP:
            begun = done
        elif self._autoreset == AutoresetMode.NEXT_STEP:
            begun, self._resetting = idle, done & ~idle
        self._take(observations, infos, begun)
        self._first = begun.copy()
        infos = {
            **infos,
            "unshaped_reward": rewards,
            "_unshaped_reward": np.ones(self.num_envs, bool),
        }
        return observations, self.reward_scale * (rewards + bonus), terminated, truncated, infos

    def close(self, **kwargs: Any) -> None:
        self.ella.warn_if_not_updated()
        super().close(**kwargs)

    def _take(self, observations: Any, infos: dict[str, Any], begun: np.ndarray) -> None:
        self._observations = copied(observations)
        if begun.any():
            told = self._missions_of(observations, infos)
            for index in np.flatnonzero(begun).tolist():
                if not isinstance(told[index], str):
                    raise InputError(NO_MISSION)
                self._missions[index] = told[index]


class ShapedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """As `ShapedVectorEnv`, around a single environment. The judge sees batches of one."""

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        ella: HostElla,
        *,
        mission: Callable[[Any, dict[str, Any]], str] = told_mission,
        reward_scale: float = 1.0,
    ) -> None:
        super().__init__(env)
        self.ella = ella
        self.reward_scale = reward_scale
        self._mission_of = mission
        self._batch: Any = None
        self._mission = ""
        self._first = True
        self._ended = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self.ella.start(1, owner=self)
        self._batch, self._mission, self._first = (
            _batch_of_one(observation),
            self._mission_of(observation, info),
            True,
        )
        self._ended = False
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        if self._batch is None:
            raise InputError("the environment has no episode yet; call reset() first")
        observation, reward, terminated, truncated, info = self.env.step(action)
        resets = self._ended  # the environment resets itself, as Gymnasium's Autoreset does
        success = bool(info.get("is_success", terminated and float(reward) > 0))
        done = np.array([terminated or truncated])
        bonus = self.ella.shape(
            self._batch,
            [self._mission],
            np.array([self._first]),
            done & success,
            done,
            rewards=np.array([float(reward)]),
            idle=np.array([resets]),
            last_observations=_batch_of_one(observation),
            owner=self,
        )
        if resets:
            self._mission = self._mission_of(observation, info)
        self._batch, self._first = _batch_of_one(observation), resets
        self._ended = bool(done[0]) and not resets
        shaped = self.reward_scale * (float(reward) + float(bonus[0]))
        return observation, shaped, terminated, truncated, {**info, "unshaped_reward": reward}

    def close(self) -> None:
        self.ella.warn_if_not_updated()
        super().close()


def successes(
    rewards: np.ndarray, terminated: Any, done: np.ndarray, infos: dict[str, Any]
) -> np.ndarray:
    """bool[B]: which environments ended an episode with the task solved."""
    solved = np.asarray(terminated) & (rewards > 0)
    # Environments that reset in the same step tell it of the episode that ended.
    place = infos.get("final_info", infos)
    if "is_success" in place:
        told = np.asarray(place.get("_is_success", np.ones_like(done)), bool)
        solved = np.where(told, np.asarray(place["is_success"], bool), solved)
    return solved & done


def with_last(observations: Any, infos: dict[str, Any]) -> Any:
    """Observations after the action and before any reset: where an environment has reset itself
    already, those of `infos["final_obs"]`."""
    ended = np.flatnonzero(infos.get("_final_obs", ()))
    return with_rows(observations, {int(i): infos["final_obs"][i] for i in ended})


def with_rows(observations: Any, rows: dict[int, Any]) -> Any:
    """A batch of observations (arrays, or dictionaries or tuples of them), some of which are
    replaced."""
    if not rows:
        return observations
    if isinstance(observations, dict):
        return {
            name: with_rows(part, {index: row[name] for index, row in rows.items()})
            for name, part in observations.items()
        }
    if isinstance(observations, tuple) and isinstance(observations[0], np.ndarray | dict | tuple):
        return tuple(
            with_rows(part, {index: row[place] for index, row in rows.items()})
            for place, part in enumerate(observations)
        )
    if not isinstance(observations, np.ndarray):  # one sentence per environment
        changed = list(observations)
        for index, row in rows.items():
            changed[index] = row
        return tuple(changed)
    replaced = observations.copy()
    for index, row in rows.items():
        replaced[index] = row
    return replaced


def copied(observations: Any) -> Any:
    """Environments may hand out the same arrays again and again."""
    return jax.tree.map(
        lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, observations
    )


def _batch_of_one(observation: Any) -> Any:
    return jax.tree.map(lambda leaf: np.array(leaf)[None], observation)
