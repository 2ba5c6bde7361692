# %% [markdown]
# # A lambda sweep as one `vmap`
#
# Lambda is the size of ELLA's bonus. Too small a bonus guides nobody; too large a one makes
# collecting bonuses worth more than success. `ella.training_function` is training as a pure
# function of a random key and of numeric settings, so a sweep is a `vmap` over the numbers, seeds
# are a `vmap` over keys, and both together are one compiled program. You will train every lambda
# with every seed at once and draw success against lambda, beside the bound that theory allows.
#
# It takes minutes on two CPU cores, and less on a GPU, which trains the agents side by side.

# %%
import os
import time

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import ella
from ella.intervals import SHARE, student_t
from ella.training import presets
from ella.world.tasks import find

SCALE = os.environ.get("NOTEBOOK_SCALE", "laptop")  # "smoke" only shows that every cell runs
TASK = "unlock-small"
LAMBDAS = np.array({"laptop": [0.0, 0.125, 0.5, 2.0], "smoke": [0.0, 0.5]}[SCALE], np.float32)
SEEDS = {"laptop": 3, "smoke": 2}[SCALE]

# %% [markdown]
# ## Training as a function
#
# The offline stage runs here, once: every agent of the sweep shares the classifier that recognises
# completed low-level instructions. What is left is pure.

# %%
train = ella.training_function(TASK, "ella", preset=SCALE)

# %% [markdown]
# ## The sweep
#
# `train(key, numbers)` takes numeric settings by their dotted names, which are those of the command
# line (`--ella.bonus`). The inner `vmap` is over seeds, with the same numbers for all; the outer
# one is over lambdas, with the same keys for all, so that columns of the result are comparable.

# %%
keys = jax.random.split(jax.random.key(0), SEEDS)
over_seeds = jax.vmap(train, in_axes=(0, None))
over_lambdas = jax.vmap(over_seeds, in_axes=(None, 0))

began = time.monotonic()
states, metrics = jax.jit(over_lambdas)(keys, {"ella.bonus": jnp.asarray(LAMBDAS)})
success = np.asarray(metrics["success_rate"])  # [lambdas, seeds, log lines]
print(f"{success.shape} in {time.monotonic() - began:.0f} s, compilation included")

# %% [markdown]
# `states` and every one of `metrics` have the axes [lambdas, seeds, ...]. Nothing here was written
# for a sweep: `{"ppo.learning_rate": ...}` or `{"ppo.entropy_coefficient": ...}` are swept alike,
# and two numbers of one length are swept as pairs.
#
# ## Success against lambda
#
# Beyond the bound a failure can return as much as an optimal success. It assumes the longest of the
# shortest solutions (21 steps here) and that one episode could complete all low-level instructions,
# which none can: it is safe rather than tight. `ella bound unlock-small` prints it.

# %%
task = find(TASK)
settings = presets.find(SCALE, "ella").resolved(task)
bound = settings.method.bound(task, settings.ppo, settings.method.optimal_steps)
print(f"bound: {bound:.3g}")
late = np.nanmean(success[..., -max(1, success.shape[-1] // 10) :], axis=-1)  # [lambdas, seeds]
means = [student_t(row, SHARE) for row in late]

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.5))
for value, curves in zip(LAMBDAS, success, strict=True):
    left.plot(curves.mean(0), ".-", label=f"lambda {value:g}")
left.set(xlabel="log line", ylabel="success rate", ylim=(0, 1))
left.legend()
places = np.arange(len(LAMBDAS))
right.plot(places, late, ".", color="0.6")
right.errorbar(
    places,
    [one.value for one in means],
    [[one.value - one.low for one in means], [one.high - one.value for one in means]],
    fmt="o",
    capsize=3,
)
right.set_xticks(places, [f"{value:g}" for value in LAMBDAS])
right.set(xlabel="lambda", ylabel="success at the end", ylim=(0, 1))
right.axvspan(np.interp(bound, LAMBDAS, places), places[-1] + 0.5, color="0.9", zorder=0)
figure.tight_layout()

# %% [markdown]
# Left are means over seeds, right the last tenth of training: grey dots are seeds, bars 95 %
# Student-t intervals, and the shaded part lies beyond the bound. Lambda 0 is plain PPO with ELLA's
# measurements switched on. With three seeds the intervals are wide; more seeds cost only a longer
# first axis of `keys`.
#
# ## What the bonus did
#
# Success alone does not say why a lambda fails. If bonuses per episode grow while success does not,
# agents collect them. An insolvent success is charged more for its bonuses than it was rewarded
# with.

# %%
print("lambda  success  bonuses an episode  insolvent successes")
for index, value in enumerate(LAMBDAS):
    rate, paid, insolvent = (
        float(np.asarray(metrics[name])[index, :, -1].mean())
        for name in ("success_rate", "bonus_per_episode", "insolvent_successes")
    )
    print(f"{value:6g}  {rate:7.1%}  {paid:18.2f}  {insolvent:19.1%}")

# %% [markdown]
# `docs/choosing-lambda.md` says how to choose lambda for a task of your own. From the command line
# `ella reproduce lambda` runs such a sweep on the paper's tasks, with checkpoints.
