"""Every step equal to minigrid's, on all eleven tasks: levels of both makers, several drivers."""

from functools import lru_cache
from typing import Any

import jax
import numpy as np
import pytest
from comparison import assert_same
from minigrid_reference import (
    EVERY_VERB,
    describe_reference,
    record_batch,
    reference_environment,
    without_output,
)

import ella
from ella.world import levels
from ella.world.expert import solve
from ella.world.tasks import TASKS, TaskSpec

STEPS = {("minigrid", "uniform"): 3700, ("minigrid", "handling"): 6000,
         ("ella", "uniform"): 2900, ("ella", "handling"): 5700}  # fmt: skip
"""Steps per task by maker of the levels and driver: in all more than 200,000."""
FEWER_STEPS = {("minigrid", "handling"): 1500, ("ella", "uniform"): 1500}

NUM_LEVELS = 300
"""More than the longest recording uses. (`tests/world` asks for as many, so that one compiled
program serves both.)"""


@lru_cache
def levels_made_here(spec: TaskSpec) -> list[dict[str, Any]]:
    generated = jax.device_get(levels.generate(spec, jax.random.key(3), NUM_LEVELS))
    return [
        ella.world.describe(jax.tree.map(lambda leaf, i=i: leaf[i], generated))
        for i in range(NUM_LEVELS)
    ]


def levels_made_by_minigrid(spec: TaskSpec, count: int) -> list[dict[str, Any]]:
    env = reference_environment(spec)
    found = []
    with without_output():
        env.reset(seed=11)
        for _ in range(count):
            env.reset()
            found.append(describe_reference(env))
    return found


@pytest.mark.parametrize(("maker", "driver"), FEWER_STEPS)
@pytest.mark.parametrize("name", EVERY_VERB)
def test_steps_equal_minigrid(name: str, maker: str, driver: str) -> None:
    compare_steps(TASKS[name], maker, driver, FEWER_STEPS[maker, driver])


@pytest.mark.thorough
@pytest.mark.parametrize(("maker", "driver"), STEPS)
@pytest.mark.parametrize("name", TASKS)
def test_many_steps_equal_minigrid(name: str, maker: str, driver: str) -> None:
    compare_steps(TASKS[name], maker, driver, STEPS[maker, driver])


def compare_steps(spec: TaskSpec, maker: str, driver: str, steps: int) -> None:
    made_here = levels_made_here(spec) if maker == "ella" else None
    seed = list(STEPS).index((maker, driver))
    episodes = record_batch(spec, driver, seed, min_steps=steps, levels=made_here)
    assert assert_same(spec, episodes) >= steps


@pytest.mark.thorough
@pytest.mark.parametrize("name", TASKS)
def test_expert_steps_equal_minigrid(name: str) -> None:
    """The expert on 48 levels of each maker; all of them end in success, in minigrid too."""
    spec = TASKS[name]
    chosen = levels_made_here(spec)[:48] + levels_made_by_minigrid(spec, 48)
    loaded = [jax.device_get(ella.world.load(spec, description)) for description in chosen]
    padded = loaded + [loaded[0]] * (NUM_LEVELS - len(loaded))
    solutions = jax.device_get(
        solve(ella.make(spec), jax.tree.map(lambda *leaves: np.stack(leaves), *padded))
    )
    scripts = [solutions.actions[n, : solutions.lengths[n]] for n in range(len(chosen))]
    episodes = record_batch(spec, "uniform", 0, min_steps=10**9, levels=chosen, scripts=scripts)
    assert_same(spec, episodes)
    assert all(episode.terminated[-1] for episode in episodes)


def test_comparison_notices_a_difference() -> None:
    spec = TASKS["goto-room"]
    episodes = record_batch(spec, "uniform", seed=3, min_steps=40)
    episodes[0].images[5, 3, 5, 1] += 1
    with pytest.raises(AssertionError) as caught:
        assert_same(spec, episodes)
    assert episodes[0].description["mission"] in str(caught.value.__notes__)
