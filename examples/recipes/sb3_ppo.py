"""Stable-Baselines3's PPO with and without ELLA on two of minigrid's environments.

python examples/recipes/sb3_ppo.py --env BabyAI-UnlockLocal-v0 --seeds 5 --frames 500000
"""

import torch
from minigrid_tasks import ENVS, SMALL_FEATURES, host_ella, make
from paired_runs import Episodes, Outcome, Run, main
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from ella import ShapedVecEnv
from ella.adapters.stable_baselines3 import EllaLog
from ella.adapters.stable_baselines3_features import BabyAIFeatures

DISCOUNT = 0.99
NUM_ENVS = 16


class EpisodeLog(BaseCallback):
    """Keeps which episodes were solved. The `Monitor` of `make_vec_env` lies inside the wrapper, so
    its returns are without bonuses."""

    def __init__(self) -> None:
        super().__init__()
        self.episodes = Episodes()

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:
                self.episodes.add(self.num_timesteps, info["episode"]["r"] > 0)
        return True


def train(run: Run) -> Outcome:
    torch.set_num_threads(1)
    envs = make_vec_env(lambda: make(run.env), n_envs=NUM_ENVS, seed=run.seed)
    log, callbacks = EpisodeLog(), []
    ella = host_ella(run.env, run.seed, DISCOUNT) if run.shaped else None
    if ella is not None:
        envs = ShapedVecEnv(envs, ella)
        callbacks.append(EllaLog(ella))
    model = PPO(
        "MultiInputPolicy",
        envs,
        n_steps=128,
        batch_size=512,
        n_epochs=4,
        gamma=DISCOUNT,
        ent_coef=0.01,
        learning_rate=5e-4,
        policy_kwargs={
            "features_extractor_class": BabyAIFeatures,
            "features_extractor_kwargs": SMALL_FEATURES,
        },
        seed=run.seed,
        device="cpu",
    )
    model.learn(run.frames, callback=[log, *callbacks])
    envs.close()
    return Outcome(log.episodes, ella)


if __name__ == "__main__":
    main("sb3_ppo", __doc__, train, ENVS, frames=500_000)
