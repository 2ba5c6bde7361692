"""The compiled world as Stable-Baselines3's environments, and the features its policies read."""

import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecMonitor

from ella.adapters.babyai_judge import babyai_low_level
from ella.adapters.gymnasium_vector import EllaVectorEnv
from ella.adapters.host_ella import HostElla
from ella.adapters.stable_baselines3 import ShapedVecEnv, told_missions
from ella.adapters.stable_baselines3_features import BabyAIFeatures
from ella.adapters.stable_baselines3_vector import EllaVecEnv
from ella.errors import InputError
from ella.world import TaskSpec

B = 8
SHORT = TaskSpec("goto-room-short", ("goto",), cols=1, agent_first=True, max_steps=3)
"""Episodes of at most three steps: resets at every turn."""
POLICY = {"features_extractor_class": BabyAIFeatures, "net_arch": [16]}


def make() -> EllaVecEnv:
    return EllaVecEnv(SHORT, B, pool_size=2 * B)


def test_step_by_step_it_is_the_gymnasium_vector_environment():
    mine, theirs = make(), EllaVectorEnv(B, SHORT, pool_size=2 * B)
    mine.seed(5)
    observations = mine.reset()
    expected, infos = theirs.reset(seed=5)
    truncations = ends = 0
    for actions in np.random.default_rng(0).integers(6, size=(60, B)):
        for name in expected:
            np.testing.assert_array_equal(observations[name], expected[name])
        assert told_missions(mine) == mine.get_attr("mission") == list(infos["mission"])
        observations, rewards, dones, told = mine.step(actions)
        expected, reward, terminated, truncated, infos = theirs.step(actions)
        np.testing.assert_array_equal(rewards, reward.astype(np.float32))
        np.testing.assert_array_equal(dones, terminated | truncated)
        for i, info in enumerate(told):
            assert info["TimeLimit.truncated"] == (truncated[i] and not terminated[i])
            assert ("terminal_observation" in info) == dones[i]
            if dones[i]:
                assert info["mission"] == infos["final_info"]["mission"][i]
                for name, value in infos["final_obs"][i].items():
                    np.testing.assert_array_equal(info["terminal_observation"][name], value)
        ends, truncations = ends + dones.sum(), truncations + truncated.sum()
    assert ends > truncations > 8 * B


def test_seeds_fix_everything_and_are_used_once():
    env = make()
    env.seed(3)
    first, second = env.reset()["image"], env.reset()["image"]
    env.seed(3)
    np.testing.assert_array_equal(env.reset()["image"], first)
    assert np.any(first != second)


@pytest.mark.thorough
def test_ppo_trains_on_shaped_environments_with_embedded_words():
    low_level = babyai_low_level("goto-room", learned=False)
    host = HostElla(low_level.instructions, low_level.judge, max_instructions=128)
    envs = ShapedVecEnv(VecMonitor(make()), host)
    model = PPO("MultiInputPolicy", envs, n_steps=16, batch_size=64, n_epochs=1, device="cpu",
                seed=0, policy_kwargs=POLICY)  # fmt: skip
    before = model.policy.features_extractor.words.weight.detach().clone()
    model.learn(2 * 16 * B)
    after = model.policy.features_extractor.words.weight.detach()
    assert not torch.equal(before, after)
    assert torch.equal(after[0], torch.zeros_like(after[0]))  # padding means nothing
    assert len(model.ep_info_buffer) > B
    assert all(text.startswith("go to ") for text in envs._missions)


@pytest.mark.thorough
def test_features_read_words_in_order_and_no_padding():
    space = EllaVectorEnv(1, SHORT).single_observation_space
    features = BabyAIFeatures(space, 8)
    length = space["mission"].shape[0]

    def of(*tokens: int) -> torch.Tensor:
        mission = torch.zeros(1, length)
        mission[0, : len(tokens)] = torch.tensor(tokens)
        image = torch.zeros(1, 7, 7, 3)
        return features._read(mission.long()), features(
            {"image": image, "mission": mission, "direction": torch.eye(4)[:1]}
        )

    (spoken, one), (turned, other) = of(1, 2, 3), of(3, 2, 1)
    assert one.shape == (1, 8)
    assert not torch.allclose(spoken, turned)
    assert not torch.equal(one, other)
    states, _ = features.sentence(features.words(torch.tensor([[1, 2, 3]])))
    torch.testing.assert_close(spoken, states[:, -1])


def test_misuse_is_one_line():
    env = make()
    with pytest.raises(InputError, match="step_async"):
        env.step_wait()
    with pytest.raises(InputError, match=r"call reset\(\) first"):
        env.step(np.zeros(B, int))
    env.reset()
    with pytest.raises(InputError, match="from 0 to 6, got 7"):
        env.step(np.full(B, 7))
    with pytest.raises(InputError, match="no 'mission' to set"):
        env.set_attr("mission", "go")
    with pytest.raises(InputError, match="no method 'fly'"):
        env.env_method("fly")
    with pytest.raises(InputError, match="need a Box 'mission'"):
        BabyAIFeatures(gymnasium.spaces.Dict({"image": gymnasium.spaces.Box(0, 9, (7, 7, 3))}))


def test_pictures_of_every_environment():
    env = EllaVecEnv(SHORT, B, pool_size=2 * B, render_mode="rgb_array", tile_size=4)
    env.reset()
    assert {picture.shape for picture in env.get_images()} == {(32, 32, 3)}
