"""Training one agent as a pure function of a random key."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ella.errors import unknown_name
from ella.methods.method import Method
from ella.ppo.iteration import TrainState, init_train_state, run_iteration
from ella.ppo.settings import PPOSettings
from ella.shaping.shaper import AbstractRewardShaper, numbers_of, with_numbers
from ella.training import presets
from ella.training.assembly import build_shaper, training_environment
from ella.training.progress import progress_shown
from ella.training.settings import TrainingSettings
from ella.world import tasks
from ella.world.environment import Environment
from ella.world.tasks import TaskSpec

Numbers = Mapping[str, Float[Array, ""]]
"""Numeric settings by dotted name, such as `ppo.learning_rate` or `ella.bonus`."""
SHARED_WITH_LEARNER = ("discount", "reward_scale")
"""Numbers that a shaper takes from its learner, unless its method has a setting of that name."""


def training_function(
    task: str | TaskSpec,
    method: str | Method = "ppo",
    *,
    frames: int | None = None,
    preset: str = presets.PAPER,
    ppo: PPOSettings | None = None,
    log_every: int | None = None,
    also: Sequence[str] = (),
) -> Callable[..., tuple[TrainState, dict[str, Float[Array, " lines"]]]]:
    """A pure function of a random key that trains one agent: `jit` and `vmap` it as you like.

    The function takes (key, numbers): `numbers` are numeric settings in place of the given ones,
    by dotted name; `vmap` over them is a sweep. It returns the train state at the end and the mean
    of every measurement since the log line before. The offline stage runs here, once. Of a seed
    whose start `ella.train` refuses, such as relevance that does not begin with everything
    relevant, every metric is NaN but `start_refused`, which is 1 there and 0 elsewhere.

        train = training_function("unlock-maze", ella.ELLA(), frames=1_000_000)
        keys = jax.random.split(jax.random.key(0), 8)
        over_seeds = jax.vmap(train, in_axes=(0, None))
        over_lambda = jax.vmap(over_seeds, in_axes=(None, 0))
        states, metrics = jax.jit(over_lambda)(keys, {"ella.bonus": jnp.array([0.05, 0.25, 1.0])})
    """
    spec = tasks.find(task) if isinstance(task, str) else task
    settings = presets.start(
        preset, method, frames=frames, ppo=ppo, log_every=log_every, also=also
    ).resolved(spec)
    env = training_environment(spec, settings)
    with progress_shown():
        shaper = build_shaper(spec, settings)

    def train_one(
        key: PRNGKeyArray, numbers: Numbers | None = None
    ) -> tuple[TrainState, dict[str, Float[Array, " lines"]]]:
        return _train_one(env, settings, shaper, key, numbers or {})

    return train_one


def _train_one(
    env: Environment,
    settings: TrainingSettings,
    shaper: AbstractRewardShaper,
    key: PRNGKeyArray,
    numbers: Numbers,
) -> tuple[TrainState, dict[str, Float[Array, " lines"]]]:
    ppo, shaper = _with_settings(settings, shaper, numbers)
    state = init_train_state(env, ppo, shaper, key=key)
    every = min(settings.log_iterations, settings.iterations)

    # Compiled within the program, so that its shapes and its loop share one trace.
    @jax.jit
    def iterate(state: TrainState, iteration: Array) -> tuple[TrainState, Any]:
        one = jax.tree.map(lambda leaf: leaf[None], state)
        (state,), (measured,) = run_iteration(
            env, ppo, [shaper], [one], iteration, mixing=settings.curriculum
        )
        return jax.tree.map(lambda leaf: leaf[0], (state, measured))

    shapes = jax.eval_shape(iterate, state, jnp.zeros((), jnp.int32))[1]
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    def log_line(state: TrainState, line: Array) -> tuple[TrainState, dict[str, Array]]:
        def step(index: Array, carry: tuple[TrainState, Any]) -> tuple[TrainState, Any]:
            state, sums = carry
            state, measured = iterate(state, line * every + index)
            return state, jax.tree.map(jnp.add, sums, measured)

        # The last line may be shorter.
        count = jnp.minimum(every, settings.iterations - line * every)
        state, sums = jax.lax.fori_loop(0, count, step, (state, nothing))
        means = {
            name: jnp.where(mean.count > 0, mean.total / jnp.maximum(mean.count, 1e-9), jnp.nan)
            for name, mean in sums.items()
        }
        return state, means

    lines = jnp.arange(-(-settings.iterations // every), dtype=jnp.int32)
    trained, metrics = jax.lax.scan(log_line, state, lines)
    if problems := shaper.start_problems(state.shaper):
        refused = jnp.stack(list(problems.values())).any()
        metrics = {name: jnp.where(refused, jnp.nan, mean) for name, mean in metrics.items()}
        metrics["start_refused"] = jnp.full(lines.shape, refused, jnp.float32)
    return trained, metrics


def _with_settings(
    settings: TrainingSettings, shaper: AbstractRewardShaper, numbers: Numbers
) -> tuple[PPOSettings, AbstractRewardShaper]:
    """The learner and the shaper with some of their numbers replaced."""
    parts = settings.method.parts
    # What a sum's shaper calls `part.field` a single one calls `field`.
    names = {
        f"{part.name}.{name}": f"{part.name}.{name}" if len(parts) > 1 else name
        for part in parts
        for name in part.values()
    }
    of_shaper = numbers_of(shaper)
    swept = {name: inner for name, inner in names.items() if inner in of_shaper}
    shared = [
        inner
        for inner in of_shaper
        if inner.split(".")[-1] in SHARED_WITH_LEARNER and inner not in names.values()
    ]
    ppo = settings.ppo
    learner = {f"ppo.{one.name}": one.name for one in fields(ppo) if one.type in (float, "float")}
    for name, value in numbers.items():
        if name in swept:
            shaper = with_numbers(shaper, {swept[name]: value})
        elif name in learner:
            changed: dict[str, Any] = {learner[name]: value}
            ppo = replace(ppo, **changed)
            same = [one for one in shared if one.split(".")[-1] == learner[name]]
            shaper = with_numbers(shaper, dict.fromkeys(same, value))
        else:
            raise unknown_name("number to sweep", name, (*learner, *swept))
    return ppo, shaper
