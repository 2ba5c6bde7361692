"""ELLA around Gymnasium's environments: one, many, and however they reset themselves."""

import gymnasium
import numpy as np
import pytest
from errands import PAYING, SIZES, Runner, errands_ella
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from own_environment import Errands

from ella.adapters.babyai_judge import babyai_low_level
from ella.adapters.gymnasium_shaping import ShapedEnv, ShapedVectorEnv
from ella.adapters.host_ella import HostElla
from ella.errors import InputError


def bonuses_of_an_episode(env: ShapedEnv, runner: Runner, observation) -> list[float]:
    """Of the steps of an episode that begins with `observation`."""
    bonuses, done, first = [], False, True
    while not done:
        action = runner.action(observation, first)
        observation, reward, terminated, truncated, info = env.step(action)
        bonuses.append(reward - info["unshaped_reward"])
        done, first = terminated or truncated, False
    return bonuses


def episodes_of_single_environments(seeds, count: int) -> list[list[float]]:
    """Bonuses of each episode, environment by environment."""
    found = []
    for seed in seeds:
        env, runner = ShapedEnv(Errands(), errands_ella()), Runner(seed)
        observation, _ = env.reset(seed=seed)
        for _ in range(count):
            found.append((seed, bonuses_of_an_episode(env, runner, observation)))
            observation, _ = env.reset()
    return [[bonuses for owner, bonuses in found if owner == seed] for seed in seeds]


SEEDS, COUNT = [3, 4, 5], 3


@pytest.fixture(scope="module")
def alone() -> list[list[list[float]]]:
    return episodes_of_single_environments(SEEDS, COUNT)


def test_an_environment_that_resets_itself_pays_what_one_that_is_reset_pays(alone):
    env = ShapedEnv(gymnasium.wrappers.Autoreset(Errands()), errands_ella())
    runner, found = Runner(SEEDS[0]), []
    observation, _ = env.reset(seed=SEEDS[0])
    for _ in range(COUNT):
        found.append(bonuses_of_an_episode(env, runner, observation))
        observation, reward, _, _, info = env.step(0)
        assert reward == info["unshaped_reward"] == 0
    assert len(set(map(len, found))) > 1
    assert found == alone[0]


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_many_environments_pay_what_each_pays_alone(mode, alone):
    seeds, count = SEEDS, COUNT
    assert all(any(bonuses) for episodes in alone for bonuses in episodes)
    envs = ShapedVectorEnv(
        SyncVectorEnv([Errands] * len(seeds), autoreset_mode=mode), errands_ella()
    )
    runners = [Runner(seed) for seed in seeds]
    found: list[list[list[float]]] = [[] for _ in seeds]
    current: list[list[float]] = [[] for _ in seeds]
    first, resetting = np.ones(3, bool), np.zeros(3, bool)
    observations, _ = envs.reset(seed=seeds)
    while min(map(len, found)) < count:
        actions = [
            0 if resetting[i] else runner.action(observations[i], first[i])
            for i, runner in enumerate(runners)
        ]
        observations, rewards, terminated, truncated, infos = envs.step(np.array(actions))
        done = terminated | truncated
        for i in range(len(seeds)):
            bonus = rewards[i] - infos["unshaped_reward"][i]
            if resetting[i]:
                assert bonus == 0
                continue
            current[i].append(bonus)
            if done[i]:
                found[i].append(current[i])
                current[i] = []
        if mode == AutoresetMode.NEXT_STEP:
            first, resetting = resetting, done & ~resetting
        else:
            first = done
        if mode == AutoresetMode.DISABLED and done.any():
            observations, _ = envs.reset(options={"reset_mask": done})
    for mine, theirs in zip(found, alone, strict=True):
        for left, right in zip(mine[:count], theirs, strict=True):
            np.testing.assert_allclose(left, right, atol=1e-6)


class Reused(gymnasium.Env):
    """Hands out one array again and again: the number of steps, done after three."""

    observation_space = gymnasium.spaces.Tuple(
        [gymnasium.spaces.Box(0, 9, (1,)), gymnasium.spaces.Discrete(2)]
    )
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = np.zeros(1, np.float32)
        return (self._steps, 0), {"mission": "wait"}

    def step(self, action):
        self._steps += 1
        done = self._steps[0] == 3
        return (self._steps, 0), 0.0, bool(done), False, {"is_success": bool(done)}


def waited(observations) -> np.ndarray:
    return np.concatenate([observations[0] == 1, observations[0] == 3], axis=1)


@pytest.mark.parametrize("mode", [None, AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_tuples_reused_arrays_and_told_successes(mode):
    host = HostElla(["wait once", "wait thrice"], waited, **(PAYING | SIZES))
    if mode is None:
        env = ShapedEnv(Reused(), host)
        env.reset()
        bonuses = [env.step(0)[1] for _ in range(3)]
    else:
        vector = SyncVectorEnv([Reused] * 3, autoreset_mode=mode, observation_mode="same")
        envs = ShapedVectorEnv(vector, host)
        envs.reset()
        bonuses = [envs.step(np.zeros(3, int))[1][1] for _ in range(3)]
    np.testing.assert_allclose(bonuses, [0, 0.1, -0.1 / 0.9], rtol=1e-5)
    if mode != AutoresetMode.SAME_STEP:  # there Gymnasium does not copy the last observation
        assert host.solved() == {"wait": {"wait once", "wait thrice"}}


def test_one_ella_serves_one_wrapper():
    host = errands_ella()
    one, other = ShapedEnv(Errands(), host), ShapedEnv(Errands(), host)
    one.reset()
    other.reset()
    other.step(0)
    with pytest.raises(InputError, match="one wrapper"):
        one.step(0)


def test_minigrid_tells_its_missions():
    gymnasium.register_envs(pytest.importorskip("minigrid"))
    told = babyai_low_level("goto-room", learned=False)
    host = HostElla(told.instructions, told.judge, **SIZES)
    single = ShapedEnv(gymnasium.make("BabyAI-GoToLocal-v0"), host)
    mission = single.reset(seed=0)[0]["mission"]
    single.action_space.seed(0)
    for _ in range(70):
        *_, terminated, truncated, _ = single.step(single.action_space.sample())
        if terminated or truncated:
            single.reset()
    assert mission.startswith("go to")
    many = ShapedVectorEnv(gymnasium.make_vec("BabyAI-GoToLocal-v0", num_envs=2), host)
    many.reset(seed=0)
    many.action_space.seed(0)
    for _ in range(200):
        many.step(many.action_space.sample())
    assert host.measurements()["low_level_completions"] > 0


def test_closing_a_run_that_learned_nothing_is_warned_of(caplog):
    for wrap in (
        lambda: ShapedEnv(Errands(), errands_ella()),
        lambda: ShapedVectorEnv(SyncVectorEnv([Errands]), errands_ella()),
    ):
        env = wrap()
        env.reset(seed=0)
        env.step(env.action_space.sample())
        caplog.clear()
        env.close()
        assert [r.getMessage().partition(":")[0] for r in caplog.records] == [
            "ELLA's relevance classifier was never updated in 1 steps"
        ]


def test_misuse_is_one_line():
    host = errands_ella()
    with pytest.raises(InputError, match="reset"):
        ShapedEnv(Errands(), host).step(0)
    envs = SyncVectorEnv([Errands] * 2)
    with pytest.raises(InputError, match="reset"):
        ShapedVectorEnv(envs, host).step(np.zeros(2, int))
    silent = ShapedVectorEnv(envs, host, missions=lambda observations, infos: ["go"] * 2)
    silent.reset()
    silent.step(np.zeros(2, int))
    listed = gymnasium.wrappers.vector.DictInfoToList(SyncVectorEnv([Errands]))
    with pytest.raises(InputError, match="wrap in the other order"):
        ShapedVectorEnv(listed, host).reset()
    other_order = ShapedVectorEnv(SyncVectorEnv([Errands]), host)
    infos = gymnasium.wrappers.vector.DictInfoToList(other_order).reset()[1]
    assert isinstance(infos[0]["mission"], str)
    with pytest.raises(InputError, match="mission"):
        ShapedVectorEnv(gymnasium.make_vec("CartPole-v1", num_envs=2), host).reset()
    with pytest.raises(InputError, match="mission"):
        ShapedEnv(gymnasium.make("CartPole-v1"), host).reset()
