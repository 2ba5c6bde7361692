"""minigrid's own levels for networks that read token ids."""

import gymnasium
import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.env_util import make_vec_env

from ella.adapters.minigrid_tokens import BABYAI_WORDS, TokenMissions
from ella.adapters.stable_baselines3_features import BabyAIFeatures
from ella.errors import InputError
from ella.world.grammar import TOKEN_IDS

pytest.importorskip("minigrid")


def words(tokens: np.ndarray) -> str:
    return " ".join(BABYAI_WORDS[token - 1] for token in tokens if token)


@pytest.mark.parametrize("name", ["GoToLocal", "GoToObjMazeOpen", "SynthLoc", "BossLevel"])
def test_tokens_are_the_sentence(name):
    env = TokenMissions(gymnasium.make(f"BabyAI-{name}-v0"), max_words=72)
    for seed in range(20):
        observation, info = env.reset(seed=seed)
        assert observation in env.observation_space
        assert words(observation["mission"]) == info["mission"].replace(",", "")
    observation, *_, info = env.step(0)
    assert words(observation["mission"]) == info["mission"].replace(",", "")


def test_tokens_agree_with_those_of_ellas_own_tasks():
    assert {word: BABYAI_WORDS.index(word) + 1 for word in TOKEN_IDS} == TOKEN_IDS


@pytest.mark.thorough
def test_stable_baselines_trains_on_minigrids_own_level():
    def make() -> gymnasium.Env:
        return TokenMissions(gymnasium.make("BabyAI-GoToLocal-v0"))

    check_env(make(), warn=False)
    envs = make_vec_env(make, n_envs=2, seed=0)
    policy = {"features_extractor_class": BabyAIFeatures}
    model = PPO("MultiInputPolicy", envs, n_steps=16, batch_size=16, n_epochs=1, device="cpu",
                policy_kwargs=policy)  # fmt: skip
    assert model.env.observation_space["image"].shape == (7, 7, 3)  # not transposed
    model.learn(32)


def test_misuse_is_one_line():
    door_key = gymnasium.make("MiniGrid-DoorKey-5x5-v0")
    with pytest.raises(InputError, match=r"'use' of the mission .* words="):
        TokenMissions(door_key).reset()
    with pytest.raises(InputError, match="13 words, more than 4; raise max_words"):
        TokenMissions(door_key, max_words=4).reset()
    mission = "use the key to open the door and then get to the goal"
    own = TokenMissions(door_key, words=tuple(dict.fromkeys(mission.split())))
    assert own.reset()[0]["mission"].max() == len(set(mission.split()))
    with pytest.raises(InputError, match="'image' and 'mission'"):
        TokenMissions(gymnasium.make("CartPole-v1"))
