# %% [markdown]
# # Train an agent and watch it
#
# Two small rooms, a locked door between them, and an instruction such as "open the red door".
# Reward comes only when the door opens. You will train plain PPO and ELLA from the same seeds,
# compare their learning curves, watch the ELLA agent with the steps marked at which a bonus was
# paid, and look up which low-level instructions ELLA came to call relevant.
#
# It takes minutes on two CPU cores. This file is a notebook in jupytext's percent format: VS Code
# and PyCharm open it as one, Jupyter does with the package `jupytext` installed.

# %%
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import ella
from ella.episodes.episode import expert_actor, play
from ella.episodes.explanation import explain, spread_instructions
from ella.episodes.payments import payment_marker
from ella.episodes.trained import trained_actor
from ella.episodes.video import draw, moments, write_video
from ella.world import compiled

SCALE = os.environ.get("NOTEBOOK_SCALE", "laptop")  # "smoke" only shows that every cell runs
TASK, SEEDS = "unlock-small", 2

# %% [markdown]
# ## The task
#
# A task draws a fresh level for every episode. Here an expert, a planner that sees the whole level,
# solves one: fetch the key that has the door's colour, then open the door. The cells the agent sees
# are highlighted; it never sees the whole level.

# %%
world = ella.make(TASK)


def show(frames, count=5):
    """Up to `count` moments of an episode side by side."""
    images = draw(frames)
    chosen = moments(frames, count)
    figure, axes = plt.subplots(1, len(chosen), figsize=(4 * len(chosen), 4), squeeze=False)
    for index, place in zip(chosen, axes[0], strict=True):
        place.imshow(images[index])
        place.axis("off")
    figure.tight_layout()


show(play(world, expert_actor(world), compiled.reset(world, jax.random.key(2))).frames())

# %% [markdown]
# ## Train
#
# `ella.train` compiles world, policy and learner into one program and trains all seeds in it. ELLA
# has an offline stage first: a classifier learns from episodes of the expert to recognise when a
# low-level instruction ("pick up the red key") has been completed. That an agent should pick up
# *red* keys to open *red* doors it is not told.

# %%


def report(line):
    print(f"{line.frames:>8,} frames, success {np.mean(line.values['success_rate']):.0%}")


results = {}
for method in ("ppo", "ella"):
    print(method)
    results[method] = ella.train(TASK, method, preset=SCALE, seeds=SEEDS, on_log_line=report)

# %% [markdown]
# `result.success_rate` is an array [log lines, seeds]; a line is the share of solved episodes among
# those that ended since the line before. `result.metrics` holds everything else that was measured.

# %%
figure, axes = plt.subplots(figsize=(6, 3.5))
for method, colour in (("ppo", "0.45"), ("ella", "#d55e00")):
    result = results[method]
    axes.plot(result.frames, result.success_rate, ".-", color=colour, linewidth=0.8, alpha=0.5)
    axes.plot(result.frames, result.success_rate.mean(1), ".-", color=colour, label=method)
axes.set(xlabel="frames of each seed", ylabel="success rate", ylim=(0, 1))
axes.legend()
figure.tight_layout()

# %% [markdown]
# Thin lines are seeds, thick ones their means. Two seeds show what can happen, not how often: over
# ten sets of seeds ELLA was ahead in all ten (`results/demo/seed-sets.json`).
#
# ## Watch
#
# A policy plays fresh levels. Of sixteen, take the shortest episode that it solves in at least ten
# steps, if there is one. Blue marks are low-level instructions that the classifier found completed,
# yellow ones those that ELLA also called relevant and paid a bonus for. The success takes all
# bonuses back, so that collecting them is never better than opening the door.

# %%
trained = results["ella"]
policy = trained.policy(0)
learned = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), trained.states.shaper)  # of seed 0


def episode(seed):
    """The trained policy on the level of a seed, actions sampled as in training."""
    key = jax.random.key(seed)
    return play(world, trained_actor(policy, key), compiled.reset(world, key))


episodes = [episode(seed) for seed in range(16)]
solved = [one for one in episodes if one.reward > 0 and len(one.actions) >= 10]
chosen = min(solved, key=lambda one: len(one.actions)) if solved else episodes[0]
frames = chosen.frames(payment_marker(trained.task, trained.shaper, learned))
show(frames)
video = write_video(frames, Path("runs") / "unlock-small.gif")

# %% [markdown]
# The video is in `runs/unlock-small.gif`. How often does the policy succeed on levels it has never
# seen?

# %%
evaluated = ella.evaluate(policy, episodes=256, mode="sampled")
print(f"success on 256 fresh levels, with a 95 % interval: {evaluated.success_rate}")

# %% [markdown]
# ## What ELLA calls relevant
#
# Rows are high-level instructions, columns low-level ones; bright cells earn the bonus. Before
# training everything is relevant. Then, from the agent's own successes, ELLA keeps what all
# successes of an instruction had in common.

# %%
language = trained.task.language
missions = [language.text(int(index)) for index in spread_instructions(language, 6)]
explanations = [explain(trained.task, trained.shaper, learned, text) for text in missions]
low_level = sorted(one.text for one in explanations[0].judgements)
relevance = np.array(
    [[{one.text: one.probability for one in found.judgements}[text] for text in low_level]
     for found in explanations]
)  # fmt: skip
figure, axes = plt.subplots(figsize=(8, 4))
picture = axes.imshow(relevance, vmin=0, vmax=1)
axes.set_xticks(range(len(low_level)), low_level, rotation=90, fontsize=7)
axes.set_yticks(range(len(missions)), missions)
figure.colorbar(picture, label="probability of relevance")
figure.tight_layout()
for found in explanations:
    print(found)

# %% [markdown]
# After enough successes a door's row is bright at the key of its colour and dark at the balls and
# boxes. Where a colour's door was rarely opened, more stays bright.
#
# Keep the agent, and load it again with `ella.load_policy`:

# %%
policy.save(Path("runs") / "unlock-small-policy")

# %% [markdown]
# Next: `ella studio` lets you watch agents step by step and take over with the keyboard;
# [own_environment.py](own_environment.py) puts ELLA on an environment of your own.
