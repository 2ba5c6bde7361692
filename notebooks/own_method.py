# %% [markdown]
# # Write your own shaper and task
#
# A task is a row of data; a method is a dataclass that builds a *shaper*, three functions that turn
# rollouts into bonuses. Neither needs a change of the package. You will make a task of your own,
# write a shaper that pays an agent once an episode for having something in its hands, see what it
# pays in one episode, and train with it alone and together with RIDE.
#
# It takes minutes on two CPU cores.

# %%
import os
from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import ella
from ella.episodes.episode import expert_actor, play
from ella.episodes.payments import episode_trajectory
from ella.episodes.video import draw
from ella.measurement import mean_of
from ella.world import compiled
from ella.world.encoding import EMPTY

SCALE = os.environ.get("NOTEBOOK_SCALE", "laptop")  # "smoke" only shows that every cell runs
SEEDS = 2

# %% [markdown]
# ## A task
#
# Two rooms, three objects, a door that is always locked, and instructions of the kind "pick up the
# blue ball". The fields of `ella.TaskSpec` are the choices of BabyAI's level generator. Levels,
# language, horizon, expert and video all follow from the row.

# %%
fetch = ella.TaskSpec(
    "fetch-small", ("pickup",), room_size=5, distractors=3, unique_objects=True,
    lock_probability=1.0, implicit_unlock=True,
)  # fmt: skip
world = ella.make(fetch)
episode = play(world, expert_actor(world), compiled.reset(world, jax.random.key(1)))
print(f"{fetch.language.num_ids} instructions, at most {max(fetch.horizons)} steps")
plt.imshow(draw(episode.frames()[:1])[0])
plt.axis("off")

# %% [markdown]
# ## A shaper
#
# A shaper is an Equinox module whose fields are numbers and frozen networks, shared by all seeds.
# What changes during training is its state, one per seed:
#
# - `init` makes the state. Here it is one flag for each environment: has the episode been paid for?
# - `shape` gets T steps of B environments and returns the new state, the bonus [T, B], which is
#   added to the scaled reward, and measurements. Shaping T steps at once must equal shaping them
#   one by one, so whatever an episode remembers belongs into the state, not into the rollout.
# - `fit` learns from the rollout after the policy did. There is nothing to learn here.
#
# The agent sees what it carries in its own cell of the view, in the middle of the last row.

# %%
OWN_CELL = (3, 6)


class GraspShaper(ella.AbstractRewardShaper):
    """Pays `price` at an episode's first step after which the agent carries something."""

    price: float

    def init(self, num_envs, *, key):
        return jnp.zeros(num_envs, bool)

    def shape(self, state, trajectory):
        shown = trajectory.next_observation.image[..., *OWN_CELL, 0]  # [T, B], types of objects
        carries = shown != EMPTY

        def step(paid, now):
            first, carries = now
            paid = paid & ~first  # a new episode
            pays = carries & ~paid
            return paid | pays, pays

        state, pays = jax.lax.scan(step, state, (trajectory.first, carries))
        return state, jnp.where(pays, self.price, 0.0), {"grasped": mean_of(pays)}

    def fit(self, state, trajectory, iteration, *, key):
        return state, {}


# %% [markdown]
# Before training, look at what it pays. `episode_trajectory` makes a trajectory [T, 1] of the
# expert's episode above, and splitting it must not change the bonus.

# %%
shaper = GraspShaper(price=0.5)
trajectory = episode_trajectory(episode.timesteps, episode.actions)
start = shaper.init(1, key=jax.random.key(0))
_, bonus, _ = shaper.shape(start, trajectory)


def steps(part):
    """Some steps of the trajectory."""
    chosen = jax.tree.map(lambda leaf: leaf[part], trajectory)
    return replace(chosen, instructions=trajectory.instructions)


half = len(episode.actions) // 2
middle, first_bonus, _ = shaper.shape(start, steps(slice(None, half)))
_, second_bonus, _ = shaper.shape(middle, steps(slice(half, None)))
np.testing.assert_array_equal(jnp.concatenate([first_bonus, second_bonus]), bonus)

figure, axes = plt.subplots(figsize=(7, 2))
axes.stem(np.arange(1, len(bonus) + 1), bonus[:, 0])
axes.set(xlabel="step", ylabel="bonus")
figure.tight_layout()

# %% [markdown]
# One payment, when the expert takes the key. Unlike ELLA's, this bonus is not taken back at
# success, and it pays for any object, whatever the instruction says.
#
# ## A method
#
# The method is what users see: its fields are the settings, with their documentation, and `build`
# makes the shaper. `name` and `label` are what files and figures call it.

# %%


@dataclass(frozen=True)
class Grasp(ella.Method):
    """GRASP: a bonus for having something in hand, once an episode."""

    name: ClassVar[str] = "grasp"
    label: ClassVar[str] = "Grasp"

    price: float = 0.5
    """The bonus, in units of the scaled reward."""

    def build(self, context):
        return GraspShaper(self.price)


# %% [markdown]
# ## Train
#
# Methods add up with `+`: here the bonuses of Grasp and of RIDE are both paid. Seeds, checkpoints
# and sweeps need nothing more from you.

# %%
methods = {"PPO": ella.PPO(), "Grasp": Grasp(), "Grasp + RIDE": Grasp() + ella.RIDE()}
results = {
    label: ella.train(fetch, method, preset=SCALE, seeds=SEEDS) for label, method in methods.items()
}

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.5))
for label, result in results.items():
    left.plot(result.frames, result.success_rate.mean(1), ".-", label=label)
    if "grasped" in result.metrics:
        right.plot(result.frames, result.metrics["grasped"].mean(1), ".-", label=label)
left.set(xlabel="frames of each seed", ylabel="success rate", ylim=(0, 1))
right.set(xlabel="frames of each seed", ylabel="share of steps paid by Grasp", ylim=(0, None))
left.legend()
right.legend()
figure.tight_layout()

# %% [markdown]
# The left panel is what counts; the right one shows whether the bonus does what it was meant to. If
# the agent grasps more but succeeds no sooner, the bonus is the wrong one or too large. Two seeds
# say little: compare more before you believe a difference.
#
# ## Name them
#
# Registered, both are known by name in this program. An installed package offers them to the `ella`
# command too, with options such as `--grasp.price`, by entry points (`docs/methods.md`,
# `docs/tasks.md`).

# %%
ella.register_task(fetch)
ella.register_method(Grasp)
same = ella.training_function("fetch-small", "grasp", preset=SCALE)

# %% [markdown]
# Float fields of a shaper, like `price`, can be swept in one compiled program:
# [lambda_sweep.py](lambda_sweep.py) does that with ELLA's lambda.
