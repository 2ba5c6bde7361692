# %% [markdown]
# # Put ELLA on your own environment
#
# You have a Gymnasium environment whose episodes come with an instruction in words. ELLA needs two
# more things from you: a list of simpler (low-level) instructions, and a *judge* that reads from an
# observation which of them have been carried out. You will write all three for a small workshop,
# train Stable-Baselines3's PPO with and without ELLA, and see what ELLA found out about the words.
#
# It takes a few minutes on one CPU core. Needs the extra `stable-baselines3`.

# %%
import os
from pathlib import Path

import gymnasium
import matplotlib.pyplot as plt
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from ella import HostElla, ShapedVecEnv
from ella.networks.settings import RelevanceNetworkSettings
from ella.shaping.settings import RelevanceSettings

SCALE = os.environ.get("NOTEBOOK_SCALE", "laptop")  # "smoke" only shows that every cell runs
FRAMES = {"laptop": 200_000, "smoke": 12_288}[SCALE]
NUM_ENVS = 16
DISCOUNT = 0.99

# %% [markdown]
# ## The environment
#
# A corridor with tools, parts and, among them, a bench. The agent walks left and right and uses
# what is where it stands. It carries one tool and one part; taking another puts the first back. The
# bench finishes the job if both in hand are the right ones. "nail the shelf" needs the hammer and
# the shelf, but nobody says so: a job's verb and its tool have no word in common.

# %%
TOOLS = {"nail": "hammer", "cut": "saw", "paint": "brush", "bore": "drill"}
PARTS = ("frame", "shelf", "box")
PLACES = ("hammer", "frame", "saw", "bench", "shelf", "brush", "box", "drill")
GAP = {"laptop": 3, "smoke": 1}[SCALE]  # cells from one place to the next
HORIZON = 60
LEFT, RIGHT, USE = range(3)
LENGTH = GAP * (len(PLACES) - 1) + 1
# An observation is four one-hot parts: the cell, the tool and the part in hand, and the job.
TOOL = LENGTH
PART = TOOL + len(TOOLS)
JOB = PART + len(PARTS)
WIDTH = JOB + len(TOOLS) + len(PARTS)


class Workshop(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0.0, 1.0, (WIDTH,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell = int(self.np_random.integers(LENGTH))
        self.verb = str(self.np_random.choice(list(TOOLS)))
        self.noun = str(self.np_random.choice(PARTS))
        self.tool = self.part = None
        self.steps = 0
        return self.observation(), {"mission": f"{self.verb} the {self.noun}"}

    def step(self, action):
        self.steps += 1
        done = False
        if action != USE:
            self.cell = min(max(self.cell + (1 if action == RIGHT else -1), 0), LENGTH - 1)
        elif self.cell % GAP == 0:
            place = PLACES[self.cell // GAP]
            if place in TOOLS.values():
                self.tool = place
            elif place in PARTS:
                self.part = place
            else:
                done = self.tool == TOOLS[self.verb] and self.part == self.noun
        reward = 1 - 0.9 * self.steps / HORIZON if done else 0.0
        return self.observation(), reward, done, self.steps >= HORIZON, {}

    def observation(self):
        seen = np.zeros(WIDTH, np.float32)
        seen[self.cell] = 1
        if self.tool is not None:
            seen[TOOL + list(TOOLS.values()).index(self.tool)] = 1
        if self.part is not None:
            seen[PART + PARTS.index(self.part)] = 1
        seen[[JOB + list(TOOLS).index(self.verb), JOB + len(TOOLS) + PARTS.index(self.noun)]] = 1
        return seen


# %% [markdown]
# The instruction is in `info["mission"]`, where the wrappers look first. An environment that tells
# it elsewhere gives the wrapper a function instead (`missions=`).
#
# ## Low-level instructions and a judge
#
# The judge gets a batch of observations, as the environments return them, and answers bool[B, L].
# Here it is a few lines, because the observation tells. Where it does not, `ella.TrainedJudge`
# learns a judge from labelled observations.

# %%
LOW_LEVEL = [f"take the {name}" for name in (*TOOLS.values(), *PARTS)] + ["go to the bench"]
BENCH = GAP * PLACES.index("bench")


def judge(observations):
    in_hand = observations[:, TOOL:JOB] > 0
    return np.concatenate([in_hand, observations[:, [BENCH]] > 0], axis=1)


env = Workshop()
observation, info = env.reset(seed=0)
print(info["mission"], judge(observation[None]).tolist())

# %% [markdown]
# ## Train with and without ELLA
#
# `HostElla` holds what ELLA learns, `ShapedVecEnv` adds its bonuses to the rewards. The discount is
# the learner's. One bonus is 2 % of the reward of a success: an episode that fails keeps at most
# eight of them, one that succeeds gives them back, up to half of its reward.

# %%


def make_ella():
    return HostElla(
        LOW_LEVEL,
        judge,
        bonus_share=0.02,
        discount=DISCOUNT,
        first_update=1_000,
        # A vocabulary this small needs only a small classifier.
        relevance=RelevanceSettings(network=RelevanceNetworkSettings(hidden_size=32)),
        max_instructions=32,
        max_words=8,
        vocabulary=64,
    )


class Successes(BaseCallback):
    """Keeps which episodes were solved, and after how many frames."""

    def _on_training_start(self):
        self.frames, self.solved = [], []

    def _on_step(self):
        for info in self.locals["infos"]:
            if "episode" in info:  # of the Monitor inside, which sees unshaped rewards
                self.frames.append(self.num_timesteps)
                self.solved.append(info["episode"]["r"] > 0)
        return True


def train(ella):
    envs = make_vec_env(Workshop, n_envs=NUM_ENVS, seed=0)
    if ella is not None:
        envs = ShapedVecEnv(envs, ella)
    model = PPO(
        "MlpPolicy", envs, gamma=DISCOUNT, n_steps=64, batch_size=256, n_epochs=4, ent_coef=0.01,
        learning_rate=1e-3, seed=0, device="cpu",
    )  # fmt: skip
    successes = Successes()
    model.learn(FRAMES, callback=successes)
    return successes


ella = make_ella()
curves = {"PPO": train(None), "PPO with ELLA": train(ella)}

# %%
figure, axes = plt.subplots(figsize=(6, 3.5))
edges = np.linspace(0, FRAMES, 21)
shares = {}
for label, found in curves.items():
    line = np.digitize(found.frames, edges)
    solved = np.array(found.solved, float)
    shares[label] = [
        solved[line == one].mean() if (line == one).any() else np.nan for one in range(1, 21)
    ]
    axes.plot(edges[1:], shares[label], ".-", label=label)
axes.set(xlabel="frames", ylabel="jobs finished", ylim=(0, 1))
axes.legend()
figure.tight_layout()

# %% [markdown]
# One seed of each is an illustration, not a result: which curve is ahead changes from seed to seed.
# `examples/recipes` compares five seeds of each on other environments, and
# `docs/own-environment.md` says when ELLA can help at all.
#
# ## What ELLA found out
#
# `solved()` tells what the successes of each instruction had in common, `relevance()` what the
# classifier that learned from them says. Above one half a completion is paid for. For a job that
# has never been finished everything is.

# %%
for mission, common in ella.solved().items():
    print(f"{mission}: {', '.join(sorted(common))}")
print()
for verb in TOOLS:
    probabilities = ella.relevance(f"{verb} the shelf")
    paid = [text for text, probability in probabilities.items() if probability > 0.5]
    print(f"for '{verb} the shelf' ELLA pays for: {', '.join(paid) or 'nothing'}")

# %% [markdown]
# Every job needs a tool, a part and the bench. Until a job has been finished several times, other
# things that happened to be taken on the way stay in its list: what successes have in common can
# only shrink.
#
# ## Keep it, and use it elsewhere
#
# What was learned is one file beside your model's. A loop of your own, without Stable-Baselines3,
# calls `ella.start` and `ella.shape`; `examples/recipes/cleanrl_ppo.py` is one.

# %%
FILE = Path("runs") / "workshop-ella.safetensors"
FILE.parent.mkdir(exist_ok=True)
ella.save(FILE)
again = make_ella()
again.load(FILE)
assert again.relevance("cut the box") == ella.relevance("cut the box")
