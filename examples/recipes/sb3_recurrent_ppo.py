"""sb3-contrib's RecurrentPPO with and without ELLA on two of minigrid's environments.

The agent sees 7 by 7 cells and forgets what it no longer sees unless its policy has a memory.

    python examples/recipes/sb3_recurrent_ppo.py --env MiniGrid-DoorKey-8x8-v0 --seeds 5
"""

import torch
from minigrid_tasks import ENVS, SMALL_FEATURES, host_ella, make
from paired_runs import Outcome, Run, main
from sb3_contrib import RecurrentPPO
from sb3_ppo import EpisodeLog
from stable_baselines3.common.env_util import make_vec_env

from ella import ShapedVecEnv
from ella.adapters.stable_baselines3 import EllaLog
from ella.adapters.stable_baselines3_features import BabyAIFeatures

DISCOUNT = 0.99
NUM_ENVS = 16


def train(run: Run) -> Outcome:
    torch.set_num_threads(1)
    envs = make_vec_env(lambda: make(run.env), n_envs=NUM_ENVS, seed=run.seed)
    log, callbacks = EpisodeLog(), []
    ella = host_ella(run.env, run.seed, DISCOUNT) if run.shaped else None
    if ella is not None:
        envs = ShapedVecEnv(envs, ella)
        callbacks.append(EllaLog(ella))
    model = RecurrentPPO(
        "MultiInputLstmPolicy",
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
            "lstm_hidden_size": 64,
            "shared_lstm": True,  # by actor and critic: half the work
            "enable_critic_lstm": False,
        },
        seed=run.seed,
        device="cpu",
    )
    model.learn(run.frames, callback=[log, *callbacks])
    envs.close()
    return Outcome(log.episodes, ella)


if __name__ == "__main__":
    main("sb3_recurrent_ppo", __doc__, train, ENVS, frames=500_000)
